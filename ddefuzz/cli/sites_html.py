"""Guard sites as HTML pages: an index, torch's source with its sites colored, and sites without source.

Each page is self-contained: no script, no network. Blocks of lines without sites are folded, not left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pygments.formatters.html import HtmlFormatter
from rich.progress import track

from ddefuzz.cli.output import progress_console
from ddefuzz.cli.sites_page import SitesPage, closing_lines, part_cells
from ddefuzz.coverage.guard_sites import GuardSite
from ddefuzz.escape import html_value
from ddefuzz.files import check_folder, write_atomically
from ddefuzz.show.guarded import (
    STATES,
    blocks_of,
    call_text,
    example_id,
    fell_back,
    note_of,
    old,
    place,
)
from ddefuzz.show.html import highlighted

TEMPLATES = Path(__file__).parent / "templates"

INDEX = "index.html"

NO_SOURCE = "elsewhere.html"
"""The page of sites that have no file in the package: C++ and programs."""

LIGHT, DARK = "default", "github-dark"
"""Pygments styles."""


class FileEntry(NamedTuple):
    """A row of the index."""

    file: str
    page: str
    part: str
    listed: int
    reached: int
    unlisted: int
    raised: int


def write_pages(page: SitesPage, folder: Path | None, target: Path) -> Path:
    """Write pages of the chosen sites into `target`, and return the index. `folder` has the torch package.

    Without `folder` all sites are on the page of sites without source. Raises InputError if a page cannot be written.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=html_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        states=STATES,
        styles=styles(),
        torch=page.totals.torch,
        place=place,
        call_text=call_text,
        fell_back=fell_back,
        old=old,
    )
    by_file = {
        file: list(sites)
        for file, sites in groupby(sorted(page.sites, key=lambda site: (site.file, site.line)), lambda site: site.file)
    }
    sources = {file: folder / file for file in by_file if folder is not None and _has_source(folder, by_file[file])}
    check_folder(target, [*map(_page_name, sources), NO_SOURCE, INDEX])
    entries = []
    source_page = environment.get_template("source.html")
    console = progress_console()
    for file, path in track(
        sources.items(), "writing pages", console=console, transient=True, disable=not console.is_terminal
    ):
        entries.append(_entry(file, _page_name(file), by_file[file]))
        text = source_page.render(
            file=file,
            numbers=sorted({site.line for site in by_file[file]}),
            blocks=blocks_of(path, by_file[file]),
            examples=list(_examples(by_file[file])),
        )
        write_atomically(target / entries[-1].page, text)
    elsewhere = [site for file, sites in by_file.items() if file not in sources for site in sites]
    text = environment.get_template("elsewhere.html").render(
        notes=[note_of(site) for site in elsewhere], examples=list(_examples(elsewhere))
    )
    write_atomically(target / NO_SOURCE, text)
    index = target / INDEX
    parts = [(count, part_cells(count)) for count in page.totals.parts]
    text = environment.get_template("index.html").render(
        parts=parts, closing=closing_lines(page), entries=entries, elsewhere=len(elsewhere), elsewhere_page=NO_SOURCE
    )
    write_atomically(index, text)
    return index


def _has_source(folder: Path, sites: Sequence[GuardSite]) -> bool:
    return sites[0].part not in ("c++", "user") and (folder / sites[0].file).is_file()


def _page_name(file: str) -> str:
    return f"{file.removesuffix('.py').replace('/', '.')}.html"


def _entry(file: str, page: str, sites: Sequence[GuardSite]) -> FileEntry:
    listed = [site for site in sites if site.listed]
    return FileEntry(
        file=file,
        page=page,
        part=sites[0].part,
        listed=len(listed),
        reached=sum(site.reached for site in listed),
        unlisted=len(sites) - len(listed),
        raised=sum(site.raised > 0 for site in sites),
    )


def _examples(sites: Sequence[GuardSite]) -> Iterator[tuple[str, GuardSite, Markup]]:
    seen = set()
    for site in sites:
        if site.example and (name := example_id(site)) not in seen:
            seen.add(name)
            yield name, site, Markup("\n").join(highlighted(site.example.rstrip("\n").split("\n")))


def styles() -> Markup:
    """The styles of Python code, for light and dark pages."""
    light = HtmlFormatter(style=LIGHT).get_style_defs("code")
    dark = HtmlFormatter(style=DARK).get_style_defs("code")
    return Markup(f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}")
