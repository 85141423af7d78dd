"""`ddefuzz answers`: find by experiment which answer of a guard would fix a data-dependent error."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import rich_click as click
from rich.console import Group, RenderableType
from rich.text import Text

from ddefuzz.answers.experiment import experiment
from ddefuzz.answers.model import Experiment, Row, Verdict
from ddefuzz.cli.finding_id import resolve
from ddefuzz.cli.layout import Detailed, counted, folded, table
from ddefuzz.cli.options import db_option
from ddefuzz.cli.output import Page, Writer, deliver, output_options, plain, rendered
from ddefuzz.cli.progress import LiveLine
from ddefuzz.errors import InputError
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import CHEAP_TO_CALL, Stage
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding
from ddefuzz.ops import catalogue
from ddefuzz.program.text import print_program

SCHEMA = "ddefuzz.answers/1"

TITLES = ("answer", "captured", "agrees", "refuses", "differs", "accepts")


LEGEND = (
    "columns: data sizes at which the captured program agrees with eager, refuses inputs that eager takes, differs "
    "from eager, or accepts inputs that eager rejects",
    "sizes: example: as in the inputs; 0, 1, 2; equal: as a static size; all: the largest possible; random-…: drawn",
)

NOTHING_TO_ANSWER: dict[Verdict, str] = {
    "needs SymInt": "torch needs a number there, which no answer of a guard provides",
    "not a guard": "the program does not fail by a guard that cannot be decided",
}
"""Verdicts of programs without an experiment, and why there is none."""


class Target(NamedTuple):
    """A program to experiment with: the smallest of a finding, or that of a file."""

    name: str
    program: str
    stage: Stage
    is_finding: bool = False


@click.command("answers")
@click.argument("targets", metavar="[ID|FILE]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Try all findings of kind dde in the database.")
@click.option(
    "--stage",
    type=click.Choice(CHEAP_TO_CALL),
    metavar="STAGE",
    help=f"Capture in this stage: {', '.join(CHEAP_TO_CALL)}. Default: the finding's own; export for a FILE.",
)
@click.option("--timeout", default=60.0, show_default=True, metavar="SECONDS", help="Time limit of one run.")
@db_option
@output_options("text", "json")
def command(
    targets: tuple[str, ...],
    everything: bool,
    stage: Stage | None,
    timeout: float,
    db: str,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Try which answer of a guard would fix a data-dependent error.

    The first guard that cannot be decided is answered False, then True, then deferred to a run-time assertion. Each
    time the program is captured, and the captured program is compared with eager at all data sizes. The verdict is the
    smallest change that gives correct results: guard_or_false, guard_or_true or torch._check, or that none does.
    """
    if bool(targets) == everything:
        raise click.UsageError("expected an ID or a FILE, or else --all")
    with ExitStack() as stack:
        chosen = _targets(targets, everything, stage, db, stack)
        pool = stack.enter_context(Pool(1))
        live = stack.enter_context(LiveLine(f"answering for {counted(len(chosen), 'program')}"))
        done = []
        for target in chosen:
            done.append((target, experiment(target.program, target.stage, partial(pool.observe, timeout=timeout))))
            live.update(f"{len(done)} of {counted(len(chosen), 'program')}", is_last=target is chosen[-1])
    writers: dict[str, Writer] = {"text": lambda page: answers_page(done, page), "json": lambda _page: _document(done)}
    deliver(writers, format_, outputs)


def _targets(
    names: tuple[str, ...], everything: bool, stage: Stage | None, db: str, stack: ExitStack
) -> tuple[Target, ...]:
    files = [Path(name) for name in names if Path(name).is_file()]
    found = [Target(str(path), print_program(catalogue.read(path).program), stage or "export") for path in files]
    ids = [name for name in names if not Path(name).is_file()]
    if ids or everything:
        database = stack.enter_context(Database.open(db, create=False))
        findings = [resolve(database, name) for name in ids] or [
            one for one in database.findings() if one.kind == "dde" and (one.minimal or one.original)
        ]
        found += [_of_finding(finding, stage) for finding in findings]
    return tuple(found)


def _of_finding(finding: Finding, stage: Stage | None) -> Target:
    text = finding.minimal or finding.original
    if text is None:
        raise InputError(f"{finding.id}: found a finding of user code, expected one with a program")
    own = finding.evidence.observation.stage if finding.evidence is not None else "export"
    return Target(finding.id, text, stage or (own if own in CHEAP_TO_CALL else "aot"), is_finding=True)


def _document(done: list[tuple[Target, Experiment]]) -> str:
    rows: list[dict[str, Any]] = []
    verdicts = []
    for target, found in done:
        rows += [{"target": target.name, **msgspec.to_builtins(row)} for row in found.rows]
        verdicts.append(
            {
                "target": target.name,
                "stage": found.stage,
                "site": msgspec.to_builtins(found.site),
                "expression": found.expression,
                "verdict": found.verdict,
            }
        )
    return json.dumps({"schema": SCHEMA, "rows": rows, "verdicts": verdicts}, indent=2) + "\n"


def answers_page(done: list[tuple[Target, Experiment]], page: Page) -> str:
    """The table of answers of each program, its verdict, and what to type next."""
    parts: list[RenderableType] = []
    for target, found in done:
        needs = f" needs {found.expression}" if found.expression else ""
        parts.append(plain(f"{target.name}  {found.stage}  {found.site or ''}{needs}"))
        if found.rows:
            parts.append(table(TITLES, [_row(row) for row in found.rows], page.width, folding=TITLES[2:]))
        parts.append(Text(folded(f"verdict: {_verdict(found)}", page.width), style="bold"))
        parts.append(Text())
    if any(found.rows for _, found in done):
        parts += [Text(folded(line, page.width), style="dim") for line in LEGEND]
    if len(done) > 1:
        counts = Counter(found.verdict for _, found in done)
        verdicts = ", ".join(f"{number} {name}" for name, number in counts.most_common())
        parts.append(plain(f"{counted(len(done), 'program')}: {verdicts}"))
    if not done:
        return "no findings of kind dde with a program\n"
    first, call = done[0][0], page.invocation
    show = call.command("findings", "show", first.name)
    shown = show if first.is_finding else call.command("check", first.name, with_db=False)
    return f"{rendered(Group(*parts), page)}\nNext:\n  {shown}\n"


def _verdict(found: Experiment) -> str:
    """The verdict, and what it leaves open."""
    if found.verdict in NOTHING_TO_ANSWER:
        return f"{found.verdict}: nothing to answer, because {NOTHING_TO_ANSWER[found.verdict]}"
    right = {row.answer for row in found.rows if row.is_right}
    both = " (False and True both agree)" if {"False", "True"} <= right else ""
    return f"{found.verdict}{both}"


def _row(row: Row) -> Detailed:
    sizes = (row.agrees, row.refuses, row.differs, row.accepts)
    cells = [plain(row.answer), plain("yes" if row.captures else "no"), *(plain(" ".join(names)) for names in sizes)]
    then = "; ".join(f"also answered: {one}" for one in row.then)
    stopped = f"stopped by {row.stopped}" if row.stopped else ""
    return Detailed(cells, plain("; ".join(filter(None, (then, stopped)))))
