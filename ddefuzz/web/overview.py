"""The first page: how many findings there are in which state, how they grew, and what runs now."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from ddefuzz.findings import listing, runs
from ddefuzz.findings.database import Database
from ddefuzz.findings.listing import Counts, Query
from ddefuzz.findings.model import FindingSummary
from ddefuzz.web.campaigns import CampaignLine, campaign_lines
from ddefuzz.web.plot import thinned
from ddefuzz.web.rows import Asked, Unreadable

LATEST: Final = 8
"""How many of the newest findings are shown, and campaigns."""


class OverviewQuery(Asked):
    """The overview has no options but the format."""


class Growth(msgspec.Struct, frozen=True):
    """The number of findings that had been seen at a time."""

    when: str
    findings: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of findings, their growth, the latest ones and the latest campaigns. `sites` counts the guard sites
    reached by version of torch.
    """

    counts: Counts
    growth: tuple[Growth, ...]
    sites: dict[str, int]
    latest: tuple[FindingSummary, ...]
    campaigns: tuple[CampaignLine, ...]
    unreadable: Unreadable = Unreadable()
    schema: str = "ddefuzz.page.overview/2"


def overview_page(database: Database, now: datetime) -> Overview:
    """The page."""
    times = database.read(listing.first_sightings)
    newest = database.read(
        lambda session: listing.page(
            session, Query(states=("new",), about_data="yes"), "first", descending=True, first=0, most=LATEST
        )
    )
    return Overview(
        counts=database.read(listing.counts),
        growth=tuple(Growth(time, number) for number, time in thinned(list(enumerate(times, 1)))),
        sites=database.read(runs.site_counts),
        latest=newest.findings,
        campaigns=campaign_lines(database, now, LATEST),
    )
