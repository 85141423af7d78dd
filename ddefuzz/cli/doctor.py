"""`ddefuzz doctor`: check the environment, torch's private names, the workers and the reference programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import rich_click as click
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ddefuzz.cli.layout import counted, folded
from ddefuzz.cli.options import db_option
from ddefuzz.cli.output import Page, deliver, output_options, rendered
from ddefuzz.cli.progress import LiveLine
from ddefuzz.errors import EXIT_UNSUPPORTED, DatabaseError
from ddefuzz.execute import selftest
from ddefuzz.execute.pool import Pool
from ddefuzz.findings import connection
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.instrument import torch_api
from ddefuzz.oracles import reference
from ddefuzz.selfcheck import Check

SCHEMA = "ddefuzz.doctor/1"


@click.command("doctor")
@db_option
@output_options("text", "json")
def command(db: DatabaseUrl, format_: str, outputs: tuple[tuple[str, Path], ...]) -> None:
    """Check this installation: torch's private names, the workers, the classification, the database.

    The classification is checked with reference programs whose site and cause are known.

    Exit code 4: a check fails, or this version of torch is not supported.
    """
    found: list[Check] = []
    with LiveLine("checking") as live:
        for title, part in PARTS:
            live.update(f"checking {title}")
            for check in part(db):
                found.append(check)
                live.update(f"checking {title}: {check.name}")
    deliver({"text": lambda page: _page(found, page), "json": lambda _page: _document(found)}, format_, outputs)
    if not all(check.ok for check in found):
        raise SystemExit(EXIT_UNSUPPORTED)


def _names(_: DatabaseUrl) -> Iterable[Check]:
    torch_api.require()
    return torch_api.check()


def _workers(_: DatabaseUrl) -> Iterator[Check]:
    with Pool(1) as pool:
        yield from selftest.checks(pool)
        yield from reference.checks(pool)


def _database(url: DatabaseUrl) -> Iterator[Check]:
    """A missing database is no error: the first campaign creates it. This check does not."""
    path = url.path()
    if path is not None and not path.exists():
        yield Check("findings database", ok=True, detail=f"{url}: does not exist yet; `ddefuzz run` creates it")
        return
    try:
        yield Check("findings database", ok=True, detail=connection.check(url))
    except DatabaseError as error:
        yield Check("findings database", ok=False, detail=str(error))


PARTS: tuple[tuple[str, Callable[[DatabaseUrl], Iterable[Check]]], ...] = (
    ("the findings database", _database),
    ("the private names of torch", _names),
    ("the workers and the reference programs", _workers),
)
"""The checks by part, cheapest first: a title, and a function that runs them, given the database's URL."""


def _document(found: list[Check]) -> str:
    rows = [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in found]
    return json.dumps({"schema": SCHEMA, "checks": rows}) + "\n"


def _page(found: list[Check], page: Page) -> str:
    grid = Table.grid(padding=(0, 2))
    for check in found:
        said = Text("ok", style="green") if check.ok else Text("FAILS", style="bold red")
        grid.add_row(said, Text(folded(f"{check.name}: {check.detail}", page.width - len("FAILS  "))))
    failed = [check for check in found if not check.ok]
    return rendered(Group(grid, "", f"{counted(len(found), 'check')}, {len(failed)} failed"), page)
