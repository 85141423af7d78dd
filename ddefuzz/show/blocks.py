"""Documents for people: blocks that are made once, and shown on a terminal, as Markdown or as HTML.

A view is a function from a record to blocks; `terminal`, `markdown` and `html` of this package show them:

    def census_view(census: Census) -> Iterator[Block]:
        yield Heading(f"Census of torch {census.torch}", 1)
        yield prose("Made by `{}`; **do not edit**. [sweep.md](sweep.md) says more.", command_line())
        yield Items(summary_lines(census))
        rows = [TableRow((op.name, Span(op.status, style="bad"), str(op.runs)), detail=op.sites) for op in census.ops]
        yield table(("op", "status", "runs"), rows, code=("op",), right=("runs",), folding=("status",))
        yield Commands(("ddefuzz findings list",))

    terminal(blocks, width=100, color=False), markdown(blocks), html(title, blocks)

In a command, `page_writers(title, view)` of `cli.output` gives `deliver` the formats text, markdown and html. A text is
foreign: give it as it is. The renderers escape it, once, by `ddefuzz.escape`, and nothing in it is markup. Markup is a
`Span`, or the literal template of `prose`. White space of a text on one line (a heading, a cell) is folded;
the element "\\n" of a tuple breaks the line of a cell.
On a terminal, columns in `folding` are folded on narrow pages, and below the row on very narrow ones. Nothing is cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, LiteralString, NamedTuple, TypeAlias

import msgspec

from ddefuzz.escape import shell_words

Style: TypeAlias = Literal["", "bold", "dim", "good", "warn", "bad"]


class Span(msgspec.Struct, frozen=True):
    """A part of a line. `code` is a name, a path or an expression; `href` is where a link leads."""

    text: str
    code: bool = False
    style: Style = ""
    href: str = ""


Inline: TypeAlias = str | Span | tuple[str | Span, ...]


class Heading(msgspec.Struct, frozen=True):
    """The title of what follows. `anchor` is its name for links on the page."""

    text: Inline
    level: int = 2
    anchor: str = ""


class Paragraph(msgspec.Struct, frozen=True):
    """Sentences."""

    text: Inline
    style: Style = ""


class Items(msgspec.Struct, frozen=True):
    """A list. On a terminal it is a line or more for each item, without a mark."""

    items: tuple[Inline, ...]
    style: Style = ""


class Facts(msgspec.Struct, frozen=True):
    """Names and values, which may have several lines. Those without a value are left out."""

    facts: tuple[tuple[str, Inline], ...]

    @property
    def known(self) -> tuple[tuple[str, Inline], ...]:
        """Those with a value."""
        return tuple((name, value) for name, value in self.facts if any(span.text for span in spans(value)))


class Column(msgspec.Struct, frozen=True):
    """A column of a table. `code` says that its texts are names, paths or expressions.

    On a terminal `folding` says that it may be folded. On pages narrower than `least_width` it is left out, or below
    the row if it may be folded.
    """

    title: str
    right: bool = False
    code: bool = False
    folding: bool = False
    least_width: int = 0


class TableRow(msgspec.Struct, frozen=True):
    """A row of a table, and what is below its cells: lines of text."""

    cells: tuple[Inline, ...]
    detail: Inline = ""


class Table(msgspec.Struct, frozen=True):
    """A table. `table` makes one."""

    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]


class Mark(msgspec.Struct, frozen=True):
    """Lines of a code, by number: their style, a text for the pointer, and blocks below the last of them."""

    first: int
    last: int
    style: Style
    tip: str = ""
    below: tuple[Block, ...] = ()


class Code(msgspec.Struct, frozen=True):
    """A text of several lines that is never folded, in a language that Pygments knows: `python`, `diff`, `text`.

    On a page of HTML and on a terminal its lines are numbered from `first` if that is not 0, and marked. On HTML links
    lead to them by `anchor`. The lines of a terminal are then folded.
    """

    text: str
    language: str = "python"
    first: int = 0
    anchor: str = ""
    marks: tuple[Mark, ...] = ()


class Commands(msgspec.Struct, frozen=True):
    """Command lines to copy, and the sentence before them."""

    lines: tuple[str, ...]
    before: str = "Next:"


class Picture(msgspec.Struct, frozen=True):
    """An image file beside the page. A page of HTML, which loads nothing, links to it; a terminal shows its path."""

    text: str
    path: str


class Details(msgspec.Struct, frozen=True):
    """Blocks that a page of HTML or Markdown folds."""

    summary: Inline
    blocks: tuple[Block, ...]
    is_open: bool = False


Block: TypeAlias = Heading | Paragraph | Items | Facts | Table | Code | Commands | Picture | Details


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[Inline] | TableRow],
    *,
    right: Sequence[str] = (),
    code: Sequence[str] = (),
    folding: Sequence[str] = (),
) -> Table:
    """A table. `right`, `code` and `folding` name the columns that have these properties."""
    columns = (Column(title, title in right, title in code, title in folding) for title in titles)
    return Table(tuple(columns), tuple(row if isinstance(row, TableRow) else TableRow(tuple(row)) for row in rows))


_MARKED = re.compile(r"\*\*(?P<bold>.+?)\*\*|`(?P<code>.+?)`|\[(?P<text>.+?)\]\((?P<href>.+?)\)")


def prose(template: LiteralString, *values: object) -> Paragraph:
    """A paragraph from a literal text with `**bold**`, `code` and `[text](href)`. Each `{}` is put in as text."""
    return Paragraph(marked(template, *values))


def marked(template: LiteralString, *values: object) -> tuple[str | Span, ...]:
    """The text of `prose`."""
    left = list(values)

    def put_in(text: str) -> str:
        return re.sub(r"\{\}", lambda _: str(left.pop(0)), text)

    parts: list[str | Span] = []
    end = 0
    for match in _MARKED.finditer(template):
        parts.append(put_in(template[end : match.start()]))
        text = put_in(match["bold"] or match["code"] or match["text"])
        parts.append(
            Span(text, match["code"] is not None, "bold" if match["bold"] else "", put_in(match["href"] or ""))
        )
        end = match.end()
    return (*parts, put_in(template[end:]))


def spans(text: Inline, *, code: bool = False) -> tuple[Span, ...]:
    """The parts of a text. Those without a property of their own are code if `code` says so."""
    parts = text if isinstance(text, tuple) else (text,)
    return tuple(part if isinstance(part, Span) else Span(part, code and part != "\n") for part in parts)


def codes(names: Iterable[str]) -> tuple[str | Span, ...]:
    """Each name once, as code, with commas between."""
    return joined([Span(name, code=True) for name in dict.fromkeys(filter(None, names))], ", ")


def joined(parts: Sequence[str | Span], separator: str) -> tuple[str | Span, ...]:
    """The parts, with a separator between."""
    return tuple(part for one in parts for part in (separator, one))[1:]


def counted(number: int, noun: str, several: str = "") -> str:
    """`1 step`, `2 steps`. `several` is the plural if it is another one."""
    return f"{number} {noun if number == 1 else several or f'{noun}s'}"


def time_left(seconds: float) -> str:
    """`about 3 min left`, `about 40 s left`."""
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"


class Invocation(NamedTuple):
    """The words that start ddefuzz and Python, and the database's URL (without its password) if it has to be typed."""

    program: str = "ddefuzz"
    python: str = "python"
    db: str = ""

    def command(self, *words: str, with_db: bool = True) -> str:
        """A command line of ddefuzz. `with_db` is for commands with the option `--db`."""
        db = ("--db", self.db) if with_db and self.db else ()
        return f"{self.program} {shell_words([*words, *db])}"

    def repro(self, finding: str) -> str:
        """The command line that runs a finding's script."""
        return f"{self.command('findings', 'show', finding, '--repro')} > repro.py && {self.python} repro.py"
