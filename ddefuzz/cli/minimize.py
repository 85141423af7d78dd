"""`ddefuzz minimize`: find the smallest program with the same signature, for a finding or a program in a file."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import rich_click as click

from ddefuzz.campaign.minimize import (
    can_be_minimized,
    minimize_start,
    model_named,
    outcome_of,
    renew,
    save_renewed,
    start_of_file,
    start_of_finding,
    start_of_model,
)
from ddefuzz.cli.command import Output, argument, click_command, formats, option
from ddefuzz.cli.options import DB, JOBS, TRUST, capture_stage_option, timeout_option
from ddefuzz.cli.output import deliver, resolve, stop_on_interrupt
from ddefuzz.cli.streams import say, write_line, write_stdout
from ddefuzz.errors import EXIT_FOUND
from ddefuzz.escape import json_text
from ddefuzz.execute.engine import LocalWorkers
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import Stage
from ddefuzz.files import is_file
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.internal import guarded
from ddefuzz.show.blocks import counted


@click_command("minimize")
def command(
    target: str | None = argument("ID|FILE|FILE:NAME"),
    everything: bool = option("Shrink all findings of the database, in order of id.", "--all"),
    after: str = option("For --all: begin after this id.", default="", metavar="ID"),
    jobs: int = JOBS,
    stage: Stage | None = capture_stage_option(
        "For a FILE: the stage in which it fails. Default: the first of export, export-strict and compile that fails."
    ),
    from_original: bool = option("For an ID: start from the original program instead of the smallest one so far."),
    max_attempts: int = option("Stop after N captures of a finding.", default=500, metavar="N"),
    timeout: float = timeout_option(60.0, "one capture (with --all: of one finding)"),
    trust: bool = TRUST,
    db: DatabaseUrl = DB,
    output: Output = formats("text", "json"),
) -> None:
    """Shrink a program while it still fails in the same way.

    ID is a finding: its program is shrunk. FILE has a program. FILE:NAME is your own model, as for `ddefuzz check`: the
    calls of torch that lead to its failure are written as a program without your code, and this program is shrunk.

    A smaller program fails in the same way if its failure has the same signature: kind, site and anchor. For a finding,
    each smaller program is saved at once, also before Ctrl-C.

    With --all, each finding starts from its smallest program so far. It keeps that program if no smaller one fails in
    the same way in a fresh process. The output has one line for each finding.

    Exit code 1: the smallest program does not fail in the same way in fresh processes.

    \b
    Examples:
      ddefuzz minimize dde-08f7b02bbb
      ddefuzz minimize model.py:make_model
    """
    if everything:
        if target is not None or stage or from_original or trust:
            raise click.UsageError(
                "found --all with ID|FILE, --stage, --from-original or --trust, expected --all without them"
            )
        with Database.open(db, create=False) as database:
            _minimize_all(database, after, jobs, max_attempts, timeout, output.format)
        return
    if target is None or after:
        raise click.UsageError("found no ID|FILE, or --after without --all; expected ID, FILE or --all [--after ID]")
    with ExitStack() as stack:
        model, stored = model_named(target), None
        if model is None and not is_file(Path(target)):
            database = stack.enter_context(Database.open(db, create=False))
            stored = database, resolve(database, target)
        stopped = stack.enter_context(stop_on_interrupt())
        pool = stack.enter_context(Pool(1))
        if stored is not None:
            start = start_of_finding(stored[1], max_attempts, from_original=from_original, trust=trust)
        elif model is not None:
            start = start_of_model(model, stage, pool, timeout, max_attempts)
        else:
            start = start_of_file(Path(target), stage, pool, timeout, max_attempts)
        outcome = minimize_start(start, pool, timeout, _say_progress, stopped, stored)
    more = "; stopped at --max-attempts" if outcome.exhausted else ""
    shows = start.suspect.signature
    say(
        f"{shows.kind} in {shows.site} [{shows.anchor}]: {counted(outcome.steps, 'operation')} "
        f"after {counted(outcome.attempts, 'capture')}, shown in {outcome.confirmed} fresh processes{more}"
    )
    writers = {"text": outcome.program, "json": json_text(outcome) + "\n"}
    deliver(writers, output, {EXIT_FOUND: outcome.confirmed.k < outcome.confirmed.n})


def _say_progress(captures: int, operations: int) -> None:
    say(f"{counted(captures, 'capture')}: {counted(operations, 'operation')}")


def _minimize_all(database: Database, after: str, jobs: int, max_attempts: int, timeout: float, format_: str) -> None:
    """Minimize the findings with ids after `after`. Each is saved as soon as it is confirmed."""
    findings = [finding for finding in database.findings() if can_be_minimized(finding) and finding.id > after]
    counts: Counter[str] = Counter()
    done = after
    try:
        with TemporaryDirectory(prefix="ddefuzz-") as journal, LocalWorkers(jobs, Path(journal)) as workers:
            for renewed in renew(findings, workers, Path(journal), max_attempts=max_attempts, timeout=timeout):
                with guarded(renewed.finding.id):
                    save_renewed(database, renewed)
                counts[renewed.status] += 1
                done = renewed.finding.id
                captures = f" after {counted(renewed.result.attempts, 'capture')}" if renewed.result else ""
                line = f"{renewed.finding.id} {renewed.status}{captures}"
                if format_ == "text":
                    write_line(line)
                else:
                    write_stdout(json_text(outcome_of(renewed)) + "\n", is_document=True)
    finally:
        listed = ", ".join(f"{number} {status}" for status, number in sorted(counts.items())) or "none done"
        say(f"{counted(counts.total(), 'finding')} of {len(findings)}: {listed}")
        if counts.total() < len(findings):
            say(f"the others: --all --after {done}" if done else "the others: --all")
