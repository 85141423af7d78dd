"""Campaigns: their state, rate, what is left of the budget, and how their counts grew, as plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

import msgspec
from markupsafe import Markup
from pydantic import Field

from ddefuzz.campaign.plan import parse_budget
from ddefuzz.errors import InputError
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Campaign, Progress
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
    campaigns = database.read(lambda session: listing.campaigns(session, most, first))
    progress = database.read(lambda session: listing.progress(session, [one.id for one in campaigns], MOST_READ))
    return tuple(_line(one, progress[one.id], now) for one in campaigns)


def _line(campaign: Campaign, points: Sequence[Progress], now: datetime) -> CampaignLine:
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


WIDTH, HEIGHT = 640, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 26

Series = tuple[str, Sequence[tuple[float, float]]]
"""A line: its name, and its points with x in ascending order."""


def findings_plot(points: Sequence[tuple[str, int]]) -> Markup:
    """The number of findings over the dates at which they were first seen."""
    times = [(datetime.fromisoformat(when).timestamp(), float(number)) for when, number in points]
    first, last = ([point[0][:16].replace("T", " ") for point in (points[0], points[-1])]) if points else ("", "")
    return line_plot("Findings over time", [("findings", times)], (first, last))


def campaign_plot(title: str, growth: Sequence[Progress]) -> Markup:
    """The guard sites and findings of a campaign over its CPU time."""
    names = {
        "fallback_sites": "places where a guard fell back",
        "dde_sites": "call sites of errors",
        "findings": "findings seen",
    }
    series = [(said, [(at.cpu_seconds, float(getattr(at, name))) for at in growth]) for name, said in names.items()]
    ends = [f"{at.cpu_seconds:,.0f} CPU s" for at in (growth[0], growth[-1])] if growth else ["", ""]
    return line_plot(title, series, (ends[0], ends[1]))


def line_plot(title: str, series: Sequence[Series], x_labels: tuple[str, str]) -> Markup:
    """The plot. `x_labels` are the texts at the left and the right end. Empty without two points."""
    drawn = [(name, points) for name, points in series if len(points) > 1]
    if not drawn:
        return Markup("")
    xs = [x for _, points in drawn for x, _ in points]
    low, high = min(xs), max(xs)
    ticks = _ticks(max(y for _, points in drawn for _, y in points))
    top = ticks[-1]

    def place(x: float, y: float) -> tuple[str, str]:
        across = (x - low) / (high - low) if high > low else 0.0
        down = HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)
        return f"{LEFT + across * (WIDTH - LEFT - RIGHT):.1f}", f"{down:.1f}"

    parts = [
        Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, HEIGHT, title),
        Markup("<title>{}</title>").format(title),
    ]
    for tick in ticks:
        _, y = place(low, tick)
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, y, y))
        parts.append(Markup('<text class="tick end" x="{}" y="{}" dy="4">{:,.0f}</text>').format(LEFT - 6, y, tick))
    keys = []
    for number, (name, points) in enumerate(drawn, 1):
        begin, *steps = (place(x, y) for x, y in points)
        # Counts stay as they are until the next point, so the line goes across and then up.
        line = "".join(("M", ",".join(begin), *(f"H{x}V{y}" for x, y in steps)))
        parts.append(Markup('<path class="line line{}" d="{}"/>').format(number, line))
        keys.append(Markup('<li class="key{}">{} <b>{:,.0f}</b></li>').format(number, name, points[-1][1]))
    for style, x, label in (("tick", LEFT, x_labels[0]), ("tick end", WIDTH - RIGHT, x_labels[1])):
        parts.append(Markup('<text class="{}" x="{}" y="{}">{}</text>').format(style, x, HEIGHT - 6, label))
    return Markup('<figure><figcaption>{}</figcaption>{}</svg><ul class="keys">{}</ul></figure>').format(
        title, Markup("").join(parts), Markup("").join(keys)
    )


def _ticks(most: float) -> list[float]:
    """0 and up to five round numbers, the last of them at least `most`."""
    raw = max(most, 1.0) / 4
    unit = 10.0 ** math.floor(math.log10(raw))
    step = max(next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw), 1.0)
    return [step * at for at in range(math.ceil(max(most, 1.0) / step) + 1)]
