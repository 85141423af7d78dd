"""Guard sites of torch: coverage by file, sites without source, and torch's source with its sites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from ddefuzz.coverage.guard_sites import FileCount, GuardSite, Totals, counts_of_files, guard_sites, totals
from ddefuzz.coverage.inventory import Inventory, Part, installed
from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.files import leads_to_file, real_path
from ddefuzz.findings.database import Database
from ddefuzz.show.blocks import Block
from ddefuzz.show.sites import source_blocks
from ddefuzz.web.dashboard import Line, PageQuery, Unreadable

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
    path = _path(here, asked.file)
    if here is None or path is None:
        raise InputError(f"file: found {asked.file!r}, expected a Python file of the installed torch with guard sites")
    found = tuple(site for site in _sites(database, here.torch, here) if site.file == asked.file)
    if not found:
        raise InputError(f"file: found no guard sites in {asked.file}, expected a file that /sites lists")
    return SourcePage(file=asked.file, torch=here.torch, sites=found)


def blocks_of(page: SourcePage) -> list[Block]:
    """The lines of a file, for the template."""
    path = _path(inventory(), page.file)
    return [] if path is None else list(source_blocks(path, page.sites))


def _path(here: Inventory | None, file: str) -> Path | None:
    """The path of a file of torch's own Python source. A database may hold any text as the name of a file."""
    if here is None:
        return None
    path = real_path(here.folder / file)
    own = real_path(here.folder / "torch")
    return path if path.suffix == ".py" and path.is_relative_to(own) and leads_to_file(path) else None


def _sites(database: Database, torch: str, here: Inventory | None) -> tuple[GuardSite, ...]:
    return guard_sites(here.calls if here is not None and here.torch == torch else (), database.sites(torch))


def _keeps(asked: SitesQuery, site: GuardSite) -> bool:
    shown = {"": True, "unreached": not site.reached, "reached": site.reached, "raised": site.raised > 0}
    return asked.part in ("", site.part) and shown[asked.show]
