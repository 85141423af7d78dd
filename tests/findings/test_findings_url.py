"""The URL of a database: its text never has a password, and only SQLAlchemy gets the whole."""

from __future__ import annotations

import copy
import pickle
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ddefuzz.errors import DatabaseError, InputError
from ddefuzz.findings.connection import open_engine
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl, parse_url, text_without_passwords, without_passwords
from tests.findings.servers import new_database

WORD = "SECRETWORD"
"""The password in these tests, or its beginning and its end: no text may have it."""

PLACES = (
    "postgresql://ada:{}@127.0.0.1:1/x",
    "postgresql+psycopg://ada:{}@127.0.0.1:1/x?sslmode=disable",
    "postgresql://:{}@127.0.0.1:1/x",
    "postgresql://ada@127.0.0.1:1/x?password={}",
    "postgresql://ada@127.0.0.1:1/x?sslpassword={}&connect_timeout=1",
    "postgresql://ada@127.0.0.1:1/x?connect_timeout=1&passfile={}&passfile={}",
    "postgresql://127.0.0.1:1/x?options=-c%20a.b%3D{}",
    "postgresql://ada:{0}@127.0.0.1:1/x?password={0}",
    "nonesuch://ada:{}@host/db",
    "mysql+nonesuch://ada:{}@host/db",
    "sqlite://ada:{}@/x",
    "postgresql://ada:{}@host:port/x",
    "postgresql://ada:{}@host:99999/x",
    "postgresql://ada:{}",
    "postgresql:/ada:{}@host/x",
    "ada:{}@host",
    "host=h password={}",
)
"""URLs, some of them invalid, with the place of the password."""

SHOWN = {
    "sqlite:///findings/ddefuzz.db": "sqlite:///findings/ddefuzz.db",
    "sqlite:///a b%20c@d:e.db": "sqlite:///a b%20c@d:e.db",
    "sqlite://": "sqlite://",
    "postgresql://ada@host:5432/db?host=/tmp": "postgresql://ada@host:5432/db?host=/tmp",
    "postgresql://ada:pass@host/db": "postgresql://ada:***@host/db",
    "postgresql://ada:p%40ss@host/db?sslmode=require": "postgresql://ada:***@host/db?sslmode=require",
    "postgresql://host/db?sslpassword=a&b=c": "postgresql://host/db?***",
    "postgresql://host/db?sslmode=require&password=a": "postgresql://host/db?sslmode=require&***",
}


def everything(text: str) -> str:
    """All that is printed of a URL and of the errors on the way to a database."""
    try:
        url = parse_url(text)
        told = [str(url), repr(url), f"{url}", f"{url!r:>9}", f"{[url]} {(url,)!s}", repr(copy.copy(url))]
        told.append(str(pickle.loads(pickle.dumps(url))))
        told += [without_passwords(text), without_passwords(f"--db={text}")]
        try:
            open_engine(url, create=False)
        except (DatabaseError, InputError) as error:
            told.append(str(error))
        return "\n".join(told)
    except InputError as error:
        assert "\n" not in str(error)
        shown = text_without_passwords("".join(traceback.format_exception(error)), [text])
        return f"{error}\n{without_passwords(text)}\n{shown}" if "://" in text else f"{error}"


@pytest.mark.parametrize("place", PLACES)
def test_a_password_is_never_shown(place: str) -> None:
    assert WORD not in everything(place.format(WORD, WORD))


@given(st.sampled_from(PLACES), st.text("aZ09@:/?#&=%+ [](){}<>'\"\\$*!|;,.~`^-_äß☃", max_size=8), st.booleans())
def test_a_hostile_password_is_never_shown(place: str, middle: str, encoded: bool) -> None:
    password = f"{WORD}{middle}{WORD}"
    assume(encoded or "@" not in middle or place != "postgresql://ada:{}")  # what is behind the @ is a host then
    shown = everything(place.format(*[quote(password, safe="") if encoded else password] * 2))
    assert WORD not in shown
    assert quote(password, safe="") not in shown


@given(st.text(min_size=1, max_size=12).filter(str.isprintable))
def test_an_encoded_password_gets_to_sqlalchemy(password: str) -> None:
    url = parse_url(f"postgresql://ada:{quote(password, safe='')}@host/db")
    assert (url.for_sqlalchemy().password, str(url)) == (password, "postgresql://ada:***@host/db")


@pytest.mark.parametrize(("text", "shown"), SHOWN.items())
def test_the_text_of_a_url(text: str, shown: str) -> None:
    url = parse_url(text)
    assert (str(url), parse_url(shown).shown) == (shown, shown)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("findings.db", "found 'findings.db', expected the URL of a database such as sqlite:///PATH"),
        ("", "found '', expected the URL"),
        (f"u/{WORD}", "found a text that is no URL, expected the URL"),
        ("postgresql://host:port/x", "a URL that begins with postgresql://, whose port is not a number"),
        ("postgresql://host:0/x", "whose port is not from 1 to 65535"),
        ("postgresql://ada:a@b@host/x", "which has an @ of its own"),
        ("postgresql://a/b:c@host/x", "which has an @ of its own"),
        ("sqlite://ada:p@host/x", "which names a server"),
        ("sqlite:///a\nb", "which has control characters"),
    ],
)
def test_an_invalid_url_is_one_line(text: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_url(text)
    assert found in str(caught.value)
    assert "\n" not in str(caught.value)


def test_keys_that_the_driver_does_not_take_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"{tmp_path}/a.db\?\*\*\*: found a URL that its driver does not take$"):
        Database.open(f"sqlite:///{tmp_path}/a.db?password=a&{WORD}=1")


def test_words_and_texts_without_passwords() -> None:
    typed = "now=postgresql://ada:p w@host/db#2.13"
    assert without_passwords(typed) == "now=postgresql://ada:***@host/db%232.13"
    assert without_passwords("--seed=3") == "--seed=3"
    assert without_passwords("https://github.com/pytorch/pytorch/issues/1").endswith("/pytorch/issues/1")
    assert text_without_passwords(f"a {typed} b", [typed]) == "a now=postgresql://ada:***@host/db%232.13 b"
    as_path = str(Path("postgresql://ada:p@host/db?x=y"))
    assert text_without_passwords(f"{as_path}/f: no", []) == "postgresql:/ada:***@host/db?x=y/f: no"
    assert text_without_passwords(f"{as_path}: no", ["postgresql://ada:p@host/db?x=y"]) == (
        "postgresql://ada:***@host/db?***: no"
    )
    assert (
        text_without_passwords("at redis://a:b/c@d/e and sslpassword=x y", [])
        == "at redis://a:***@d/e and sslpassword=*** y"
    )


@pytest.mark.parametrize("password", ["hunter2-more", "a\\hunter2-more", "é'\"hunter2-more", "1hunter2-more"])
def test_a_beginning_of_a_url_has_no_password(password: str) -> None:
    url = f"postgresql://ada:{password}@db.example/fz"
    of_settings: list[list[str]] = [] if "'" in password else [[]]  # a quote ends what is not known to be one word
    for words in ([f"--shard={url}"], *of_settings):
        for spelled in (repr(url), ascii(url), url, *(repr(url[:most]) for most in range(len(url)))):
            text = f"found {spelled}, expected 1/4, as in http://127.0.0.1:8000/x"
            hidden = text_without_passwords(text, words)
            assert not [part for part in ("hunt", "nter2-", "more") if part in hidden]
            assert hidden.startswith("found ")
            assert hidden.endswith(", expected 1/4, as in http://127.0.0.1:8000/x")


def test_a_server_gets_the_password_and_no_message_has_it(postgres: str) -> None:
    address = new_database(postgres).replace("@/", f":{WORD}@/")
    with Database.open(address) as database:
        assert database.findings() == ()
        assert (WORD in str(database.url), ":***@" in str(database.url)) == (False, True)
    for bad in (address.replace("/d", "/none"), f"{address}&password={WORD}&{WORD}=1"):
        with pytest.raises(DatabaseError) as caught:
            Database.open(bad)
        assert WORD not in str(caught.value)
    url = parse_url(address)
    assert isinstance(url, DatabaseUrl)
    assert url.hidden_in(f"bad {WORD}") == "bad ***"


@pytest.mark.parametrize(
    ("query", "message", "shown"),
    [
        ("options=hunter2", "connection option hunter2", "connection option ***"),
        ("options=-c%20app.key%3Dleft%20hunter2", 'invalid argument "hunter2" of a', 'invalid argument "***" of a'),
        ("options=-c%20app.key%3Dleft%20hunter2", "no left%20hunter2", "no ***"),
        ("hunter2%3Dmore=1", 'no option "hunter2"', 'no option "***"'),
        ("key=a&odd=xy", "bad xy", "b***d ***"),
    ],
)
def test_parts_of_what_is_hidden_are_hidden(query: str, message: str, shown: str) -> None:
    assert parse_url(f"postgresql://ada@host/db?{query}").hidden_in(message) == shown


def test_passwords_are_hidden_in_time_that_grows_with_the_text() -> None:
    """Long words, and many beginnings of URLs: with a square of the length, each of these takes minutes."""
    word = "a" * 1_000_000
    text = f"{word} {'://:' * 250_000} {word}password={WORD} {word}://ada:{WORD}{word}@x"
    hidden = f"{word} {'://:' * 250_000} {word}password=*** {word}://ada:***@x"
    assert text_without_passwords(text, [word]) == hidden
    assert without_passwords(f"--db={word}://ada:{WORD}:x@y:z") == f"--db={word}://***"
