"""The table of pages: each is a path, the query that it takes, and the function that makes its record.

The first page and that of a census are here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
from pydantic import Field

from ddefuzz.errors import InputError
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.listing import Counts, Query
from ddefuzz.findings.model import FindingSummary
from ddefuzz.findings.schema import readable
from ddefuzz.show.sites import fell_back
from ddefuzz.sweep.census import STATUSES, row_of
from ddefuzz.sweep.tasks import Swept
from ddefuzz.web.campaigns import CampaignLine, CampaignsPage, CampaignsQuery, campaign_lines, campaigns_page
from ddefuzz.web.finding import FindingPage, FindingQuery, finding_page
from ddefuzz.web.finding_list import CHOICES, FindingsPage, FindingsQuery, findings_page
from ddefuzz.web.plot import campaign_plot, findings_plot, thinned
from ddefuzz.web.rows import Asked, Line, Unreadable
from ddefuzz.web.sites import (
    PARTS,
    WITHOUT_SOURCE,
    SitesPage,
    SitesQuery,
    SourcePage,
    SourceQuery,
    blocks_of,
    sites_page,
    source_page,
)
from ddefuzz.web.versions import STATUSES as RESULTS
from ddefuzz.web.versions import VersionsPage, VersionsQuery, versions_page


class Page(NamedTuple):
    """One page. `make` gets the database, the value in the path if there is one, and the query.

    Pages with `menu` are in the menu, with `key` as their access key. `more` are further names for the template.
    """

    path: str
    template: str
    summary: str
    record: type[msgspec.Struct]
    query: type[Asked]
    make: Callable[..., msgspec.Struct]
    menu: str = ""
    key: str = ""
    more: dict[str, Any] = {}  # noqa: RUF012 never changed


def _now() -> datetime:
    return datetime.now(UTC)


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
        sites=database.read(listing.site_counts),
        latest=newest.findings,
        campaigns=campaign_lines(database, now, LATEST),
    )


class CensusQuery(Asked):
    """Which sweep, and which of its ops."""

    sweep: Line = Field(default="", description="The key of a sweep. Default: the last in order.")
    status: Line = Field(default="", description="Only ops with this status under explicit semantics.")


class OpLine(msgspec.Struct, frozen=True):
    """One op of a sweep, with its status under explicit and size-oblivious semantics."""

    op: str
    source: str
    explicit: str
    size_oblivious: str
    cause: str
    site: str
    samples: int
    runs: int


class CensusPage(msgspec.Struct, frozen=True, kw_only=True):
    """The ops of one sweep. `sweeps` are the keys of all, with the number of their ops. `statuses` counts all ops."""

    sweep: str
    sweeps: dict[str, int]
    statuses: dict[str, int]
    ops: tuple[OpLine, ...]
    unreadable: Unreadable = Unreadable()
    schema: str = "ddefuzz.page.census/1"


def census_page(database: Database, asked: CensusQuery) -> CensusPage:
    """The page. Raises `InputError` for a sweep that is not in the database."""
    sweeps = database.read(listing.sweeps)
    wanted = asked.sweep or next(reversed(sweeps), "")
    if asked.sweep and asked.sweep not in sweeps:
        raise InputError(f"sweep: found {asked.sweep!r}, expected a key that /census lists ({len(sweeps)} sweeps)")
    if asked.status and asked.status not in STATUSES:
        raise InputError(f"status: found {asked.status!r}, expected one of {', '.join(STATUSES)}")
    stored = database.swept(wanted).items()
    rows = list(readable("op of the sweep", stored, lambda one: row_of(msgspec.json.decode(one[1], type=Swept))))
    rows.sort(key=lambda row: (STATUSES.index(row.explicit), row.op))
    found = [row.explicit for row in rows]
    return CensusPage(
        sweep=wanted,
        sweeps=sweeps,
        statuses={status: found.count(status) for status in STATUSES if status in found},
        ops=tuple(
            OpLine(row.op, row.source, row.explicit, row.size_oblivious, row.cause, row.site, row.samples, row.runs)
            for row in rows
            if asked.status in ("", row.explicit)
        ),
    )


PAGES: tuple[Page, ...] = (
    Page(
        "/",
        "overview.html",
        "How many findings there are, how they grow, what runs",
        Overview,
        OverviewQuery,
        lambda database, _asked: overview_page(database, _now()),
        menu="Overview",
        key="1",
        more={"findings_plot": findings_plot, "campaign_plot": campaign_plot},
    ),
    Page(
        "/findings",
        "findings.html",
        "The findings that a query selects",
        FindingsPage,
        FindingsQuery,
        findings_page,
        menu="Findings",
        key="2",
        more={"choices": CHOICES},
    ),
    Page(
        "/findings/{finding_id}",
        "finding.html",
        "Everything about one finding",
        FindingPage,
        FindingQuery,
        lambda database, finding_id, _asked: finding_page(database, finding_id),
    ),
    Page(
        "/sites",
        "sites.html",
        "The guard sites of torch, and which were reached",
        SitesPage,
        SitesQuery,
        sites_page,
        menu="Sites",
        key="3",
        more={"parts": PARTS, "fell_back": fell_back, "without_source": WITHOUT_SOURCE},
    ),
    Page(
        "/sites/source",
        "source.html",
        "A file of torch with its guard sites",
        SourcePage,
        SourceQuery,
        source_page,
        more={"blocks": blocks_of},
    ),
    Page(
        "/versions",
        "versions.html",
        "What was seen under each version of torch",
        VersionsPage,
        VersionsQuery,
        versions_page,
        menu="Versions",
        key="4",
        more={"all_results": RESULTS},
    ),
    Page(
        "/census",
        "census.html",
        "What sweeps found of each op",
        CensusPage,
        CensusQuery,
        census_page,
        menu="Census",
        key="5",
        more={"all_statuses": STATUSES},
    ),
    Page(
        "/campaigns",
        "campaigns.html",
        "Campaigns, their rate and what is left of their budget",
        CampaignsPage,
        CampaignsQuery,
        lambda database, asked: campaigns_page(database, asked, _now()),
        menu="Campaigns",
        key="6",
        more={"campaign_plot": campaign_plot},
    ),
)
