"""`ddefuzz recompiles`: count how often torch.compile compiles each op with out= over calls of different sizes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import rich_click as click

from ddefuzz.cli.options import URL, jobs_option, option
from ddefuzz.cli.output import Output, Writer, deliver, output_options
from ddefuzz.cli.progress import LiveLine, stop_on_interrupt
from ddefuzz.cli.report import writers_of
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED
from ddefuzz.escape import json_text
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.oracles import recompilation
from ddefuzz.oracles.recompilation import MODES, Mode
from ddefuzz.show.blocks import counted
from ddefuzz.show.markdown import markdown
from ddefuzz.show.record import Outcome, Report, Result, Rule
from ddefuzz.sweep.recompile import (
    FORMS,
    REFERENCE_SIZES,
    Form,
    Recompilations,
    Recompiled,
    RecompileTask,
    Row,
    recompiles,
)
from ddefuzz.sweep.recompile_view import FORM_TITLES, mode_of, recompiles_text, recompiles_view


class Sizes(click.ParamType[tuple[int, ...]]):
    """At least two sizes of 2 or more, with commas between."""

    name = "N,N,…"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The sizes. Anything else is a usage error."""
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        if len(parts) < 2 or not all(part.isdigit() and 1 < int(part) < 10_000 for part in parts):
            self.fail(f"found {value!r}, expected sizes from 2 such as 5,7,9,11", param, ctx)
        return tuple(map(int, parts))


@click.command("recompiles")
@option(
    "--ops",
    "Count only ops that match, such as topk or 'linalg.*'.",
    into="globs",
    metavar="GLOB",
    many=True,
)
@click.option(
    "--sizes",
    type=Sizes(),
    metavar="N,N",
    default=REFERENCE_SIZES,
    help=f"The sizes of the calls, in this order. [default={','.join(map(str, REFERENCE_SIZES))}]",
)
@option(
    "--mode",
    "default (torch.compile's own settings), dynamic (dynamic=True), marked (dims that differ are marked dynamic) or "
    "unbacked (they are marked unbacked).",
    MODES,
    into="modes",
    metavar="MODE",
    default=MODES,
    many=True,
)
@option(
    "--form",
    "plain (a function), out (with out=), method, in-place (the method that changes its first argument) or module "
    "(nn.Modules with buffers).",
    FORMS,
    into="forms",
    metavar="FORM",
    default=FORMS,
    many=True,
)
@option(
    "--db",
    "Record needless compilations as findings in this database. `ddefuzz minimize --all` then minimizes and confirms "
    "them.",
    URL,
)
@option(
    "--keep",
    "Append each result to FILE. Ops that have a result in it are not counted again.",
    click.Path(path_type=Path),
    metavar="FILE",
)
@option(
    "--fail-on",
    "Exit with code 1 if a function compiles more often than allowed (any), or never.",
    ("any", "never"),
    metavar="WHAT",
    default="never",
)
@jobs_option
@output_options("text", "json", "jsonl", "markdown", "html", "junit", "csv")
def command(
    globs: tuple[str, ...],
    sizes: tuple[int, ...],
    modes: tuple[Mode, ...],
    forms: tuple[Form, ...],
    db: DatabaseUrl | None,
    keep: Path | None,
    fail_on: str,
    jobs: int,
    output: Output,
) -> None:
    """Count how often torch.compile compiles each op with out= over calls of different sizes.

    Each op is called with out= and without. One compilation is allowed for each specialization key: dtype, device,
    layout, and which sizes are 0 or 1. With default settings one more is allowed, because the first graph is static.
    For an op that compiles more often, the output names the guard that failed and the code that made it.
    """
    with stop_on_interrupt() as stopped, LiveLine("starting workers (importing OpInfo takes some seconds)") as live:

        def tell(done: int, of: int, one: Recompiled) -> None:
            live.update(f"{done} of {counted(of, 'op')}, {one.op}", is_last=done == of)

        asked = RecompileTask("", sizes, modes, forms, record=db is not None)
        found, sightings = recompiles(globs, asked, jobs, keep, tell, stopped)
        if db is not None:
            with Database.open(db) as database, database.transaction():
                ids = {database.record(one, datetime.now(UTC)).finding_id for one in sightings}
            live.say(f"{counted(len(ids), 'finding')} in {db}: {', '.join(sorted(ids))}")
    deliver(writers(found), output)
    if found.interrupted:
        raise SystemExit(EXIT_INTERRUPTED)
    if fail_on == "any" and any(row.is_above for row in found.rows):
        raise SystemExit(EXIT_FOUND)


def writers(found: Recompilations) -> dict[str, Writer]:
    """The formats: a page of its own for Markdown, else those of every report."""
    return {
        **writers_of(report_of(found)),
        "text": recompiles_text(found),
        "json": json_text(found, indent=True) + "\n",
        "markdown": lambda _page: markdown(recompiles_view(found)),
    }


def report_of(found: Recompilations) -> Report:
    """A result for each function and mode: failed if it compiles too often, skipped if an error ends it."""
    return Report(
        title=f"ddefuzz recompiles: {counted(len({row.op for row in found.rows}), 'op')}",
        torch=found.torch,
        rules=tuple(Rule(kind, row.meaning) for kind, row in recompilation.KINDS.items()),
        results=tuple(_result(row) for row in found.rows),
        facts=tuple(f"{counted(len(group.ops), 'op')} by {group.frame}" for group in found.groups),
        document=msgspec.to_builtins(found),
        records=tuple(msgspec.to_builtins(row) for row in found.rows),
    )


def _result(row: Row) -> Result:
    outcome: Outcome = "failed" if row.is_above else "skipped" if row.error else "passed"
    name, mode = f"{row.op}{FORM_TITLES[row.form]}", mode_of(row)
    path, _, line = row.line.rpartition(":")
    return Result(
        id=f"{recompilation.KIND}/{name}/{mode}",
        rule=recompilation.KIND,
        outcome=outcome,
        title=f"{name} ({mode}): {row.compilations} compilations, {row.allowed} allowed",
        message=row.error or row.guard,
        site=row.frame,
        site_path=path if path.startswith("torch/") else "",
        site_line=int(line) if path.startswith("torch/") and line.isdigit() else 0,
    )
