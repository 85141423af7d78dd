"""Tables and text for pages of any width. Names are broken at separators, and nothing is cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Group
from rich.text import Text

GAP = 2
"""The space between two columns of a table."""

LEAST = 24
"""The minimum width of a column of long text."""

_JOINT = re.compile(r"(?<=[/:._-])(?=[^/:._-])")


class Detailed(NamedTuple):
    """A row of cells, and an optional text below it."""

    cells: Sequence[Text]
    detail: Text = Text()


def folded(text: str, width: int) -> str:
    """The text in lines of at most `width`, broken at spaces. A word that is too long is broken after a separator."""
    return "\n".join(line for paragraph in text.split("\n") for line in _lines(paragraph, width))


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


def counted(number: int, noun: str, several: str = "") -> str:
    """`1 step`, `2 steps`. `several` is the plural if it is another one."""
    return f"{number} {noun if number == 1 else several or f'{noun}s'}"


def table(
    titles: Sequence[str],
    rows: Sequence[Detailed],
    width: int,
    *,
    right: Sequence[str] = (),
    folding: Sequence[str] = (),
) -> Group:
    """Aligned columns under their titles, with each row's detail indented below it. Nothing is cut.

    `folding` names columns of long text, other than the first. On a narrow page they are folded, to a width of at least
    `LEAST`. If that is still too wide, they move to the row's detail. `right` names the columns that are aligned to the
    right.
    """
    least = [LEAST if at and title in folding else 0 for at, title in enumerate(titles)]
    natural = _widths(titles, rows)
    smallest = [min(wide, low) if low else wide for wide, low in zip(natural, least, strict=True)]
    if sum(smallest) + _gaps(natural) > width:
        kept = [at for at, low in enumerate(least) if not low]
        moved = [at for at, low in enumerate(least) if low]
        titles, rows = [titles[at] for at in kept], [_with_detail(row, kept, moved) for row in rows]
        natural = _widths(titles, rows)
        smallest = [0] * len(kept)
    widths = _shared(natural, smallest, _longest_parts(titles, rows), width - _gaps(natural))
    head = [Text(title, style="bold") for title in titles]
    parts = [*_lines_of(head, titles, widths, right), Text("─" * (sum(widths) + _gaps(widths)), style="dim")]
    for row in rows:
        parts += _lines_of(row.cells, titles, widths, right)
        if row.detail:
            style = row.detail.style
            parts += [Text(f"    {line}", style=style) for line in folded(row.detail.plain, width - 4).split("\n")]
    return Group(*parts)


def _widths(titles: Sequence[str], rows: Sequence[Detailed]) -> list[int]:
    return [max(len(title), *(len(row.cells[at]) for row in rows), 0) for at, title in enumerate(titles)]


def _gaps(widths: Sequence[int]) -> int:
    return GAP * max(len(widths) - 1, 0)


def _with_detail(row: Detailed, kept: Sequence[int], moved: Sequence[int]) -> Detailed:
    said = [row.cells[at].plain for at in moved if row.cells[at]]
    parts = [*said, *([row.detail.plain] if row.detail else [])]
    return Detailed([row.cells[at] for at in kept], Text(" · ".join(parts), style=row.detail.style))


def _longest_parts(titles: Sequence[str], rows: Sequence[Detailed]) -> list[int]:
    """The longest unbreakable part in each column."""
    texts = [[title, *(row.cells[at].plain for row in rows)] for at, title in enumerate(titles)]
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


def _lines_of(
    cells: Sequence[Text], titles: Sequence[str], widths: Sequence[int], right: Sequence[str]
) -> Iterator[Text]:
    columns = [
        folded(cell.plain, wide).split("\n") if len(cell) > wide else [cell.plain]
        for cell, wide in zip(cells, widths, strict=True)
    ]
    for at in range(max(map(len, columns))):
        line = Text(no_wrap=True)
        for cell, column, title, wide in zip(cells, columns, titles, widths, strict=True):
            said = column[at] if at < len(column) else ""
            line.append(said.rjust(wide) if title in right else said.ljust(wide), cell.style).append(" " * GAP)
        line.rstrip()
        yield line
