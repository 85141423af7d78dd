"""The table of pages: each is a path, the query that it takes, and the function that makes its record."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from ddefuzz.show.sites import fell_back
from ddefuzz.sweep.census import STATUSES
from ddefuzz.web.campaigns import CampaignsPage, CampaignsQuery, campaigns_page
from ddefuzz.web.census import CensusPage, CensusQuery, census_page
from ddefuzz.web.finding import FindingPage, FindingQuery, finding_page
from ddefuzz.web.finding_list import CHOICES, FindingsPage, FindingsQuery, findings_page
from ddefuzz.web.overview import Overview, OverviewQuery, overview_page
from ddefuzz.web.plot import campaign_plot, findings_plot
from ddefuzz.web.rows import Asked
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
