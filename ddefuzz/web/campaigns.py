"""Campaigns: their state, rate, what is left of the budget, and how they grew; two of them compared."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Literal, TypeAlias

import msgspec
from pydantic import Field

from ddefuzz.campaign.plan import parse_budget
from ddefuzz.errors import InputError
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import SiteKey
from ddefuzz.findings.model import Campaign, FindingSummary, Progress
from ddefuzz.web.dashboard import PageQuery, Unreadable

ON_A_PAGE: Final = 20
"""How many campaigns are on a page. Each has a plot."""

MOST_READ: Final = 200
"""About how many counts of a campaign are read."""

SILENT: Final = timedelta(minutes=2)
"""A campaign that has saved nothing for longer does not run any more. A case may take a minute."""

RATE_SECONDS: Final = 60.0
"""The time over which the rate is measured."""

CampaignState: TypeAlias = Literal["running", "finished", "interrupted"]


class CampaignsQuery(PageQuery):
    """Which page of campaigns."""

    page: int = Field(default=1, ge=1, le=1_000_000)


class CampaignLine(msgspec.Struct, frozen=True, kw_only=True):
    """One campaign. `per_minute` counts cases. `left` is what is left of the budget, empty if it is not known.
    `findings` counts those of the database that it has seen.

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
    findings: int
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
    schema: str = "ddefuzz.page.campaigns/2"


def campaigns_page(database: Database, asked: CampaignsQuery, now: datetime | None = None) -> CampaignsPage:
    """The page."""
    total = database.read(listing.campaign_number)
    return CampaignsPage(
        campaigns=campaign_lines(database, now or datetime.now(UTC), ON_A_PAGE, (asked.page - 1) * ON_A_PAGE),
        total=total,
        page=asked.page,
        pages=max(1, -(-total // ON_A_PAGE)),
    )


def campaign_lines(database: Database, now: datetime, most: int, first: int = 0) -> tuple[CampaignLine, ...]:
    """The latest campaigns, from the `first` (from 0) on."""
    return _lines(database, database.read(lambda session: listing.campaigns(session, most, first)), now)


def _lines(database: Database, campaigns: Sequence[Campaign], now: datetime) -> tuple[CampaignLine, ...]:
    progress = database.read(lambda session: listing.progress(session, [one.id for one in campaigns], MOST_READ))
    met = database.read(lambda session: listing.met(session, [one.id for one in campaigns]))
    return tuple(_line(one, progress[one.id], met.get(one.id, 0), now) for one in campaigns)


def _line(campaign: Campaign, points: Sequence[Progress], findings: int, now: datetime) -> CampaignLine:
    state: CampaignState = "finished" if campaign.finished else "running"
    if state == "running" and now - _time(campaign.updated) > SILENT:
        state = "interrupted"
    budget, left = _budget(campaign, points[-1] if points else None)
    same = ("id", "profile", "seed", "generator", "started", "updated")
    return CampaignLine(
        **{name: getattr(campaign, name) for name in same},
        state=state,
        shard=str(campaign.options.get("shard") or ""),
        budget=budget,
        cases=campaign.next_index + len(campaign.ahead),
        findings=findings,
        per_minute=_rate(campaign, points),
        left=left if state == "running" else "",
        growth=tuple(points),
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


def _budget(campaign: Campaign, last: Progress | None) -> tuple[str, str]:
    """The budget, such as `4.0 h`, `60 min of CPU time` or `1,000 cases`, and what is left of it if that is known."""
    text = str(campaign.options.get("budget") or "")
    try:
        budget = parse_budget(text)
    except InputError:
        return text, ""
    if budget.cases is not None:
        return f"{budget.cases:,} cases", f"{max(budget.cases - campaign.next_index, 0):,} cases"
    if budget.cpu_seconds is not None:
        left = f"{_minutes(budget.cpu_seconds - last.cpu_seconds)} of CPU time" if last else ""
        return f"{_minutes(budget.cpu_seconds)} of CPU time", left
    whole = budget.seconds or 0.0
    elapsed = last.seconds if last else (_time(campaign.updated) - _time(campaign.started)).total_seconds()
    return _minutes(whole), _minutes(whole - elapsed)


def _minutes(seconds: float) -> str:
    whole = max(round(seconds), 0)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


class DifferenceQuery(PageQuery):
    """Two campaigns, by their numbers. Without them the latest two."""

    first: int = Field(default=0, ge=0, le=1_000_000_000)
    second: int = Field(default=0, ge=0, le=1_000_000_000)


class CampaignPart(msgspec.Struct, frozen=True, kw_only=True):
    """One of two campaigns: the guard sites and findings that it has reached and the other one has not."""

    campaign: CampaignLine
    sites: tuple[SiteKey, ...]
    findings: tuple[FindingSummary, ...]


class DifferencePage(msgspec.Struct, frozen=True, kw_only=True):
    """What two campaigns have reached: the numbers of guard sites and findings of both, and those of one alone.

    `campaigns` is empty if there are fewer than two.
    """

    sites: int = 0
    findings: int = 0
    campaigns: tuple[CampaignPart, ...] = ()
    unreadable: Unreadable = Unreadable()
    schema: str = "ddefuzz.page.difference/1"


def difference_page(database: Database, asked: DifferenceQuery) -> DifferencePage:
    """The page. Raises `InputError` for a campaign that is not there."""
    latest = database.read(partial(listing.campaigns, most=2))
    names = [name or one.id for name, one in zip((asked.first, asked.second), reversed(latest), strict=False)]
    if len(names) < 2:
        return DifferencePage()
    lines: list[CampaignLine] = []
    sites, met = [], []
    for name in names:
        campaign = database.read(partial(listing.campaign, number=name))
        if campaign is None:
            raise InputError(f"found no campaign {name}, expected one that /campaigns lists")
        lines += _lines(database, (campaign,), datetime.now(UTC))
        sites.append(database.read(partial(listing.reached_by, number=name)))
        met.append({*database.read(partial(listing.met_by, number=name))})
    alone = [(sites[at] - sites[1 - at], sorted(met[at] - met[1 - at])) for at in (0, 1)]
    return DifferencePage(
        sites=len(sites[0] & sites[1]),
        findings=len(met[0] & met[1]),
        campaigns=tuple(
            CampaignPart(
                campaign=line,
                sites=tuple(sorted(keys)),
                findings=database.read(partial(listing.by_ids, names=names)),
            )
            for line, (keys, names) in zip(lines, alone, strict=True)
        ),
    )
