"""Blocks as text of any width. Names are broken at separators, and nothing is cut."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, assert_never

import msgspec
from rich.console import Console, Group, RenderableType
from rich.syntax import Syntax
from rich.text import Text

from ddefuzz.escape import block, one_line, visible
from ddefuzz.show.blocks import (
    Block,
    Code,
    Column,
    Commands,
    Details,
    Facts,
    Heading,
    Inline,
    Items,
    Paragraph,
    Picture,
    Style,
    Table,
    spans,
)

GAP: Final = 2
"""The space between two columns of a table."""

LEAST: Final = 24
"""The minimum width of a column of long text."""

STYLES: Final[dict[Style, str]] = {"good": "green", "warn": "yellow", "bad": "red", "bold": "bold", "dim": "dim"}

THEME: Final = "ansi_dark"
"""Colors of the terminal itself."""

_JOINT = re.compile(r"(?<=[/:._-])(?=[^/:._-])")


def terminal(blocks: Iterable[Block], width: int, *, color: bool = False) -> str:
    """The text. An empty line is between blocks, but not below a heading."""
    parts: list[RenderableType] = []
    before: Block | None = None
    for part in blocks:
        if before is not None and not isinstance(before, Heading):
            parts.append("")
        parts.append(Group(*_shown(part, width)))
        before = part
    return _written(Group(*parts), width, color=color)


def _written(renderable: RenderableType, width: int, *, color: bool) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        force_jupyter=False,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
        emoji=False,
        markup=False,
    )
    with console.capture() as capture:
        console.print(renderable, crop=False)  # code is not cut at the width
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


def _shown(part: Block, width: int) -> Iterator[RenderableType]:
    match part:
        case Heading(text):
            yield _folded(text, width, "bold")
        case Paragraph(text, style):
            yield _folded(text, width, style, ticks=True, lines=True)
        case Items(items, style):
            for item in items:
                yield _folded(item, width, style, ticks=True)
        case Facts():
            yield from _facts([(one_line(name), value) for name, value in part.known], width)
        case Table():
            yield from _table(part, width)
        case Code(text, language):
            code = block(text.rstrip())
            if part.first:
                marks = {line for mark in part.marks for line in range(mark.first, mark.last + 1)}
                yield Syntax(
                    code,
                    language,
                    line_numbers=True,
                    start_line=part.first,
                    highlight_lines=marks,
                    word_wrap=True,
                    theme=THEME,
                )
            else:
                marked = Syntax(code, language, theme=THEME).highlight(code)
                marked.no_wrap, marked.overflow = True, "ignore"  # it is neither folded nor cut
                marked.rstrip()
                yield marked
        case Commands(lines, before):
            yield Text(folded(one_line(before), width))
            for line in lines:
                yield Text(f"  {visible(line)}", no_wrap=True, overflow="ignore")
        case Picture(text, path):
            yield _folded(f"{text}: {path}", width, "dim")
        case Details(summary, blocks):
            yield _folded(summary, width, "bold")
            for inner in blocks:
                yield from _shown(inner, width)
        case other:
            assert_never(other)


def _plain(text: Inline, *, ticks: bool = False, lines: bool = False) -> Text:
    """A text in the first style that it has. `ticks` marks what is code, `lines` keeps the ends of lines."""
    parts = spans(text)
    tick = "`" if ticks else ""
    words = (part.text if lines or part.text == "\n" else re.sub(r"\s+", " ", part.text) for part in parts)
    marked = (f"{tick}{word}{tick}" if part.code else word for part, word in zip(parts, words, strict=True))
    return Text(visible("".join(marked)), style=STYLES.get(next((part.style for part in parts if part.style), ""), ""))


def _folded(text: Inline, width: int, style: Style = "", *, ticks: bool = False, lines: bool = False) -> Text:
    plain = _plain(text, ticks=ticks, lines=lines)
    return Text(folded(plain.plain, width), style=STYLES.get(style, plain.style))


def folded(text: str, width: int) -> str:
    """The text in lines of at most `width`, broken at spaces. A word that is too long is broken after a separator.

    What continues a line that is indented is indented further.
    """
    return "\n".join(line for paragraph in text.split("\n") for line in _hanging(paragraph, width))


def _hanging(text: str, width: int) -> Iterator[str]:
    match = re.match(r" *(?:→ )?", text)
    start = match[0] if match is not None else ""
    indent = " " * (len(start) + GAP)
    if not start or len(indent) >= width:
        yield from _lines(text, width)
        return
    for at, line in enumerate(_lines(text.removeprefix(start), width - len(indent))):
        yield f"{indent if at else start}{line}"


def _lines(text: str, width: int) -> Iterator[str]:
    line = ""
    for word in re.findall(r"\s*\S+", text):
        if len(line) + len(word) <= width:
            line += word
            continue
        if line:
            yield line
        line = ""
        for part in _JOINT.split(word.lstrip()):
            rest = part
            if line and len(line) + len(rest) > width:
                yield line
                line = ""
            while len(rest) > width:
                yield rest[:width]
                rest = rest[width:]
            line += rest
    yield line


def _facts(facts: Sequence[tuple[str, Inline]], width: int) -> Iterator[Text]:
    """Names, and values beside them."""
    widest = max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        text = _folded(value, max(width - widest - GAP, 1), lines=True)
        for at, line in enumerate(text.plain.split("\n")):
            head = ("" if at else name).ljust(widest + GAP)
            yield Text.assemble((head, "bold"), (line, text.style), no_wrap=True)


class Line(NamedTuple):
    """A row of a table, as laid out: its cells, and the text below them."""

    cells: Sequence[Text]
    detail: Text = Text()


def _table(whole: Table, width: int) -> Iterator[Text]:
    chosen = [at for at, column in enumerate(whole.columns) if width >= column.least_width]
    below = [at for at, column in enumerate(whole.columns) if width < column.least_width and column.folding]
    rows = [
        _with_detail(Line([*map(_plain, row.cells)], _plain(row.detail, lines=True)), chosen, below)
        for row in whole.rows
    ]
    columns = [msgspec.structs.replace(one, title=one_line(one.title)) for one in (whole.columns[at] for at in chosen)]
    return laid_out(columns, rows, width)


def laid_out(columns: Sequence[Column], rows: Sequence[Line], width: int) -> Iterator[Text]:
    """Aligned columns under their titles, with each row's detail indented below it. Nothing is cut.

    On a narrow page, columns that may be folded, other than the first, are folded to a width of at least `LEAST`. If
    that is still too wide, they move to the row's detail.
    """
    least = [LEAST if at and column.folding else 0 for at, column in enumerate(columns)]
    natural = _widths(columns, rows)
    smallest = [min(wide, low) if low else wide for wide, low in zip(natural, least, strict=True)]
    if sum(smallest) + _gaps(natural) > width:
        kept = [at for at, low in enumerate(least) if not low]
        moved = [at for at, low in enumerate(least) if low]
        columns, rows = [columns[at] for at in kept], [_with_detail(row, kept, moved) for row in rows]
        natural = _widths(columns, rows)
        smallest = [0] * len(kept)
    widths = _shared(natural, smallest, _longest_parts(columns, rows), width - _gaps(natural))
    yield from _lines_of([Text(column.title, style="bold") for column in columns], columns, widths)
    yield Text("─" * (sum(widths) + _gaps(widths)), style="dim")
    for row in rows:
        yield from _lines_of(row.cells, columns, widths)
        if row.detail:
            for line in folded(row.detail.plain, width - 4).split("\n"):
                yield Text(f"    {line}", style=row.detail.style)


def _widths(columns: Sequence[Column], rows: Sequence[Line]) -> list[int]:
    return [
        max(len(column.title), *(len(line) for row in rows for line in row.cells[at].plain.split("\n")), 0)
        for at, column in enumerate(columns)
    ]


def _gaps(widths: Sequence[int]) -> int:
    return GAP * max(len(widths) - 1, 0)


def _with_detail(row: Line, kept: Sequence[int], moved: Sequence[int]) -> Line:
    parts = [row.cells[at].plain for at in moved if row.cells[at]] + ([row.detail.plain] if row.detail else [])
    return Line([row.cells[at] for at in kept], Text(" · ".join(parts), style=row.detail.style))


def _longest_parts(columns: Sequence[Column], rows: Sequence[Line]) -> list[int]:
    """The longest unbreakable part in each column."""
    texts = [[column.title, *(row.cells[at].plain for row in rows)] for at, column in enumerate(columns)]
    return [
        max(len(part) for text in of for word in (text.split() or [""]) for part in _JOINT.split(word)) for of in texts
    ]


def _shared(natural: Sequence[int], least: Sequence[int], parts: Sequence[int], width: int) -> list[int]:
    """Widths that fit: the widest column is reduced until all fit.

    The first column has names that people copy. It keeps up to three fifths of the page while others can be reduced.
    """
    widths = list(natural)
    soft = [min(natural[0], width * 3 // 5), *(max(pair) for pair in zip(least[1:], parts[1:], strict=True))]
    hard = [max(low, 1) for low in least]
    for floor in (soft, hard, [1] * len(widths)):
        while sum(widths) > width and (above := [at for at, wide in enumerate(widths) if wide > floor[at]]):
            widths[max(above, key=lambda at: (widths[at], at))] -= 1
    return widths


def _lines_of(cells: Sequence[Text], columns: Sequence[Column], widths: Sequence[int]) -> Iterator[Text]:
    folds = [folded(cell.plain, wide).split("\n") for cell, wide in zip(cells, widths, strict=True)]
    for at in range(max(map(len, folds))):
        line = Text(no_wrap=True)
        for cell, lines, column, wide in zip(cells, folds, columns, widths, strict=True):
            words = lines[at] if at < len(lines) else ""
            line.append(words.rjust(wide) if column.right else words.ljust(wide), cell.style).append(" " * GAP)
        line.rstrip()
        yield line
