"""`ddefuzz sweep` and `ddefuzz recompiles`: test every op systematically, and print what fails."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import rich_click as click
from click import get_current_context
from click.core import ParameterSource

from ddefuzz.checking.acceptance import ACCEPTED
from ddefuzz.cli.check_op import EXAMPLES, IMPORTS, OP_BUDGET, checked_ops, deliver_ops
from ddefuzz.cli.command import SECONDS, Output, ValueType, click_command, formats, option
from ddefuzz.cli.options import ADDRESS, DB, ENGINE, JOBS, engine_of, oracles_option
from ddefuzz.cli.output import (
    LiveLine,
    Writer,
    current_invocation,
    deliver,
    page_writers,
    stop_on_interrupt,
    writers_of,
)
from ddefuzz.custom_ops.model import OpTask, Source
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED, InputError
from ddefuzz.escape import json_text, whole_number
from ddefuzz.execute.engine import Engine, EngineName
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.oracles.program import CAPTURE
from ddefuzz.oracles.recompilation import MODES, Mode
from ddefuzz.oracles.table import NAMES
from ddefuzz.show.blocks import counted
from ddefuzz.show.markdown import markdown
from ddefuzz.show.table import NAMES as FORMAT_NAMES
from ddefuzz.sweep.breaks import PROGRAMS, OpBreaks, breaks_view, sweep_breaks
from ddefuzz.sweep.census import Census, census_document, census_view, sweep_report
from ddefuzz.sweep.recompile import (
    FORMS,
    REFERENCE_SIZES,
    Form,
    OpRecompilations,
    RecompileTask,
    recompiles_report,
    recompiles_text,
    recompiles_view,
)
from ddefuzz.sweep.recompile import (
    recompiles as count_compilations,
)
from ddefuzz.sweep.sweep import DEFAULT_CAPS, PLACED, Plan, SweepProgress, progress_line, sweep


def _sizes(value: object) -> tuple[int, ...]:
    sizes = tuple(whole_number(part) or 0 for part in str(value).split(","))
    if len(sizes) < 2 or not all(1 < size < 10_000 for size in sizes):
        raise InputError(f"found {str(value)[:60]!r}, expected sizes from 2 such as 5,7,9,11")
    return sizes


@click_command("recompiles")
def recompiles(
    globs: tuple[str, ...] = option("Count only ops that match, such as topk or 'linalg.*'.", "--ops", metavar="GLOB"),
    sizes: tuple[int, ...] = option(
        "The sizes of the calls, in this order.",
        default=",".join(map(str, REFERENCE_SIZES)),
        type_=ValueType("N,N,…", _sizes),
        metavar="N,N",
        many=False,
    ),
    modes: tuple[Mode, ...] = option(
        "default (torch.compile's own settings), dynamic (dynamic=True), marked (dims that differ are marked dynamic) "
        "or unbacked (they are marked unbacked).",
        default=MODES,
    ),
    forms: tuple[Form, ...] = option(
        "plain (a function), out (with out=), method, in-place (the method that changes its first argument) or module "
        "(nn.Modules with buffers).",
        default=FORMS,
    ),
    db: DatabaseUrl | None = option(
        "Record needless compilations as findings in this database. `ddefuzz minimize --all` then minimizes and "
        "confirms them."
    ),
    keep: Path | None = option(
        "Append each result to FILE. Ops that have a result in it are not counted again.", metavar="FILE"
    ),
    fail_on: str = option(
        "Exit with code 1 if a function compiles more often than allowed (any), or never.",
        default="never",
        type_=("any", "never"),
        metavar="WHAT",
    ),
    jobs: int = JOBS,
    output: Output = formats("text", "json", "jsonl", "markdown", "html", "junit", "csv"),
) -> None:
    """Count how often torch.compile compiles each op with out= over calls of different sizes.

    Each op is called with out= and without. One compilation is allowed for each specialization key: dtype, device,
    layout, and which sizes are 0 or 1. With default settings one more is allowed, because the first graph is static.
    For an op that compiles more often, the output names the guard that failed and the code that made it.
    """
    with stop_on_interrupt() as stopped, LiveLine("starting workers (importing OpInfo takes some seconds)") as live:
        asked = RecompileTask("", sizes, modes, forms, record=db is not None)
        result, sightings = count_compilations(globs, asked, jobs, keep, partial(_tell, live), stopped)
        if db is not None:
            with Database.open(db) as database, database.transaction():
                ids = {database.record(one, datetime.now(UTC)).finding_id for one in sightings}
            live.say(f"{counted(len(ids), 'finding')} in {db}: {', '.join(sorted(ids))}")
    writers: dict[str, Writer] = {
        "text": recompiles_text(result),
        "json": json_text(result, indent=True) + "\n",
        "markdown": lambda _page: markdown(recompiles_view(result)),
    }
    is_above = fail_on == "any" and any(row.is_above for row in result.rows)
    exits = {EXIT_INTERRUPTED: result.interrupted, EXIT_FOUND: is_above}
    deliver(writers_of(recompiles_report(result)) | writers, output, exits)


def _tell(live: LiveLine, done: int, of: int, row: OpRecompilations | OpBreaks) -> None:
    live.update(f"{done} of {counted(of, 'op')}, {row.op}", is_last=done == of)


@click_command("sweep")
def command(
    globs: tuple[str, ...] = option(
        "Only ops whose name matches, such as 'chunk*' or 'linalg.*', or custom ops ('mylib::*'). Default: all ops of "
        "torch.",
        "--ops",
        metavar="GLOB",
    ),
    imports: tuple[str, ...] = IMPORTS,
    examples: str = EXAMPLES,
    budget: float | None = option(
        f"CPU seconds of one custom op. Default: {OP_BUDGET:.0f}.", type_=SECONDS, metavar="SECONDS"
    ),
    jobs: int = JOBS,
    engine: EngineName = ENGINE,
    address: str = ADDRESS,
    fresh: bool = option("Ignore the results of earlier sweeps with this torch."),
    compare_upstream: bool = option(
        "Compare the result with PyTorch's own list of failing ops (common_ops_unbacked.ops_dde_xfail)."
    ),
    placements: bool = option(
        "Compile a few samples of each op of OpInfo with DTensors as inputs, on a mesh of 4 processes that need not "
        "exist: each input is whole or sharded over one of its dims, and all dims are unbacked."
    ),
    breaks: bool = option(
        "Count graph breaks instead: a few samples of each op are compiled with fullgraph=False, all dims unbacked."
    ),
    programs: int | None = option(
        f"With --breaks: compile at most N samples of each op. Default: {PROGRAMS}.",
        type_=click.IntRange(min=1),
        metavar="N",
    ),
    oracles: tuple[str, ...] = oracles_option(
        "With another oracle than capture, each sample is captured in one stage, in turn, and called.", CAPTURE
    ),
    fail_on: str = option(
        "Exit with code 1 if an op has a data-dependent error or is captured wrong (any), or never.",
        default="never",
        type_=("any", "never"),
        metavar="WHAT",
    ),
    db: DatabaseUrl = DB,
    output: Output = formats("text", *FORMAT_NAMES),
) -> None:
    """Test every op of PyTorch's OpInfo and of the catalogue, and report which fail.

    Each sample call is tried in several forms: with one dim unbacked, with all dims unbacked, with a number that is
    read from a tensor, with other layouts, with out=, in place, as a method, and with its gradient. It runs under
    FakeTensorMode first. A call that fails there is also captured, and what fails then is saved as a finding.

    A custom op (LIB::OP) has its fake kernel compared with the real one at many sizes, with unbacked sizes
    (docs/custom-ops.md). What is wrong is no finding, and the list of accepted problems is findings/accepted.toml.

    An interrupted sweep continues where it stopped.

    \b
    Examples:
      ddefuzz sweep --ops 'linalg.*'
      ddefuzz sweep --ops 'torchvision::*' --import torchvision
      ddefuzz sweep --compare-upstream
    """
    if any(map(_OF_LIBRARY.match, globs)):
        others = ("breaks", "programs", "placements", "compare_upstream", "oracles", "engine", "address")
        _refuse("found --ops LIB::OP with {}, expected it without", *others)
        if not all(map(_OF_LIBRARY.match, globs)):
            raise click.UsageError("found --ops with custom ops (LIB::OP) and others, expected one of the two")
        options = OpTask(Source(imports, examples), "", budget=budget or OP_BUDGET)
        deliver_ops(checked_ops(globs, options, ACCEPTED, db, jobs, fresh=fresh), output, fails=fail_on == "any")
        return
    _refuse("found {} without --ops LIB::OP, expected both", "imports", "examples", "budget")
    where, jobs = engine_of(engine, address, jobs)
    if breaks:
        _refuse("found --breaks with {}, expected it without", "compare_upstream", "placements", "fail_on")
        _count_breaks(globs, jobs, programs or PROGRAMS, db, fresh, where, output)
        return
    if programs is not None:
        raise click.UsageError("found --programs without --breaks, expected both")
    if placements:
        _refuse("found --placements with {}, expected it without", "compare_upstream")
    chosen = tuple(name for name in NAMES if name in {*CAPTURE, *oracles})
    caps = PLACED if placements else DEFAULT_CAPS
    plan = Plan(globs, caps, jobs, fresh=fresh, upstream=compare_upstream, oracles=chosen, engine=where)
    with Database.open(db) as database, stop_on_interrupt() as stopped, LiveLine(_starting(jobs)) as line:
        census = sweep(plan, database, partial(_show, line), line.say, stopped)
    fails = fail_on == "any" and bool(census.totals.explicit.get("dde") or census.totals.wrong)
    deliver(census_writers(census), output, {EXIT_INTERRUPTED: census.interrupted, EXIT_FOUND: fails})


_OF_LIBRARY = re.compile(r"[\w*?]+::")
"""How the glob of a custom op begins. A template of the catalogue has brackets before such colons (`x[::k]`)."""


def _refuse(line: str, *names: str) -> None:
    """Raise click's error if one of these options was typed: `line`, with the option in it."""
    context = get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(line.format(parameter.opts[0]))


def census_writers(census: Census) -> dict[str, Writer]:
    """The formats of all reports. Text, Markdown and HTML are the census's own pages."""
    title = f"Census of data-dependent errors, torch {census.torch}"
    return {
        **writers_of(sweep_report(census)),
        **page_writers(title, census_document(census), census, indent=True),
        "text": page_writers("", census_view(census, current_invocation()))["text"],
    }


def _show(line: LiveLine, now: SweepProgress) -> None:
    """Report an op that is done, and the progress of the sweep."""
    if now.note:
        line.say(now.note)
    line.update(progress_line(now), is_last=not now.left)


BREAKS_FORMATS = ("text", "json", "markdown", "html")


def _count_breaks(
    globs: tuple[str, ...],
    jobs: int,
    programs: int,
    db: DatabaseUrl,
    fresh: bool,
    engine: Engine,
    output: Output,
) -> None:
    """Count graph breaks, and print the tables."""
    for name in sorted(output.formats.difference(BREAKS_FORMATS)):
        raise click.UsageError(f"found --breaks with the format {name}, expected one of {', '.join(BREAKS_FORMATS)}")
    with Database.open(db) as database, stop_on_interrupt() as stopped, LiveLine(_starting(jobs)) as live:
        census = sweep_breaks(
            globs, jobs, database, partial(_tell, live), stopped, engine, programs=programs, fresh=fresh
        )
    writers = page_writers(f"Graph breaks: torch {census.torch}", breaks_view(census), census, indent=True)
    deliver(writers, output, {EXIT_INTERRUPTED: census.interrupted})


def _starting(jobs: int) -> str:
    started = counted(jobs, "worker") if jobs else "the workers of each node"
    return f"starting {started} (importing torch and its OpInfo takes some seconds)"
