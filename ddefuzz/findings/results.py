"""What findings and cases did under versions of torch, as `ddefuzz matrix` keeps it in the database."""

from __future__ import annotations

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from ddefuzz.findings.schema import ResultRow


class Result(msgspec.Struct, frozen=True):
    """One finding or case under one torch: its failure showed in `shows` of `runs` runs.

    `program` identifies what was run: the result does not describe another program. `status` is one of
    `versions.model.Status`, and `reason` says more.
    """

    case: str
    torch: str
    program: str
    status: str
    shows: int
    runs: int
    reason: str
    when: str


def results(session: Session, *cases: str) -> tuple[Result, ...]:
    """The results of these findings and cases, or of all. For `Database.read`."""
    chosen = select(ResultRow).order_by(ResultRow.case, ResultRow.torch)
    rows = session.scalars(chosen.where(ResultRow.case.in_(cases)) if cases else chosen)
    return tuple(Result(**{name: getattr(row, name) for name in Result.__struct_fields__}) for row in rows)
