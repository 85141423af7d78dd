"""The guard sites that a process reached, as the hook for outside commands writes them, and growth curves of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from ddefuzz.coverage.ledger import Ledger, Reached, SiteCount
from ddefuzz.errors import InputError

ENVIRONMENT = "DDEFUZZ_SITES"
"""Names the file of lines for a process that imports `ddefuzz.coverage.outside`."""


class ProcessLine(msgspec.Struct, frozen=True, tag="process", tag_field="line_of"):
    """A process that began or ended; `cpu_seconds` are its own so far, `time` is that of the day in seconds."""

    pid: int
    cpu_seconds: float
    time: float
    torch: str
    schema: str = "ddefuzz.outside/1"


class SiteLine(msgspec.Struct, frozen=True, tag="site", tag_field="line_of"):
    """A guard site when a process first reached it."""

    pid: int
    cpu_seconds: float
    time: float
    reached: Reached


Line: TypeAlias = ProcessLine | SiteLine


class Step(msgspec.Struct, frozen=True):
    """How many sites were known after so many CPU seconds."""

    cpu_seconds: float
    sites: SiteCount


def read_lines(path: Path) -> list[Line]:
    """All lines of a file; the last may have been cut short by a kill. Raises InputError where it is no such file."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}, expected what the hook wrote") from error
    lines = text.split(b"\n")
    found: list[Line] = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            found.append(msgspec.json.decode(line, type=Line))
        except msgspec.MsgspecError as error:
            raise InputError(f"{path}:{number}: found {line[:60]!r}, expected a site line: {error}") from error
    return found


def growth(lines: Iterable[Line]) -> Iterator[Step]:
    """The curve over the CPU seconds of all processes together, one step for each new site and one for the end.

    CPU seconds before the hook was installed are left out: importing torch is not search.
    """
    spent: dict[int, float] = {}
    before: dict[int, float] = {}
    ledger = Ledger()
    for line in sorted(lines, key=lambda one: one.time):
        if isinstance(line, ProcessLine):
            before.setdefault(line.pid, line.cpu_seconds)
        spent[line.pid] = max(spent.get(line.pid, 0.0), line.cpu_seconds - before.get(line.pid, 0.0))
        novel = ledger.add([("outside", [line.reached])], "") if isinstance(line, SiteLine) else None
        if novel is None or novel.fallback_sites or novel.dde_sites:
            yield Step(round(sum(spent.values()), 3), ledger.count())
