"""Blocks as text of any width. Names are broken at separators, and nothing is cut."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, assert_never

from rich.console import Console, Group, RenderableType
from rich.syntax import Syntax
from rich.text import Text

from ddefuzz.escape import block, one_line, visible
from ddefuzz.show.blocks import (
    Block,
    Code,
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

LEAST_PAGE: Final = 20
"""The minimum width of a page, however narrow the terminal is."""

STYLES: Final[dict[Style, str]] = {"good": "green", "warn": "yellow", "bad": "red", "bold": "bold", "dim": "dim"}

THEME: Final = "ansi_dark"
"""Colors of the terminal itself."""

_JOINT = re.compile(r"(?<=[/:._-])(?=[^/:._-])")


def terminal(blocks: Iterable[Block], width: int, *, color: bool = False) -> str:
    """The text. An empty line is between blocks, but not below a heading."""
    width = max(width, LEAST_PAGE)
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
    width = max(width, 1)
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
        text = _folded(value, width - widest - GAP, lines=True)
        for at, line in enumerate(text.plain.split("\n")):
            head = ("" if at else name).ljust(widest + GAP)
            yield Text.assemble((head, "bold"), (line, text.style), no_wrap=True)


def _table(whole: Table, width: int) -> Iterator[Text]:
    """Aligned columns under their titles, with each row's detail indented below it. Nothing is cut.

    On a narrow page, columns that may be folded, other than the first, are folded to a width of at least `LEAST`. If
    that is still too wide, they move to the row's detail.
    """
    columns, rows = whole.columns, [[*map(_plain, row.cells)] for row in whole.rows]
    titles = [Text(one_line(column.title), style="bold") for column in columns]
    texts = [[titles[at].plain, *(cells[at].plain for cells in rows)] for at in range(len(columns))]
    natural = [max(len(line) for text in column for line in text.split("\n")) for column in texts]
    first, *others = (at for at, column in enumerate(columns) if width >= column.least_width)
    below = [at for at, column in enumerate(columns) if width < column.least_width and column.folding]
    least = [natural[first], *(min(natural[at], LEAST) if columns[at].folding else natural[at] for at in others)]
    if sum(least) + GAP * len(others) > width:
        below = [*(at for at in others if columns[at].folding), *below]
        others = [at for at in others if not columns[at].folding]
        least = [0] * (1 + len(others))
    shown = [first, *others]
    parts = [_longest_part(texts[at]) for at in shown]
    widths = _shared([natural[at] for at in shown], least, parts, width - GAP * len(others))
    right = [columns[at].right for at in shown]
    yield from _lines_of([titles[at] for at in shown], right, widths)
    yield Text("─" * (sum(widths) + GAP * len(others)), style="dim")
    for row, cells in zip(whole.rows, rows, strict=True):
        yield from _lines_of([cells[at] for at in shown], right, widths)
        detail = _plain(row.detail, lines=True)
        if under := " · ".join(text.plain for text in (*(cells[at] for at in below), detail) if text):
            for line in folded(under, width - 4).split("\n"):
                yield Text(f"    {line}", style=detail.style)


def _longest_part(texts: Iterable[str]) -> int:
    """The length of the longest part that is not broken."""
    return max(len(part) for text in texts for word in (text.split() or [""]) for part in _JOINT.split(word))


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


def _lines_of(cells: Sequence[Text], right: Sequence[bool], widths: Sequence[int]) -> Iterator[Text]:
    folds = [folded(cell.plain, wide).split("\n") for cell, wide in zip(cells, widths, strict=True)]
    for at in range(max(map(len, folds))):
        line = Text(no_wrap=True)
        for cell, lines, is_right, wide in zip(cells, folds, right, widths, strict=True):
            words = lines[at] if at < len(lines) else ""
            line.append(words.rjust(wide) if is_right else words.ljust(wide), cell.style).append(" " * GAP)
        line.rstrip()
        yield line
