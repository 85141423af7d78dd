"""Foreign text in the languages that ddefuzz writes: one function for each language, and for each place of Markdown.

Titles, messages, names and programs come from torch, from users' models and from files of others, and hold anything.
Every function replaces characters that a terminal would act on, or a reader would not see, by Python's escapes
(`visible`). Functions for one line also replace each run of white space by one space. Apart from that, and from what a
function says, a parser of the language gives back the text. For a literal of Python there is `repr`.
"""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

BREAK: Final = "\u200b"
"""Zero-width space. `visible` escapes those of the text itself."""

FORMULA: Final = tuple("=+-@＝＋－＠")  # noqa: RUF001 Excel of East Asia takes full-width characters for the others
"""A cell that begins so is a formula for spreadsheets."""


def visible(text: str, kept: str = "\n") -> str:
    """The text with every character that is not printable escaped, but those in `kept`: controls, bidirectional
    overrides, white space other than a space, surrogates.
    """
    if text.isprintable():
        return text
    return "".join(char if char in kept or char.isprintable() else ascii(char)[1:-1] for char in text)


def one_line(text: str) -> str:
    """Visible text on one line, with single spaces."""
    return visible(" ".join(text.split()))


def block(text: str) -> str:
    """Visible text of several lines, in which tabs are kept: code, and output of commands."""
    return visible(text, "\n\t")


_MARKUP: Final = re.compile(
    r"""
    [\\`*\[\]<#~$]            # CommonMark, GitHub's strikethrough and formulas
    | (?<![A-Za-z0-9])_       # not a single _ within a word
    | _(?![A-Za-z0-9])
    | &(?=[#A-Za-z])          # an entity
    | ^[-+=:|>]               # a list, a heading, the line below the titles of a table, a quote
    """,
    re.VERBOSE,
)

_NUMBERED: Final = re.compile(r"^([0-9]{1,9})([.)])(?= |$)")
"""What begins an item of a numbered list."""

_REFERENCE: Final = re.compile(
    r"@(?! )|\#(?=[0-9])|\bGH-(?=[0-9])|:(?=//)|\bwww(?=\.|$)"
    r"|(?<!:):(?=(?:100|1234|[0-9_+-]*[a-z][a-z0-9_+-]*|[+-]1):(?!:))",
    re.IGNORECASE | re.ASCII,
)
"""What GitHub makes a mention, a link or a picture of, wherever it is in text: a user, an issue, an address, `:cat:`.

Names of C++ stay as they are: nobody could search for one with a `BREAK`, and `::cat::` is a picture at worst.
"""


def markdown_text(text: str) -> str:
    """Text of a paragraph, a heading, an item or a cell, in which nothing is markup, a mention or a link.

    `BREAK` is put into what GitHub would link.
    """
    plain = _NUMBERED.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", one_line(text)))
    return _REFERENCE.sub(rf"\g<0>{BREAK}", plain)


def markdown_code(text: str) -> str:
    """A code span, nothing for an empty text."""
    line = one_line(text)
    if not line:
        return ""
    ticks = "`" * _longer_than_ticks(line, 1)
    space = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def markdown_block(text: str, language: str = "") -> str:
    """A fenced block of code, without white space at its end."""
    fence = "`" * _longer_than_ticks(text, 3)
    return f"{fence}{language}\n{block(text.rstrip())}\n{fence}"


def _longer_than_ticks(text: str, least: int) -> int:
    return max([least, *(len(run) + 1 for run in re.findall(r"`+", text))])


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> str:
    """A table of GitHub's Markdown. Cells are Markdown on one line. `right` names columns aligned to the right."""
    marks = ["---:" if title in right else "---" for title in titles]
    lines = (" | ".join(cell.replace("|", r"\|") for cell in cells) for cells in (titles, marks, *rows))
    return "\n".join(f"| {line} |" for line in lines)


def html_text(text: str) -> str:
    """Text or an attribute's value on one line of HTML. Templates escape by themselves, with `html_value`."""
    return html.escape(one_line(text))


def html_value(value: object) -> object:
    """The option `finalize` of Jinja: what a template puts in, made visible before it is escaped."""
    return block(value) if type(value) is str else value


def html_comment(text: str) -> str:
    """Text in a comment of HTML. `--` is written as `- -`."""
    return re.sub("-(?=-)", "- ", one_line(text))


def xml_text(text: str) -> str:
    """Characters that XML 1.0 can hold. Who writes the XML escapes its markup."""
    return block(text)


def sarif_message(text: str) -> str:
    """A plain message of SARIF: braces are no placeholders (3.11.5) and brackets no links (3.11.6)."""
    unlinked = re.sub(r"(\\*)\](?=\()", r"\1\1\\]", block(text))
    return unlinked.replace("{", "{{").replace("}", "}}")


def from_sarif_message(message: str) -> str:
    """The text of which `sarif_message` made a message, with what `block` made visible."""
    linked = re.sub(r"((?:\\\\)*)\\\](?=\()", lambda match: match[1][::2] + "]", message)
    return linked.replace("{{", "{").replace("}}", "}")


def github_data(text: str) -> str:
    """The message of a workflow command, as GitHub's toolkit escapes it."""
    return visible(text).replace("%", "%25").replace("\n", "%0A")


def github_property(text: str) -> str:
    """The value of a property of a workflow command."""
    return github_data(text).replace(":", "%3A").replace(",", "%2C")


def github_log(text: str) -> str:
    """Text without a line that is a command for the runner of a GitHub workflow: `::` at its start, `##[` anywhere."""
    return re.sub(r"^( *)(?=::)|#(?=#\[)", rf"\g<0>{BREAK}", text, flags=re.MULTILINE)


def csv_cell(text: str) -> str:
    """The value of a cell. `'` is put before what spreadsheets take for a formula."""
    value = visible(text)
    return f"'{value}" if value.lstrip().startswith(FORMULA) else value


def json_text(document: Any, *, indent: bool = False) -> str:
    """A JSON document in ASCII. Lone surrogates, which JSON cannot have, are escaped as Python does."""
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_without_surrogates(msgspec.to_builtins(document, str_keys=True)))
    text = (msgspec.json.format(encoded, indent=2) if indent else encoded).decode()
    # Only strings have such characters.
    return re.sub(r"[^\n -~]", lambda match: json.dumps(match[0])[1:-1].replace("\x7f", r"\u007f"), text)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(of_key) for key, of_key in value.items()}
    return [_without_surrogates(one) for one in value] if isinstance(value, list | tuple) else value


def python_comment(text: str) -> str:
    """A comment of Python."""
    return f"# {one_line(text)}".rstrip()


def python_docstring(text: str) -> str:
    """A docstring of Python, with its quotes."""
    escaped = re.sub(r'"(?="")|"\Z', r"\"", block(text).replace("\\", "\\\\"))
    return f'"""{escaped}"""'


def shell_word(text: str) -> str:
    """A word of a command line. One with characters that are not printable is in the quotes `$'…'` of bash and zsh."""
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_in_shell, text))}'"


def _in_shell(char: str) -> str:
    if char.isprintable():
        return f"\\{char}" if char in "\\'" else char
    errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in char.encode(errors=errors))


def shell_words(words: Iterable[str]) -> str:
    """A command line."""
    return " ".join(map(shell_word, words))


def whole_number(text: str) -> int | None:
    """The number that a text of at most nine digits is; None for another text. `int` takes digits of other scripts, and
    fails for long texts.
    """
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
