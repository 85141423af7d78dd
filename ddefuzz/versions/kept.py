"""The results of a matrix that a database keeps, so that a finding with a result is not run again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from ddefuzz.files import files_below, read_bytes
from ddefuzz.findings.database import Database
from ddefuzz.findings.listing import results
from ddefuzz.findings.model import Finding, Result, stamp
from ddefuzz.versions.model import Cell, Status, release


class Kept:
    """The results under one version of torch."""

    def __init__(self, database: Database, torch: str) -> None:
        self._database = database
        self._torch = torch

    def cells(self, findings: Iterable[Finding]) -> dict[str, Cell]:
        """The kept cells of those findings whose program is still the same."""
        kept = {one.case: one for one in self._database.read(results) if one.torch == self._torch}
        return {
            finding.id: cell_of_result(kept[finding.id])
            for finding in findings
            if finding.id in kept and kept[finding.id].program == program_key(finding)
        }

    def save(self, finding: Finding, cell: Cell, when: datetime) -> None:
        """Keep the cell of a finding."""
        self._save({finding.id: cell}, program_key(finding), when)

    def cells_of_cases(self, key: str) -> dict[str, Cell]:
        """The kept cells of all cases of the files with this key (`files_key`). Empty if they have not run."""
        kept = self._database.read(results)
        return {one.case: cell_of_result(one) for one in kept if (one.torch, one.program) == (self._torch, key)}

    def save_cases(self, cells: Mapping[str, Cell], key: str, when: datetime) -> None:
        """Keep the cells of all cases of the files with this key."""
        self._save(cells, key, when)

    def _save(self, cells: Mapping[str, Cell], program: str, when: datetime) -> None:
        self._database.save_results(
            Result(name, self._torch, program, when=stamp(when), **asdict(cell)) for name, cell in cells.items()
        )


def cell_of_result(result: Result) -> Cell:
    """The cell that a result was made from."""
    status: Status = msgspec.convert(result.status, Status)
    return Cell(status, result.shows, result.runs, result.reason)


def statuses(finding: Finding, by_version: Iterable[Result]) -> str:
    """The status of the finding's program under each version of torch, oldest first: `2.13.0 fails, 2.15.0 passes`."""
    same = [one for one in by_version if one.program == program_key(finding)]
    return ", ".join(
        f"{one.torch} {one.status}" for one in sorted(same, key=lambda one: (release(one.torch), one.torch))
    )


def program_key(finding: Finding) -> str:
    """What identifies the program of a finding and what it has to show."""
    parts = (finding.signature.key, finding.stage, finding.minimal or finding.original)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def files_key(paths: Iterable[Path], *, trust: bool) -> str:
    """What identifies the cases below the paths: the content of all files there that may have one or list modules."""
    digest = hashlib.sha256(repr(trust).encode())
    for path in paths:
        for one in (one for one in files_below(path, "*") if one.suffix in (".py", ".toml") or one == path):
            digest.update(f"\0{one}\0".encode() + read_bytes(one))
    return digest.hexdigest()[:16]
