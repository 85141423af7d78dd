"""The results of a matrix that a database keeps: what was run is not run again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from functools import partial

import msgspec
from msgspec.structs import asdict

from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, stamp
from ddefuzz.findings.results import Result, results
from ddefuzz.versions.model import Cell, Status


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
        fields = partial(Result, finding.id, self._torch, program_key(finding), when=stamp(when))
        self._database.save_results([fields(**asdict(cell))])


def cell_of_result(result: Result) -> Cell:
    """The cell that a result was made from."""
    status: Status = msgspec.convert(result.status, Status)
    return Cell(status, result.shows, result.runs, result.reason)


def program_key(finding: Finding) -> str:
    """What identifies the program of a finding and what it has to show."""
    parts = (finding.signature.key, finding.stage, finding.minimal or finding.original)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
