"""`ddefuzz sites`: the guard sites of torch, reached or not. It never imports torch."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import rich_click as click
from rich.progress import track

from ddefuzz.cli.command import Output, PathType, click_command, formats, option
from ddefuzz.cli.options import DB
from ddefuzz.cli.output import deliver, json_writers, page_writers, progress_console
from ddefuzz.cli.streams import say
from ddefuzz.errors import InputError
from ddefuzz.files import check_folder, is_there, write_atomically
from ddefuzz.findings.database import Database
from ddefuzz.findings.guard_sites import GuardSite, guard_sites, site_document, totals, totals_document
from ddefuzz.findings.inventory import Inventory, Part, installed
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.instrument.events import Language
from ddefuzz.show.sites import INDEX, SitesPage, pages, sites_view


@click_command("sites")
def command(
    uncovered: bool = option("Only sites that no run has reached, with the reason if it is known."),
    raised: bool = option("Only sites where a data-dependent error was raised."),
    files: tuple[str, ...] = option("Only sites in files that match, such as '*/_refs/*'.", metavar="GLOB"),
    languages: tuple[Language, ...] = option(f"Only sites in {' or '.join(get_args(Language))}.", metavar="NAME"),
    parts: tuple[Part, ...] = option(f"Only sites in this part: {', '.join(get_args(Part))} (outside torch)."),
    summary: bool = option("Only counts, and estimates of how many sites there are."),
    torch: str | None = option(
        "Show what runs with this version of torch reached. Default: the installed version.", metavar="VERSION"
    ),
    html: Path | None = option(
        "Write HTML pages of torch's source with its guard sites colored.",
        type_=PathType(file_okay=False),
        metavar="FOLDER",
    ),
    db: DatabaseUrl = DB,
    output: Output = formats("text", "json", "jsonl", "markdown"),
) -> None:
    """List the guard sites of torch, and how often runs reached them.

    A guard site is a place in torch that evaluates a condition on an unbacked size. Calls of guard_or_false and
    guard_or_true in the Python source of the installed torch are always listed. Other sites, such as those in C++, are
    listed once a run has reached them. Numbers count cases.
    """
    if raised and uncovered:
        raise click.UsageError(
            "found both --raised and --uncovered, expected one of them: a site that raised was reached"
        )
    inventory = installed()
    with Database.open(db, create=False) as database:
        known = database.torch_versions()
        wanted = _version(torch, inventory.torch, known, str(database.url))
        records = database.sites(wanted)
    of_installed = wanted == inventory.torch
    everything = guard_sites(inventory.calls if of_installed else (), records)

    def is_chosen(site: GuardSite) -> bool:
        return (
            (not files or any(fnmatchcase(site.file, pattern) for pattern in files))
            and (not languages or site.language in languages)
            and (not parts or site.part in parts)
            and (not raised or site.raised > 0)
            and not (uncovered and site.reached)
        )

    page = SitesPage(
        sites=tuple(filter(is_chosen, everything)),
        totals=totals(wanted, everything),
        uncovered=uncovered,
        summary=summary,
        notes=_notes(wanted, inventory, known),
    )
    if html is not None:
        _write_html(page, inventory if of_installed else None, html)
    documents = [totals_document(page.totals)] if summary else [site_document(site) for site in page.sites]
    writers = json_writers(documents) | page_writers(f"Guard sites of torch {wanted}", sites_view(page))
    deliver(writers | ({"json": writers["jsonl"]} if summary else {}), output)


def _version(typed: str | None, here: str, known: tuple[str, ...], database: str) -> str:
    """The version of torch to show. Raises InputError if the database has sites of other versions only."""
    wanted = typed or here
    if wanted in known or (not known and typed in (None, here)):
        return wanted
    others = ", ".join(known) or "none"
    if typed is not None:
        raise InputError(
            f"--torch: found {typed!r}, expected {here} or a version that {database} has sites of: {others}"
        )
    raise InputError(
        f"{database}: found sites of torch {others}, expected some of the installed {here}; use --torch {known[-1]}"
    )


def _notes(wanted: str, inventory: Inventory, known: tuple[str, ...]) -> tuple[str, ...]:
    notes = []
    if not known:
        notes.append("no run has reached a site yet: start with `ddefuzz run` or `ddefuzz sweep`")
    if wanted != inventory.torch:
        notes.append(
            f"only sites that were reached: the installed source is that of torch {inventory.torch}, not {wanted}"
        )
    others = [version for version in known if version != wanted]
    if others:
        notes.append(f"the database also has torch {', '.join(others)}: `--torch {others[-1]}`")
    return tuple(notes)


def _check_own(path: Path) -> None:
    """Raises `InputError` for a page that ddefuzz did not write."""
    if is_there(path) and MADE_BY not in path.read_bytes()[:_HEAD]:
        raise InputError(f"{path}: found a file that ddefuzz did not write, expected nothing there, or earlier pages")


MADE_BY = b'<meta name="generator" content="ddefuzz">'
_HEAD = 1_000  # where `MADE_BY` is in a page of ddefuzz


def _write_html(page: SitesPage, inventory: Inventory | None, folder: Path) -> None:
    # Imported here, because the templates and the highlighting take longer to import than the rest of the command.
    from ddefuzz.show.html import html  # noqa: PLC0415

    made = list(pages(page, inventory.folder if inventory else None))
    check_folder(folder, [name for name, _, _ in made])
    for name, _, _ in made:
        _check_own(folder / name)
    console = progress_console()
    for name, title, blocks in track(
        made, "writing pages", console=console, transient=True, disable=not console.is_terminal
    ):
        write_atomically(folder / name, html(title, blocks))
    say(f"written: {folder / INDEX}")
