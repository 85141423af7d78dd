"""`ddefuzz sweep`: every op systematically, ending in the census: what fails, where, and upstream's list beside it."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

import msgspec
import rich_click as click
from rich.markup import escape
from rich.status import Status

from ddefuzz.cli.options import db_option, jobs_option
from ddefuzz.cli.output import Writer, deliver, output_options, progress_console
from ddefuzz.cli.progress import stop_on_interrupt
from ddefuzz.cli.sweep_document import html_page, markdown_page
from ddefuzz.cli.sweep_page import census_page
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED
from ddefuzz.findings.database import Database
from ddefuzz.sweep.census import Census
from ddefuzz.sweep.launch import Plan, sweep
from ddefuzz.sweep.sweep import Progressed

LINE_SECONDS = 10.0
"""How often a plain line is written where there is no terminal."""


@click.command("sweep")
@click.option(
    "--ops",
    "globs",
    metavar="GLOB",
    multiple=True,
    help="Only the ops of these names, such as 'chunk*' or 'linalg.*'; can be repeated. Default: all.",
)
@jobs_option
@click.option("--fresh", is_flag=True, help="Do again what an earlier sweep of this torch has done.")
@click.option(
    "--compare-upstream",
    is_flag=True,
    help="Hold the census against PyTorch's own list of ops that fail (common_ops_unbacked.ops_dde_xfail).",
)
@click.option("--fail-on", type=click.Choice(("any", "never")), metavar="WHAT", default="never", show_default=True,
              help="What makes the exit code 1: any (some op has a data-dependent error) or never.")  # fmt: skip
@db_option
@output_options("text", "json", "markdown", "html")
def command(
    globs: tuple[str, ...],
    jobs: int,
    fresh: bool,
    compare_upstream: bool,
    fail_on: str,
    db: str,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Sweep every op of the catalogue and of PyTorch's OpInfo, and take the census of what fails.

    Each sample call is tried with each dim unbacked and all of them, in several layouts, as out=, in place, as a method
    and backward. It is screened in the stage fake; what fails goes through a real capture stage. An interrupted sweep
    goes on where it was.
    """
    plan = Plan(globs=globs, jobs=jobs, anew=fresh, upstream=compare_upstream)
    with Database.open(db) as database, stop_on_interrupt() as stopped, Progress(jobs) as progress:
        census = sweep(plan, database, progress, progress.say, stopped)
    deliver(_writers(census), format_, outputs)
    if census.interrupted:
        raise SystemExit(EXIT_INTERRUPTED)
    if fail_on == "any" and census.totals.explicit.get("dde"):
        raise SystemExit(EXIT_FOUND)


def _writers(census: Census) -> dict[str, Writer]:
    return {
        "text": lambda page: census_page(census, page),
        "json": lambda _page: msgspec.json.format(msgspec.json.encode(census), indent=2).decode() + "\n",
        "markdown": lambda _page: markdown_page(census),
        "html": lambda _page: html_page(census),
    }


class Progress:
    """How far the sweep is, on stderr; called with each op done. Use it in a `with` block."""

    def __init__(self, jobs: int) -> None:
        self._console = progress_console()
        self._status: Status | None = None
        self._last = time.monotonic()
        self._starting = f"starting {jobs} workers (importing torch and its OpInfo takes some seconds)"

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._status = self._console.status(self._starting)
            self._status.start()
        else:
            self._console.print(self._starting)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, line: str) -> None:
        """Write a line."""
        self._console.print(escape(line), soft_wrap=True)

    def __call__(self, now: Progressed) -> None:
        """Show an op done, and how far the sweep is."""
        if now.note:
            self.say(now.note)
        line = progress_line(now)
        if self._status is not None:
            self._status.update(line)
        elif time.monotonic() - self._last >= LINE_SECONDS or not now.left:
            self._last = time.monotonic()
            self._console.print(line)


def progress_line(now: Progressed) -> str:
    """`120 of 700 ops (20 of them from before), 3 min left, …`: what is left takes as long as what was done, by op."""
    seconds = now.seconds / max(now.done, 1) * now.left
    left = f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
    before = f" ({now.kept} from before)" if now.kept else ""
    done = now.done + now.kept
    return f"{done} of {done + now.left} ops{before}, {left}, {now.findings} findings, {now.new} new"
