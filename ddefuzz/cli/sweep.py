"""`ddefuzz sweep`: test every op systematically and print the census of failures, compared with upstream's list."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import rich_click as click

from ddefuzz.cli.layout import counted
from ddefuzz.cli.options import db_option, jobs_option, oracles_option
from ddefuzz.cli.output import Writer, deliver, output_options
from ddefuzz.cli.progress import LiveLine, stop_on_interrupt
from ddefuzz.cli.reports import writers_of
from ddefuzz.cli.sweep_breaks import count_breaks
from ddefuzz.cli.sweep_document import html_page, markdown_page
from ddefuzz.cli.sweep_page import census_page
from ddefuzz.cli.sweep_report import sweep_report
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED
from ddefuzz.escape import json_text
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.oracles.program import CAPTURE
from ddefuzz.oracles.table import NAMES
from ddefuzz.show.table import NAMES as FORMAT_NAMES
from ddefuzz.sweep.breaks import PROGRAMS
from ddefuzz.sweep.census import Census
from ddefuzz.sweep.launch import Plan, sweep
from ddefuzz.sweep.sweep import Progressed


@click.command("sweep")
@click.option(
    "--ops",
    "globs",
    metavar="GLOB",
    multiple=True,
    help="Only ops whose name matches, such as 'chunk*' or 'linalg.*'. Can be repeated. Default: all ops.",
)
@jobs_option
@click.option("--fresh", is_flag=True, help="Ignore the results of earlier sweeps with this torch.")
@click.option(
    "--compare-upstream",
    is_flag=True,
    help="Compare the result with PyTorch's own list of failing ops (common_ops_unbacked.ops_dde_xfail).",
)
@click.option(
    "--breaks",
    is_flag=True,
    help="Count graph breaks instead: a few samples of each op are compiled with fullgraph=False, all dims unbacked.",
)
@click.option(
    "--programs",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"With --breaks: compile at most N samples of each op. Default: {PROGRAMS}.",
)
@oracles_option("With another oracle than capture, each sample is captured in one stage, in turn, and called.", CAPTURE)
@click.option(
    "--fail-on",
    type=click.Choice(("any", "never")),
    metavar="WHAT",
    default="never",
    show_default=True,
    help="Exit with code 1 if an op has a data-dependent error or is captured wrong (any), or never.",
)
@db_option
@output_options("text", *FORMAT_NAMES)
def command(
    globs: tuple[str, ...],
    jobs: int,
    fresh: bool,
    compare_upstream: bool,
    breaks: bool,
    programs: int | None,
    oracles: tuple[str, ...],
    fail_on: str,
    db: DatabaseUrl,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Test every op of PyTorch's OpInfo and of the catalogue, and report which fail.

    Each sample call is tried in several forms: with one dim unbacked, with all dims unbacked, with other layouts, with
    out=, in place, as a method, and with its gradient. It runs under FakeTensorMode first. A call that fails there is
    also captured, and what fails then is saved as a finding.

    An interrupted sweep continues where it stopped.

    \b
    Examples:
      ddefuzz sweep --ops 'linalg.*'
      ddefuzz sweep --compare-upstream
    """
    if breaks:
        if compare_upstream or fail_on != "never":
            raise click.UsageError("found --breaks with --compare-upstream or --fail-on, expected it without them")
        count_breaks(globs, jobs, programs or PROGRAMS, db, fresh, format_, outputs)
        return
    if programs is not None:
        raise click.UsageError("found --programs without --breaks, expected both")
    chosen = tuple(name for name in NAMES if name in {*CAPTURE, *oracles})
    plan = Plan(globs=globs, jobs=jobs, fresh=fresh, upstream=compare_upstream, oracles=chosen)
    starting = f"starting {counted(jobs, 'worker')} (importing torch and its OpInfo takes some seconds)"
    with Database.open(db) as database, stop_on_interrupt() as stopped, LiveLine(starting) as line:
        census = sweep(plan, database, partial(_show, line), line.say, stopped)
    deliver(_writers(census), format_, outputs)
    if census.interrupted:
        raise SystemExit(EXIT_INTERRUPTED)
    if fail_on == "any" and (census.totals.explicit.get("dde") or census.totals.wrong):
        raise SystemExit(EXIT_FOUND)


def _writers(census: Census) -> dict[str, Writer]:
    """The formats of all reports. Markdown and HTML are the census's own pages."""
    return {
        **writers_of(sweep_report(census)),
        "text": lambda page: census_page(census, page),
        "json": lambda _page: json_text(census, indent=True) + "\n",
        "markdown": lambda _page: markdown_page(census),
        "html": lambda _page: html_page(census),
    }


def _show(line: LiveLine, now: Progressed) -> None:
    """Report an op that is done, and the progress of the sweep."""
    if now.note:
        line.say(now.note)
    line.update(progress_line(now), is_last=not now.left)


def progress_line(now: Progressed) -> str:
    """`120 of 700 ops (20 of them from before), 3 min left, …`. The time left is estimated from the time per op."""
    seconds = now.seconds / max(now.done, 1) * now.left
    left = f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
    before = f" ({now.kept} from before)" if now.kept else ""
    done = now.done + now.kept
    return f"{done} of {done + now.left} ops{before}, {left}, {counted(now.findings, 'finding')}, {now.new} new"
