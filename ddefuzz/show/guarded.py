"""Guard sites for people, and torch's source with its sites: lines with a state and notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from ddefuzz.coverage.guard_sites import GuardSite
from ddefuzz.errors import InputError
from ddefuzz.show.html import highlighted

STATES = {"fell": "● fell back", "raised": "✕ raised an error", "never": "○ not reached"}
"""The CSS class of a line, and its meaning. A line with several sites has the last of these that applies."""

_BLOCK = re.compile(r"@|def |class |async def ")
"""The beginning of a block: such a line without indent, after an empty line."""


class Note(NamedTuple):
    """The text below the line of a site. `example` is the id of its program on the page, or empty."""

    site: GuardSite
    state: str
    facts: tuple[str, ...]
    example: str


class Line(NamedTuple):
    """A line of source: number, markup, class (empty without a site), tooltip, notes on the sites that end in it."""

    number: int
    code: Markup
    state: str = ""
    tip: str = ""
    notes: tuple[Note, ...] = ()


class Block(NamedTuple):
    """Adjacent lines. A block without sites has only `text` and the line numbers, and is folded."""

    first: int
    last: int
    lines: tuple[Line, ...] = ()
    text: str = ""


def place(site: GuardSite) -> str:
    """The place of a site: `torch/_refs/__init__.py:448`."""
    return f"{site.file}:{site.line}"


def call_text(site: GuardSite) -> str:
    """The source of the call, or the function's name if the source is unknown."""
    return site.text or site.call


def fell_back(site: GuardSite) -> str:
    """`False 12, True 3`; `not reached` if no run came here."""
    return _numbers(site.fallbacks.items()) if site.reached else "not reached"


def old(site: GuardSite) -> str:
    """`same 12, other 3`."""
    return _numbers(site.old.items())


def _numbers(items: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {number}" for name, number in items)


def state_of(site: GuardSite) -> str:
    """The CSS class of the line of a site."""
    if site.raised:
        return "raised"
    return "fell" if site.reached else "never"


def note_of(site: GuardSite) -> Note:
    facts = [
        STATES[state_of(site)],
        fell_back(site) if site.fallbacks else "",
        f"size-oblivious: {old(site)}" if site.old else "",
        f"raised in {site.raised} of {site.cases} cases" if site.raised else "",
        f"blamed: {', '.join(site.blamed)}" if site.blamed else "",
        f"{site.on_line} calls on this line share these numbers" if site.on_line > 1 else "",
        site.reason,
    ]
    return Note(site, state_of(site), tuple(fact for fact in facts if fact), example_id(site) if site.example else "")


def example_id(site: GuardSite) -> str:
    return re.sub(r"[^\w.-]+", "-", f"example-{site.file}-{site.line}-{site.function}-{site.call}")


def blocks_of(path: Path, sites: Sequence[GuardSite]) -> Iterator[Block]:
    """The file in blocks. Only blocks with sites are highlighted, because highlighting takes most of the time."""
    try:
        # splitlines would also break at form feeds, which Python does not count as line ends.
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}, expected Python source of torch") from error
    starts = [at for at, line in enumerate(lines) if at and _BLOCK.match(line) and not lines[at - 1].strip()]
    spans = [
        (first, end, any(first < site.line <= end for site in sites))
        for first, end in pairwise([0, *starts, len(lines)])
    ]
    for has_sites, group in groupby(spans, lambda span: span[2]):
        together = list(group)
        first, end = together[0][0], together[-1][1]
        if has_sites:
            codes = zip(range(first + 1, end + 1), highlighted(lines[first:end]), strict=True)
            yield Block(first + 1, end, lines=tuple(_line(at, code, sites) for at, code in codes))
        else:
            yield Block(first + 1, end, text="\n".join(f"{at:>6}  {lines[at - 1]}" for at in range(first + 1, end + 1)))


def _line(number: int, code: Markup, sites: Sequence[GuardSite]) -> Line:
    notes = [note_of(site) for site in sites if site.line <= number <= site.last_line]
    states = [note.state for note in notes]
    state = next((name for name in reversed(STATES) if name in states), "")
    tip = "\n".join(f"{call_text(note.site)}: {'; '.join(note.facts)}" for note in notes)
    ending = {note.facts: note for note in notes if note.site.last_line == number}
    return Line(number, code, state, tip, tuple(ending.values()))
