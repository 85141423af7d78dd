"""`ddefuzz sweep --breaks`: the graph breaks of each op as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import rich_click as click
from rich.console import Group, RenderableType

from ddefuzz.cli.layout import Detailed, counted, table
from ddefuzz.cli.output import Page, Writer, deliver, plain, rendered
from ddefuzz.cli.progress import LiveLine, stop_on_interrupt
from ddefuzz.errors import EXIT_INTERRUPTED
from ddefuzz.findings.database import Database
from ddefuzz.sweep.breaks import BreakCensus, OpBreaks, sweep_breaks

FORMATS = ("text", "json")


def count_breaks(
    globs: tuple[str, ...], jobs: int, db: str, fresh: bool, format_: str, outputs: tuple[tuple[str, Path], ...]
) -> None:
    """Count, and print the table."""
    for name in (format_, *(name for name, _ in outputs)):
        if name not in FORMATS:
            raise click.UsageError(f"found --breaks with the format {name}, expected {' or '.join(FORMATS)}")
    starting = f"starting {counted(jobs, 'worker')} (importing torch and its OpInfo takes some seconds)"
    with Database.open(db) as database, stop_on_interrupt() as stopped, LiveLine(starting) as live:

        def tell(done: int, of: int, one: OpBreaks) -> None:
            live.update(f"{done} of {counted(of, 'op')}, {one.op}", is_last=done == of)

        census = sweep_breaks(globs, jobs, database, tell, stopped, fresh=fresh)
    deliver(_writers(census), format_, outputs)
    if census.interrupted:
        raise SystemExit(EXIT_INTERRUPTED)


def _writers(census: BreakCensus) -> Mapping[str, Writer]:
    return {
        "text": lambda page: breaks_page(census, page),
        "json": lambda _page: msgspec.json.format(msgspec.json.encode(census), indent=2).decode() + "\n",
    }


def breaks_page(census: BreakCensus, page: Page) -> str:
    """A row for each op that breaks, then the sites by the number of ops, then the totals."""
    rows = [
        Detailed(
            [plain(cell) for cell in (row.op, row.source, f"{row.broken} of {row.programs}", str(row.breaks))],
            plain("\n".join(_said(row)), style="dim"),
        )
        for row in census.rows
        if row.sites or row.errors or row.lost
    ]
    sites = [
        Detailed(
            [plain(cell) for cell in (one.site, one.kind, one.cause, str(len(one.ops)))],
            plain(f"[{one.anchor}] {', '.join(one.ops)}", style="dim"),
        )
        for one in census.groups
    ]
    parts: list[RenderableType] = [
        table(("op", "source", "programs that break", "breaks"), rows, page.width, right=("breaks",)),
        "",
        table(("site", "kind", "cause", "ops"), sites, page.width, right=("ops",)),
        "",
    ]
    return rendered(Group(plain(f"torch {census.torch}, fullgraph=False"), "", *parts), page) + _totals(census)


def _said(row: OpBreaks) -> list[str]:
    lines = [f"{site.cause.kind} at {site.cause.site}: {site.cause.evidence}" for site in row.sites]
    lines += [f"ends in an error, {counted(number, 'program')}: {error}" for error, number in row.errors.items()]
    return lines + ([f"not counted: {row.lost}"] if row.lost else [])


def _totals(census: BreakCensus) -> str:
    breaking = sum(bool(row.broken) for row in census.rows)
    failing = sum(bool(row.errors) for row in census.rows)
    programs, broken = sum(row.programs for row in census.rows), sum(row.broken for row in census.rows)
    causes = ", ".join(f"{number} {cause}" for cause, number in census.causes.items())
    lines = [
        f"{counted(len(census.rows), 'op')}, {counted(programs, 'program')}",
        f"with a graph break: {counted(breaking, 'op')}, {counted(broken, 'program')}",
        f"ops by the cause of their breaks: {causes or 'none'}",
        f"ending in an error although the graph may break: {counted(failing, 'op')}",
        *(["interrupted: what was counted is saved; the same command continues"] if census.interrupted else []),
    ]
    return "\n".join(lines) + "\n"
