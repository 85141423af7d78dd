"""The table of pages: each is a path, and the function that makes its record of a query.

The first page, those of guard sites and that of a census are here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_type_hints

import msgspec
from pydantic import Field

from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.guard_sites import FileCount, GuardSite, Totals, counts_of_files, guard_sites, totals
from ddefuzz.findings.inventory import Inventory, Part, installed, source_path
from ddefuzz.findings.listing import Counts, Query
from ddefuzz.findings.model import FindingSummary
from ddefuzz.show.blocks import Block
from ddefuzz.show.evidence import VERDICTS, evidence_of
from ddefuzz.show.sites import fell_back, source_blocks
from ddefuzz.sweep.census import STATUSES
from ddefuzz.sweep.tasks import OpResult, row_of
from ddefuzz.versions.model import Status
from ddefuzz.web.campaigns import CampaignLine, campaign_lines, campaigns_page, difference_page
from ddefuzz.web.dashboard import Line, PageQuery, Unreadable
from ddefuzz.web.findings import CHOICES, finding_page, findings_page
from ddefuzz.web.plots import campaign_plot, findings_plot, sightings_plot
from ddefuzz.web.versions import versions_page

WITHOUT_SOURCE: frozenset[Part] = frozenset({"c++", "user"})


class SitesQuery(PageQuery):
    """Which sites."""

    torch: Line = Field(default="", description="Reached under this version of torch. Default: the installed one.")
    part: Literal["", "core", "inductor", "distributed", "c++", "user"] = ""
    show: Literal["", "unreached", "reached", "raised"] = ""


class SourceQuery(PageQuery):
    """Which file of torch, such as torch/_refs/__init__.py."""

    file: Annotated[Line, Field(min_length=1)]


class SitesPage(msgspec.Struct, frozen=True, kw_only=True):
    """The coverage under one version of torch. `sites` are those that the query selects, `totals` count all.

    `installed` is the version whose source is here, empty if there is none.
    """

    torch: str
    versions: tuple[str, ...]
    installed: str
    totals: Totals
    files: tuple[FileCount, ...]
    sites: tuple[GuardSite, ...]
    unreadable: Unreadable = Unreadable()
    schema: str = "ddefuzz.page.sites/2"


class SourcePage(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the installed torch with its guard sites."""

    file: str
    torch: str
    sites: tuple[GuardSite, ...]
    unreadable: Unreadable = Unreadable()
    schema: str = "ddefuzz.page.source/1"


def inventory() -> Inventory | None:
    """The guards in the source of the installed torch, None without one. The first call takes 2 to 3 s."""
    try:
        return installed()
    except UnsupportedError:
        return None


def sites_page(database: Database, asked: SitesQuery) -> SitesPage:
    """The page. Raises `InputError` for a version without sites."""
    here, versions = inventory(), database.torch_versions()
    own = here.torch if here is not None else ""
    wanted = asked.torch or (own if own in versions or not versions else versions[-1])
    if wanted not in (*versions, own):
        raise InputError(f"torch: found {wanted!r}, expected one of {', '.join(sorted({*versions, own}))}")
    everything = _sites(database, wanted, here)
    chosen = tuple(site for site in everything if _keeps(asked, site))
    return SitesPage(
        torch=wanted,
        versions=tuple(sorted({*versions, *filter(None, [own])})),
        installed=own,
        totals=totals(wanted, everything),
        files=tuple(counts_of_files(site for site in chosen if site.part not in WITHOUT_SOURCE)),
        sites=chosen,
    )


def source_page(database: Database, asked: SourceQuery) -> SourcePage:
    """The page. Raises `InputError` for a file that has no source or no sites."""
    here = inventory()
    if here is None or source_path(here.folder, asked.file) is None:
        raise InputError(f"file: found {asked.file!r}, expected a Python file of the installed torch with guard sites")
    sites = tuple(site for site in _sites(database, here.torch, here) if site.file == asked.file)
    if not sites:
        raise InputError(f"file: found no guard sites in {asked.file}, expected a file that /sites lists")
    return SourcePage(file=asked.file, torch=here.torch, sites=sites)


def blocks_of(page: SourcePage) -> list[Block]:
    """The lines of a file, for the template."""
    here = inventory()
    path = None if here is None else source_path(here.folder, page.file)
    return [] if path is None else list(source_blocks(path, page.sites))


def _sites(database: Database, torch: str, here: Inventory | None) -> tuple[GuardSite, ...]:
    return guard_sites(here.calls if here is not None and here.torch == torch else (), database.sites(torch))


def _keeps(asked: SitesQuery, site: GuardSite) -> bool:
    shown = {"": True, "unreached": not site.reached, "reached": site.reached, "raised": site.raised > 0}
    return asked.part in ("", site.part) and shown[asked.show]


class Page(NamedTuple):
    """One page, with the template of its name. `make` gets the database, the query and the value in the path if there
    is one; its annotations name the query and the record. `more` are further names for the template.
    """

    name: str
    path: str
    summary: str
    make: Callable[..., msgspec.Struct]
    in_menu: bool = True
    more: dict[str, Any] = {}  # noqa: RUF012 never changed

    @property
    def query(self) -> type[PageQuery]:
        """What the page can be asked."""
        asked: type[PageQuery] = get_type_hints(self.make)["asked"]
        return asked

    @property
    def record(self) -> type[msgspec.Struct]:
        """What the page has."""
        made: type[msgspec.Struct] = get_type_hints(self.make)["return"]
        return made


LATEST: Final = 8
"""How many of the newest findings are shown, and campaigns."""


MOST_POINTS: Final = 240
"""More points than this cannot be seen in a plot."""


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


def overview_page(database: Database, asked: PageQuery) -> Overview:
    """The page."""
    del asked
    times = database.read(listing.first_sightings)
    last = len(times) - 1
    shown = {round(at * last / (MOST_POINTS - 1)) for at in range(MOST_POINTS)} if times else ()
    query = Query(states=("new",), about_data="yes")
    return Overview(
        counts=database.read(listing.counts),
        growth=tuple(Growth(times[at], at + 1) for at in sorted(shown)),
        sites=database.read(listing.site_counts),
        latest=database.read(partial(listing.page, query=query, sort="first", descending=True, most=LATEST)).findings,
        campaigns=campaign_lines(database, datetime.now(UTC), LATEST),
    )


class CensusQuery(PageQuery):
    """Which sweep, and which of its ops."""

    sweep: Line = Field(default="", description="The key of a sweep. Default: the last in order.")
    status: Line = Field(default="", description="Only ops with this status under explicit semantics.")


class CensusPage(msgspec.Struct, frozen=True, kw_only=True):
    """The ops of one sweep. `sweeps` are the keys of all, with the number of their ops. `statuses` counts all ops."""

    sweep: str
    sweeps: dict[str, int]
    statuses: dict[str, int]
    ops: tuple[OpResult, ...]
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
    rows = [row_of(result) for result in database.swept(wanted, OpResult).values()]
    rows.sort(key=lambda row: (STATUSES.index(row.explicit), row.op))
    statuses = [row.explicit for row in rows]
    return CensusPage(
        sweep=wanted,
        sweeps=sweeps,
        statuses={status: statuses.count(status) for status in STATUSES if status in statuses},
        ops=tuple(row for row in rows if asked.status in ("", row.explicit)),
    )


PAGES: tuple[Page, ...] = (
    Page(
        "overview",
        "/",
        "How many findings there are, how they grow, what runs",
        overview_page,
        more={"findings_plot": findings_plot, "campaign_plot": campaign_plot},
    ),
    Page("findings", "/findings", "The findings that a query selects", findings_page, more={"choices": CHOICES}),
    Page(
        "finding",
        "/findings/{finding_id}",
        "Everything about one finding",
        finding_page,
        False,
        {"evidence": evidence_of, "verdicts": VERDICTS, "sightings_plot": sightings_plot},
    ),
    Page(
        "sites",
        "/sites",
        "The guard sites of torch, and which were reached",
        sites_page,
        more={"parts": get_args(Part), "fell_back": fell_back, "without_source": WITHOUT_SOURCE},
    ),
    Page(
        "source",
        "/sites/source",
        "A file of torch with its guard sites",
        source_page,
        in_menu=False,
        more={"blocks": blocks_of},
    ),
    Page(
        "versions",
        "/versions",
        "What was seen under each version of torch",
        versions_page,
        more={"all_results": get_args(Status)},
    ),
    Page("census", "/census", "What sweeps found of each op", census_page, more={"all_statuses": STATUSES}),
    Page(
        "campaigns",
        "/campaigns",
        "Campaigns, their rate and what is left of their budget",
        campaigns_page,
        more={"campaign_plot": campaign_plot},
    ),
    Page(
        "difference",
        "/campaigns/difference",
        "What one campaign reached and another did not",
        difference_page,
        in_menu=False,
    ),
)
