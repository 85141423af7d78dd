"""Queries over campaigns and their counts. Each function is for `Database.read`."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from ddefuzz.findings.model import Campaign, Progress
from ddefuzz.findings.rows import readable, to_record
from ddefuzz.findings.schema import CampaignRow, ProgressRow

LATEST = 8
"""The number of a campaign's latest counts that are always read. Campaigns save one every 10 seconds, and their rate is
that of the last minute.
"""


def campaigns(session: Session, most: int, first: int = 0) -> tuple[Campaign, ...]:
    """`most` of the campaigns from the `first` (from 0) on, the latest first."""
    rows = select(*CampaignRow.__table__.columns).order_by(CampaignRow.id.desc()).offset(first).limit(most)
    return tuple(readable("campaign", session.execute(rows), lambda row: to_record(row, Campaign)))


def campaign_number(session: Session) -> int:
    """How many campaigns there are."""
    return session.scalar(select(func.count(CampaignRow.id))) or 0


def progress(session: Session, campaigns_: Iterable[int], most: int) -> dict[int, tuple[Progress, ...]]:
    """The saved counts of campaigns, in order of time: about `most` of each, the first and the `LATEST` among them."""
    wanted = list(campaigns_)
    campaign = ProgressRow.campaign_id
    numbered = (
        select(
            ProgressRow,
            (func.row_number().over(partition_by=campaign, order_by=ProgressRow.when) - 1).label("at"),
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
