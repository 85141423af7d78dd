"""Queries about what campaigns, sweeps and `ddefuzz matrix` have done. Each function is for `Database.read`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from sqlalchemy import distinct, func, or_, select
from sqlalchemy.orm import Session

from ddefuzz.findings.model import Campaign, Progress, Result
from ddefuzz.findings.schema import CAMPAIGNS, PROGRESS, RESULTS, SITES, SWEPT, readable, to_record

LATEST = 8
"""The number of a campaign's latest counts that are always read. Campaigns save one every 10 seconds, and their rate is
that of the last minute.
"""


def campaigns(session: Session, most: int, first: int = 0) -> tuple[Campaign, ...]:
    """`most` of the campaigns from the `first` (from 0) on, the latest first."""
    rows = select(CAMPAIGNS).order_by(CAMPAIGNS.c.id.desc()).offset(first).limit(most)
    return tuple(readable("campaign", session.execute(rows), lambda row: to_record(row, Campaign)))


def campaign_number(session: Session) -> int:
    """How many campaigns there are."""
    return session.scalar(select(func.count(CAMPAIGNS.c.id))) or 0


def progress(session: Session, campaigns_: Iterable[int], most: int) -> dict[int, tuple[Progress, ...]]:
    """The saved counts of campaigns, in order of time: about `most` of each, the first and the `LATEST` among them."""
    wanted = list(campaigns_)
    campaign = PROGRESS.c.campaign_id
    numbered = (
        select(
            PROGRESS,
            (func.row_number().over(partition_by=campaign, order_by=PROGRESS.c.when) - 1).label("at"),
            func.count().over(partition_by=campaign).label("many"),
        )
        .where(campaign.in_(wanted))
        .subquery()
    )
    at, many = numbered.c.at, numbered.c.many
    rows = session.execute(
        select(numbered)
        .where(or_(at % (many // most + 1) == 0, at >= many - LATEST))
        .order_by(numbered.c.campaign_id, numbered.c.when)
    )
    found: dict[int, list[Progress]] = {one: [] for one in wanted}
    points = readable("counts of campaign", rows, lambda row: (row.campaign_id, to_record(row, Progress)))
    for campaign_id, point in points:
        found[campaign_id].append(point)
    return {one: tuple(points) for one, points in found.items()}


def results(session: Session, *cases: str) -> tuple[Result, ...]:
    """The results of these findings and cases, or of all. For `Database.read`."""
    chosen = select(RESULTS).order_by(RESULTS.c.case, RESULTS.c.torch)
    rows = session.execute(chosen.where(RESULTS.c.case.in_(cases)) if cases else chosen)
    return tuple(readable("result", rows, lambda row: to_record(row, Result)))


def statuses(session: Session) -> dict[str, dict[str, int]]:
    """The number of results with each status, by version of torch. For `Database.read`."""
    rows = session.execute(
        select(RESULTS.c.torch, RESULTS.c.status, func.count())
        .group_by(RESULTS.c.torch, RESULTS.c.status)
        .order_by(RESULTS.c.torch, RESULTS.c.status)
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
    cases = select(RESULTS.c.case).group_by(RESULTS.c.case)
    if differing:
        cases = cases.where(RESULTS.c.status != "not judged").having(func.count(distinct(RESULTS.c.status)) > 1)
    names = session.scalars(cases.order_by(RESULTS.c.case).offset(first).limit(most)).all()
    total = session.scalar(select(func.count()).select_from(cases.subquery())) or 0
    return total, results(session, *names) if names else ()


def site_counts(session: Session) -> dict[str, int]:
    """The number of places where guards were reached undecided, by version of torch."""
    place = select(SITES.c.torch, SITES.c.language, SITES.c.file, SITES.c.line).distinct().subquery()
    rows = session.execute(select(place.c.torch, func.count()).group_by(place.c.torch).order_by(place.c.torch))
    return {str(torch): many for torch, many in rows}


def sweeps(session: Session) -> dict[str, int]:
    """The keys of sweeps, and the number of ops that each has."""
    rows = session.execute(select(SWEPT.c.key, func.count()).group_by(SWEPT.c.key).order_by(SWEPT.c.key))
    return {str(key): many for key, many in rows}
