"""The URL of a findings database. Its text never has a password: only SQLAlchemy gets the whole URL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

from sqlalchemy import URL, exc, make_url

from ddefuzz.errors import InputError
from ddefuzz.internal import without_url_passwords

_EXPECTED: Final = "expected the URL of a database such as sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE"

_SCHEME: Final = re.compile(r"(?<![\w+])(?:(?![A-Za-z])[\w+])*+([A-Za-z][\w+]*+)://")
"""Its group is the scheme. It begins at no place inside of a word, so its time grows with the text."""

_SHOWN_KEYS: Final = frozenset(
    ("host", "hostaddr", "port", "dbname", "user", "connect_timeout", "application_name", "client_encoding", "sslmode")
)
"""The keys of the query whose values are shown. Any other may have a password, or be a part of one with an `&`."""

_OTHER_KEYS: Final = frozenset(("options", "password", "sslpassword"))
"""Keys that are no secrets, and are parts of other words. Their values are hidden."""

_PART: Final = 4
"""The length of a part of what is hidden that is hidden too. Shorter ones are in many words."""

_KEY_IN_TEXT: Final = re.compile(r"((?:password|passwd|pwd|secret|token)=)[^\s&'\"]+", re.IGNORECASE)

_FILE: Final = re.compile(r"([\w/.-]+\.(db|sqlite3?))?")
"""The name of a file that was typed for a URL, or nothing. Any other word may be a password."""

_CUT: Final = re.compile(r"(://[^\s:/@]++:)(?!\*\*\*|[0-9]{1,5}(?:[^\w-]|\Z))[^\s'\"]++")
"""A user and a beginning of a password, without the @ after it. A port is none."""


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseUrl:
    """A valid URL. `str`, `repr` and `format` give it without what may be secret, which is shown as `***`."""

    shown: str
    _whole: URL

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return repr(self.shown)

    def path(self) -> Path | None:
        """The file of an SQLite database, None for a server and for a database in memory."""
        name = self._whole.database
        is_file = self._whole.get_backend_name() == "sqlite" and name and not name.startswith((":memory:", "file:"))
        return Path(name) if is_file and name else None

    def is_in_memory(self) -> bool:
        """Whether it is an SQLite database that ends with the process."""
        name = self._whole.database or ""
        in_name = name in ("", "file:") or name.startswith((":memory:", "file::memory:"))
        return self._whole.get_backend_name() == "sqlite" and (in_name or self._whole.query.get("mode") == "memory")

    def for_sqlalchemy(self) -> URL:
        """The whole URL, with the password. It must not be printed or stored."""
        return self._whole

    def hidden_in(self, text: str) -> str:
        """A text, such as a message of the driver, without what this URL hides, nor parts of it: a server may repeat a
        word of a value.
        """
        spelled = {one for value in _secrets(self._whole) for one in (value, quote(value, safe=""), quote_plus(value))}
        parts = {one[at : at + _PART] for one in spelled for at in range(max(1, len(one) - _PART + 1))}
        sizes = {len(part) for part in parts}
        hidden = bytearray(len(text))
        for at in range(len(text)):
            for size in sizes:
                if (part := text[at : at + size]) in parts:
                    hidden[at : at + size] = b"\1" * len(part)
        groups = groupby(zip(text, hidden, strict=True), key=itemgetter(1))
        return "".join("***" if is_hidden else "".join(char for char, _ in group) for is_hidden, group in groups)


def _secrets(url: URL) -> list[str]:
    """The password, and the keys and values of the query that are not shown."""
    hidden = {name: value for name, value in url.query.items() if name not in _SHOWN_KEYS}
    values = (one for value in hidden.values() for one in ((value,) if isinstance(value, str) else value))
    return [str(one) for one in (url.password, *(hidden.keys() - _OTHER_KEYS), *values) if one]


def parse_url(text: str) -> DatabaseUrl:
    """Parse what was typed or set. Raises `InputError`, which does not repeat what may be a password."""
    url, problem = _parsed(text)
    if url is None:
        raise InputError(f"found {_beginning(text)}{problem}, {_EXPECTED}")
    hidden = [name for name in url.query if name not in _SHOWN_KEYS]
    if url.password is None and not hidden:
        return DatabaseUrl(text, url)
    shown = url.difference_update_query(hidden).render_as_string(hide_password=True)
    rest = ("&***" if len(hidden) < len(url.query) else "?***") if hidden else ""
    return DatabaseUrl(shown + rest, url)


def _parsed(text: str) -> tuple[URL | None, str]:
    """The URL, or None and what is wrong."""
    try:
        url = make_url(text)
    except exc.ArgumentError:
        return None, ""
    except ValueError:
        return None, ", whose port is not a number"
    if not text.isprintable():
        return None, ", which has control characters"
    if url.get_backend_name() == "sqlite":
        server = (url.username, url.password, url.host, url.port)
        return (url, "") if server == (None, None, None, None) else (None, ", which names a server")
    if url.port is not None and not 0 < url.port < 65536:
        return None, ", whose port is not from 1 to 65535"
    # An @, / or : of a password that is not encoded would make a part of it the host, the port or the database.
    if text.count("@") > (url.username is not None):
        return None, ", which has an @ of its own (in a user, a password or a database @ is %40, / is %2F, : is %3A)"
    if re.search(r"[/?#]", text.partition("://")[2].rpartition("@")[0]):
        return None, ", which has a / or ? before its @ (in a user or a password / is %2F, ? is %3F)"
    return url, ""


def _beginning(text: str) -> str:
    """As much of an invalid URL as cannot be a password."""
    scheme = _SCHEME.match(text)
    if scheme is not None:
        return f"a URL that begins with {scheme[0]}"
    return repr(text) if _FILE.fullmatch(text) else "a text that is no URL"


def without_passwords(word: str) -> str:
    """A word of a command line. A database URL in it is as it is shown."""
    scheme = _SCHEME.search(word)
    if scheme is None:
        return word
    try:
        return word[: scheme.start(1)] + str(parse_url(word[scheme.start(1) :]))
    except InputError:
        return f"{word[: scheme.end()]}***"


def text_without_passwords(text: str, words: list[str]) -> str:
    """A text that may repeat one of the words (of the command line), or its beginning, and URLs from elsewhere."""
    for word in words:
        if scheme := _SCHEME.search(word):
            text = _without_url(text, word[scheme.start(1) :])
    return _CUT.sub(r"\1***", _KEY_IN_TEXT.sub(r"\1***", without_url_passwords(text)))


def _without_url(text: str, url: str) -> str:
    """A text in which a URL is as it is shown, also where only its beginning is there: messages may cut it."""
    shown, as_path = without_passwords(url), re.sub("/+", "/", url)
    spelled = {url, repr(url)[1:-1], ascii(url)[1:-1], as_path}
    least, pieces, at = url[: url.index("/") + 1], list[str](), 0
    while (start := text.find(least, at)) >= 0:
        matched = {one: _common(text[start : start + len(one)], one) for one in spelled}
        longest = max(matched, key=lambda one: matched[one])
        at, before = start + matched[longest], at
        is_open = _common(longest, shown)
        pieces.append(text[before:start])
        if matched[longest] == len(longest):
            pieces.append(shown)
        else:
            pieces.append(text[start:at] if matched[longest] <= is_open else f"{longest[:is_open]}***")
    return "".join([*pieces, text[at:]])


def _common(text: str, other: str) -> int:
    """The length of the beginning that two texts have in common."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(text), len(other)))
