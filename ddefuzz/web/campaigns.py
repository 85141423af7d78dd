"""Campaigns: their state, rate, what is left of the budget, and how their counts grew."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

import msgspec
from pydantic import Field

from ddefuzz.campaign.plan import parse_budget
from ddefuzz.errors import InputError
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Campaign, Progress
from ddefuzz.web.plot import thinned
from ddefuzz.web.rows import Asked, Unreadable

ON_A_PAGE: Final = 20
"""How many campaigns are on a page. Each has a plot."""

MOST_POINTS: Final = 200
"""About how many counts of a campaign are read."""

SILENT: Final = timedelta(minutes=2)
"""A campaign that has saved nothing for longer does not run any more. A case may take a minute."""

RATE_SECONDS: Final = 60.0
"""The time over which the rate is measured."""

CampaignState: TypeAlias = Literal["running", "finished", "interrupted"]


class CampaignsQuery(Asked):
    """Which page of campaigns."""

    page: int = Field(default=1, ge=1, le=1_000_000)


class CampaignLine(msgspec.Struct, frozen=True, kw_only=True):
    """One campaign. `per_minute` counts cases. `left` is what is left of the budget, empty if it is not known.

    `growth` has the counts over time, empty for campaigns before schema 0009.
    """

    id: int
    state: CampaignState
    profile: str
    seed: int
    shard: str
    budget: str
    generator: str
    started: str
    updated: str
    cases: int
    per_minute: float | None
    left: str
    growth: tuple[Progress, ...]


class CampaignsPage(msgspec.Struct, frozen=True, kw_only=True):
    """The campaigns of one page, the latest first. `total` is the number of all."""

    campaigns: tuple[CampaignLine, ...]
    total: int
    page: int
    pages: int
    unreadable: Unreadable = Unreadable()
    schema: str = "ddefuzz.page.campaigns/1"


def campaigns_page(database: Database, asked: CampaignsQuery, now: datetime) -> CampaignsPage:
    """The page."""
    total = database.read(listing.campaign_number)
    return CampaignsPage(
        campaigns=campaign_lines(database, now, ON_A_PAGE, (asked.page - 1) * ON_A_PAGE),
        total=total,
        page=asked.page,
        pages=max(1, -(-total // ON_A_PAGE)),
    )


def campaign_lines(database: Database, now: datetime, most: int, first: int = 0) -> tuple[CampaignLine, ...]:
    """The latest campaigns, from the `first` (from 0) on."""
    found = database.read(lambda session: listing.campaigns(session, most, first))
    progress = database.read(lambda session: listing.progress(session, [one.id for one in found], MOST_POINTS))
    return tuple(_line(one, progress[one.id], now) for one in found)


def _line(campaign: Campaign, points: Sequence[Progress], now: datetime) -> CampaignLine:
    state: CampaignState = "finished" if campaign.finished else "running"
    if state == "running" and now - _time(campaign.updated) > SILENT:
        state = "interrupted"
    return CampaignLine(
        id=campaign.id,
        state=state,
        profile=campaign.profile,
        seed=campaign.seed,
        shard=str(campaign.options.get("shard") or ""),
        budget=_budget(campaign),
        generator=campaign.generator,
        started=campaign.started,
        updated=campaign.updated,
        cases=campaign.next_index + len(campaign.ahead),
        per_minute=_rate(campaign, points),
        left=_left(campaign, points[-1] if points else None) if state == "running" else "",
        growth=thinned(points),
    )


def _rate(campaign: Campaign, points: Sequence[Progress]) -> float | None:
    """Cases a minute over the last minute of the campaign, else over all of its time."""
    if points:
        last = points[-1]
        before = [one for one in points if one.seconds <= last.seconds - RATE_SECONDS and one.cases <= last.cases]
        cases, seconds = (before[-1].cases, before[-1].seconds) if before else (0, 0.0)
        cases, seconds = last.cases - cases, last.seconds - seconds
    else:
        cases = campaign.next_index
        seconds = (_time(campaign.updated) - _time(campaign.started)).total_seconds()
    return round(60 * cases / seconds, 1) if seconds > 0 else None


def _budget(campaign: Campaign) -> str:
    """`4.0 h`, `60 min of CPU time`, or `1,000 cases`."""
    said = str(campaign.options.get("budget") or "")
    try:
        budget = parse_budget(said)
    except InputError:
        return said
    if budget.cases is not None:
        return f"{budget.cases:,} cases"
    if budget.cpu_seconds is not None:
        return f"{_minutes(budget.cpu_seconds)} of CPU time"
    return _minutes(budget.seconds or 0.0)


def _left(campaign: Campaign, last: Progress | None) -> str:
    try:
        budget = parse_budget(str(campaign.options.get("budget")))
    except InputError:
        return ""
    if budget.cases is not None:
        return f"{max(budget.cases - campaign.next_index, 0):,} cases"
    if budget.cpu_seconds is not None:
        return "" if last is None else f"{_minutes(budget.cpu_seconds - last.cpu_seconds)} of CPU time"
    elapsed = last.seconds if last else (_time(campaign.updated) - _time(campaign.started)).total_seconds()
    return _minutes((budget.seconds or 0.0) - elapsed)


def _minutes(seconds: float) -> str:
    whole = max(round(seconds), 0)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
