"""Tables for pages that are not made of blocks yet (`ddefuzz.show.blocks`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.text import Text

from ddefuzz.show.blocks import Block, Column, Facts, counted
from ddefuzz.show.terminal import Line as Detailed
from ddefuzz.show.terminal import folded, laid_out, terminal

__all__ = ["Detailed", "counted", "facts_grid", "folded", "table"]


def table(
    titles: Sequence[str],
    rows: Sequence[Detailed],
    width: int,
    *,
    right: Sequence[str] = (),
    folding: Sequence[str] = (),
) -> Group:
    """A table of `ddefuzz.show.terminal`."""
    columns = [Column(title, right=title in right, folding=title in folding) for title in titles]
    return Group(*laid_out(columns, rows, width))


def facts_grid(facts: Iterable[tuple[str, str]], width: int) -> Text:
    """Names and values."""
    grid: tuple[Block, ...] = (Facts(tuple(facts)),)
    return Text(terminal(grid, width).rstrip("\n"))
