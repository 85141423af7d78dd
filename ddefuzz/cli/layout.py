"""Laying out text where rich would cut names letter by letter: they are broken at their joints, rows have details."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Group
from rich.text import Text

NARROW = 120
"""On pages narrower than this a row's longest cell has a line of its own, its detail."""

_JOINT = re.compile(r"(?<=[/:._-])(?=[^/:._-])")


class Detailed(NamedTuple):
    """A row of cells, and what is said below it, if anything."""

    cells: Sequence[Text]
    detail: Text = Text()


def folded(text: str, width: int) -> str:
    """The text in lines of at most `width`, broken at spaces; a word that is too long after a joint of a name."""
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


def counted(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def details(titles: Sequence[str], rows: Sequence[Detailed], width: int, right: Sequence[str] = ()) -> Group:
    """Rows in aligned columns under their titles, each detail indented below its row and folded."""
    heads = [Text(title, style="bold") for title in titles]
    widths = [max(len(row.cells[at]) for row in (Detailed(heads), *rows)) for at in range(len(titles))]
    parts = []
    for row in (Detailed(heads), *rows):
        line = Text(" ", no_wrap=True, overflow="ellipsis")
        for cell, title, wide in zip(row.cells, titles, widths, strict=True):
            space = " " * (wide - len(cell))
            line.append_text(Text(space) + cell if title in right else cell + Text(space)).append("  ")
        line.rstrip()
        parts.append(line)
        if row.detail:
            parts += [
                Text(f"    {part}", style=row.detail.style) for part in folded(row.detail.plain, width - 4).split("\n")
            ]
    return Group(*parts)
