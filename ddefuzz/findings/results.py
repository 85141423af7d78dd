"""The results of findings and cases under versions of torch, as `ddefuzz matrix` saves them in the database."""

from __future__ import annotations

import msgspec
from sqlalchemy import distinct, func, select
from sqlalchemy.orm import Session

from ddefuzz.findings.model import Number
from ddefuzz.findings.rows import readable, to_record
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
    shows: Number
    runs: Number
    reason: str
    when: str


def results(session: Session, *cases: str) -> tuple[Result, ...]:
    """The results of these findings and cases, or of all. For `Database.read`."""
    chosen = select(*ResultRow.__table__.columns).order_by(ResultRow.case, ResultRow.torch)
    rows = session.execute(chosen.where(ResultRow.case.in_(cases)) if cases else chosen)
    return tuple(readable("result", rows, lambda row: to_record(row, Result)))


def statuses(session: Session) -> dict[str, dict[str, int]]:
    """The number of results with each status, by version of torch. For `Database.read`."""
    rows = session.execute(
        select(ResultRow.torch, ResultRow.status, func.count())
        .group_by(ResultRow.torch, ResultRow.status)
        .order_by(ResultRow.torch, ResultRow.status)
    )
    found: dict[str, dict[str, int]] = {}
    counts = readable("results of torch", rows, lambda row: msgspec.convert(tuple(row), tuple[str, str, int]))
    for torch, status, number in counts:
        found.setdefault(torch, {})[status] = number
    return found


def result_page(session: Session, *, differing: bool, first: int, most: int) -> tuple[int, tuple[Result, ...]]:
    """The number of findings and cases with results, and the results of `most` of them from the `first` (from 0) on.

    With `differing`, only those whose status is not the same under all versions that judge them. For `Database.read`.
    """
    cases = select(ResultRow.case).group_by(ResultRow.case)
    if differing:
        cases = cases.where(ResultRow.status != "not judged").having(func.count(distinct(ResultRow.status)) > 1)
    names = session.scalars(cases.order_by(ResultRow.case).offset(first).limit(most)).all()
    total = session.scalar(select(func.count()).select_from(cases.subquery())) or 0
    return total, results(session, *names) if names else ()
