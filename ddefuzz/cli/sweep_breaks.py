"""`ddefuzz sweep --breaks`: the graph breaks of each op as a table, as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import rich_click as click
from rich.console import Group, RenderableType

from ddefuzz.cli.layout import Detailed, counted, table
from ddefuzz.cli.output import Page, Writer, deliver, plain, rendered
from ddefuzz.cli.progress import LiveLine, stop_on_interrupt
from ddefuzz.errors import EXIT_INTERRUPTED
from ddefuzz.escape import json_text, markdown_code, markdown_table, markdown_text, shell_words
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.sweep.breaks import PROGRAMS, BreakCensus, OpBreaks, sweep_breaks

FORMATS = ("text", "json", "markdown")


def count_breaks(
    globs: tuple[str, ...],
    jobs: int,
    programs: int,
    db: DatabaseUrl,
    fresh: bool,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Count, and print the table."""
    for name in (format_, *(name for name, _ in outputs)):
        if name not in FORMATS:
            raise click.UsageError(
                f"found --breaks with the format {name}, expected {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
            )
    starting = f"starting {counted(jobs, 'worker')} (importing torch and its OpInfo takes some seconds)"
    with Database.open(db) as database, stop_on_interrupt() as stopped, LiveLine(starting) as live:

        def tell(done: int, of: int, one: OpBreaks) -> None:
            live.update(f"{done} of {counted(of, 'op')}, {one.op}", is_last=done == of)

        census = sweep_breaks(globs, jobs, database, tell, stopped, programs=programs, fresh=fresh)
    deliver(_writers(census), format_, outputs)
    if census.interrupted:
        raise SystemExit(EXIT_INTERRUPTED)


def _writers(census: BreakCensus) -> Mapping[str, Writer]:
    return {
        "text": lambda page: breaks_page(census, page),
        "json": lambda _page: json_text(census, indent=True) + "\n",
        "markdown": lambda _page: markdown_page(census),
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


def markdown_page(census: BreakCensus) -> str:
    """The page for a repository: totals, sites by the number of ops, each op that breaks, and each that fails."""
    words = ["ddefuzz", "sweep", "--breaks", *(word for glob in census.selection for word in ("--ops", glob))]
    words += ["--programs", str(census.programs)] if census.programs != PROGRAMS else []
    sites = (
        (
            markdown_code(one.site),
            markdown_code(one.anchor),
            markdown_text(one.kind),
            markdown_text(one.cause),
            str(len(one.ops)),
            _quoted(one.ops),
        )
        for one in census.groups
    )
    broken = (
        (
            markdown_code(row.op),
            markdown_text(row.source),
            f"{row.broken} of {row.programs}",
            markdown_text(", ".join(dict.fromkeys(site.cause.cause for site in row.sites))),
            _quoted(site.cause.site for site in row.sites),
        )
        for row in census.rows
        if row.sites
    )
    failing = (
        (
            markdown_code(row.op),
            markdown_text(row.source),
            "<br>".join(map(markdown_text, [*row.errors, *([row.lost] if row.lost else [])])),
        )
        for row in census.rows
        if row.errors or row.lost
    )
    parts = [
        f"# Graph breaks by op: torch {markdown_text(census.torch)}",
        f"This page is written by {markdown_code(shell_words([*words, '--output', 'markdown=FILE']))}; do not edit.",
        "Each op of torch's OpInfo database and of ddefuzz's catalogue is compiled by torch.compile with "
        f'`backend="eager", fullgraph=False`: up to {counted(census.programs, "sample")}, with all dims unbacked. A '
        "break is classified by the exception that ends the graph: [causes.md](causes.md) explains the causes.",
        "\n".join(f"- {markdown_text(line)}" for line in _totals(census).splitlines()),
        "## Where graphs break",
        markdown_table(("site", "anchor", "kind", "cause", "ops", "which"), sites),
        "## Ops that break",
        markdown_table(("op", "source", "programs that break", "causes", "sites"), broken),
        "## Ops that end in an error although the graph may break",
        "The message is the first line of the exception.",
        markdown_table(("op", "source", "error"), failing),
    ]
    return "\n\n".join(parts) + "\n"


def _quoted(names: Iterable[str]) -> str:
    """Each name once, as code."""
    return ", ".join(dict.fromkeys(markdown_code(name) for name in names if name))


def _said(row: OpBreaks) -> list[str]:
    lines = [f"{site.cause.kind} in {site.cause.site}: {site.cause.evidence}" for site in row.sites]
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
