"""The results of findings and cases by version of torch, and what follows from them. Nothing is run here."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from ddefuzz.classify.signature import Signature
from ddefuzz.findings.lifecycle import recurs, version_key
from ddefuzz.findings.model import Finding, Result

Status: TypeAlias = Literal["fails", "passes", "sometimes", "moved", "not judged"]
"""
fails       the failure shows in every run
passes      it shows in no run, and nothing else fails
sometimes   it shows in some runs
moved       another failure shows instead: another site, kind or condition
not judged  this torch has no such op or stage, or the program does not run in eager mode
"""

Change: TypeAlias = Literal["fails", "fixed", "regressed", "moved", "sometimes", "new", "never"]
"""
fails      fails in the latest version in which it is judged, as in all before
new        the same, but older versions could not make the program
fixed      failed in an earlier version and passes in the latest
regressed  fails in the latest version and passed in an earlier one
moved      another failure shows in the latest version
sometimes  shows in some runs of the latest version only
never      fails in no version
"""


class Interpreter(msgspec.Struct, frozen=True):
    """A Python interpreter with a torch. `full` says whether it has ddefuzz; else only scripts can be run."""

    name: str
    python: str
    torch: str
    full: bool = False


class Cell(msgspec.Struct, frozen=True):
    """The result under one interpreter: the failure showed in `shows` of `runs` runs, each in a new process."""

    status: Status
    shows: int = 0
    runs: int = 1
    reason: str = ""


class Line(msgspec.Struct, frozen=True):
    """One finding or case under all interpreters, by their names in order of their torch."""

    id: str
    title: str
    cells: dict[str, Cell]
    finding: str = ""

    def where(self, *statuses: Status) -> tuple[str, ...]:
        """The interpreters with one of these statuses."""
        return tuple(name for name, cell in self.cells.items() if cell.status in statuses)

    @property
    def fixed_in(self) -> tuple[str, ...]:
        """The interpreters that pass after one in which it fails."""
        return self._after(("fails", "sometimes", "moved"), ("passes",))

    @property
    def regressed_in(self) -> tuple[str, ...]:
        """The interpreters in which it fails after one that passes."""
        return self._after(("passes",), ("fails", "sometimes"))

    @property
    def could_not_be_made_in(self) -> tuple[str, ...]:
        """The interpreters before the first one in which the program could be judged."""
        names = list(self.cells)
        first = next((at for at, name in enumerate(names) if self.cells[name].status != "not judged"), len(names))
        return tuple(names[:first])

    def _after(self, before: tuple[Status, ...], after: tuple[Status, ...]) -> tuple[str, ...]:
        names = list(self.cells)
        first = next((at for at, name in enumerate(names) if self.cells[name].status in before), len(names))
        return tuple(name for name in names[first + 1 :] if self.cells[name].status in after)

    @property
    def change(self) -> Change:
        """What has become of it."""
        judged = [name for name, cell in self.cells.items() if cell.status != "not judged"]
        if not judged:
            return "never"
        latest = self.cells[judged[-1]].status
        if latest == "passes":
            return "fixed" if self.fixed_in else "never"
        if latest in ("moved", "sometimes"):
            return "moved" if latest == "moved" else "sometimes"
        if judged[-1] in self.regressed_in:
            return "regressed"
        return "new" if self.could_not_be_made_in else "fails"


def cell_of(statuses: Sequence[str], reasons: Sequence[str] = ()) -> Cell:
    """The cell of the runs of one finding: `shows`, `passes`, `fails otherwise` or `not judged` each."""
    counts = Counter(statuses)
    reason = next(filter(None, reasons), "")
    shows, runs = counts["shows"], len(statuses)
    if shows == runs:
        return Cell("fails", shows, runs)
    if shows:
        return Cell("sometimes", shows, runs, reason)
    if counts["fails otherwise"]:
        return Cell("moved", 0, runs, reason)
    return Cell("passes" if counts["passes"] else "not judged", 0, runs, reason)


def in_order(interpreters: Iterable[Interpreter]) -> tuple[Interpreter, ...]:
    """By version of torch, oldest first."""
    return tuple(sorted(interpreters, key=lambda one: (version_key(one.torch), one.name)))


def changes(lines: Iterable[Line]) -> dict[str, int]:
    """The number of lines with each change."""
    return dict(Counter(line.change for line in lines).most_common())


def lines_of(cells: Mapping[str, Mapping[str, Cell]], titles: Mapping[str, str]) -> list[Line]:
    """A line for each finding or case, from the cells by interpreter. What one has not run is not judged there.

    `titles` are those of the findings.
    """
    missing = Cell("not judged", 0, 0)
    return [
        Line(
            name,
            titles.get(name, ""),
            {interpreter: under.get(name, missing) for interpreter, under in cells.items()},
            name if name in titles else "",
        )
        for name in sorted({name for under in cells.values() for name in under})
    ]


def cell_of_result(result: Result) -> Cell:
    """The cell that a result was made from."""
    status: Status = msgspec.convert(result.status, Status)
    return Cell(status, result.shows, result.runs, result.reason)


def status_by_version(finding: Finding, by_version: Iterable[Result]) -> str:
    """The status of the finding's program under each version of torch, oldest first: `2.13.0 fails, 2.15.0 passes`."""
    same = [one for one in by_version if one.program == program_key(finding)]
    return ", ".join(
        f"{one.torch} {one.status}" for one in sorted(same, key=lambda one: (version_key(one.torch), one.torch))
    )


GONE_AFTER: Final = 2
"""In how many versions in a row a finding has to pass until it counts as fixed."""


def fixed_since(finding: Finding, by_version: Iterable[Result]) -> tuple[str, ...]:
    """The latest versions of torch in a row in which the finding's program passes, after one in which it fails. Empty
    if there are fewer than `GONE_AFTER`.
    """
    same = [one for one in by_version if one.program == program_key(finding) and one.status != "not judged"]
    same.sort(key=lambda one: version_key(one.torch))
    failing = [at for at, one in enumerate(same) if one.status != "passes"]
    if not any(one.status == "fails" for one in same):
        return ()
    releases = dict.fromkeys(one.torch.partition("+")[0] for one in same[failing[-1] + 1 :])
    return tuple(releases) if len(releases) >= GONE_AFTER else ()


def fails_again(finding: Finding, by_version: Iterable[Result]) -> tuple[str, ...]:
    """The versions of torch in which the program of a finding fails, although it is fixed there."""
    same = [one for one in by_version if one.program == program_key(finding) and one.status == "fails"]
    return tuple(one.torch for one in same if recurs(finding.state, finding.fixed_in, one.torch))


def program_key(finding: Finding) -> str:
    """What identifies the program of a finding and what it has to show."""
    return key_of(finding.signature, finding.stage, finding.minimal or finding.original)


def key_of(signature: Signature, stage: str | None, program: str | None) -> str:
    """The `program_key` of a finding with these."""
    parts = (signature.key, stage, program)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
