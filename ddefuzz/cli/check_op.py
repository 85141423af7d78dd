"""`ddefuzz check-op`: compare the fake kernels of custom ops with the real ones at all sizes."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ddefuzz.artifacts.model import version
from ddefuzz.checking.acceptance import ACCEPTED, holding, read_accepted
from ddefuzz.cli.command import SECONDS, Output, PathType, argument, click_command, formats, option
from ddefuzz.cli.options import JOBS, seed_option
from ddefuzz.cli.output import LiveLine, deliver, page_writers, stop_on_interrupt, writers_of
from ddefuzz.custom_ops.check import START_SECONDS, Store, check_ops, chosen_checks, with_accepted
from ddefuzz.custom_ops.model import CHECKS, OpsReport, OpTask, Source
from ddefuzz.custom_ops.report import ops_report, ops_view
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED, EXIT_USAGE, InputError, NothingRanError
from ddefuzz.execute.pool import Pool, first_answer
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.show.table import NAMES as FORMAT_NAMES

EXAMPLES = option(
    "Where example arguments of custom ops are: a dict EXAMPLES of lists by the names of ops, or the dict NAME.",
    default="",
    metavar="FILE[:NAME]",
)
IMPORTS = option("Import a module or a file that registers custom ops.", "--import", metavar="MODULE")
OP_BUDGET = 30.0
"""CPU seconds of one op."""


@click_command("check-op")
def command(
    ops: tuple[str, ...] = argument("[LIB::OP]..."),
    examples: str = EXAMPLES,
    imports: tuple[str, ...] = IMPORTS,
    without: tuple[str, ...] = option(f"Leave out a check: {', '.join(CHECKS)}.", metavar="CHECK"),
    budget: float = option("CPU seconds of one op.", default=OP_BUDGET, type_=SECONDS),
    seed: int = seed_option("sizes"),
    accepted: Path | None = option(
        "Problems in this file do not fail. Default: findings/accepted.toml.",
        type_=PathType(dir_okay=False),
        metavar="FILE",
    ),
    db: DatabaseUrl | None = option("Keep the result of each op in this database, and use those that are there."),
    fresh: bool = option("With --db: ignore the results of earlier checks.", default=False),
    jobs: int = JOBS,
    output: Output = formats("text", *FORMAT_NAMES),
) -> None:
    """Check custom ops: fake kernels at every size, and what their schemas say.

    The fake kernel runs with unbacked sizes. What it says of the result (sizes, strides, dtype, aliases, bounds of
    dynamic sizes) is compared with what the real kernel returns at many sizes, in other layouts and dtypes. Writes,
    aliases, the autograd formula, the vmap rule and the out= overload of the real kernel are compared with what they
    have to be. docs/custom-ops.md says what each check means.

    LIB::OP may be a glob such as 'mylib::*'. Without any, the ops that have examples are checked. An example is a tuple
    of arguments, a pair (tuple, dict), or a function of sizes that returns one. Without examples, arguments are drawn
    from the schema. The code of the libraries and of the examples is executed.

    With --db, an interrupted check continues where it stopped. An op is checked again when a file that the library or
    the examples were loaded from has changed.

    Exit code 1: an op is wrong. Exit code 2: an op cannot be judged: it does not exist, has no fake kernel, or no
    arguments fit.

    \b
    Examples:
      ddefuzz check-op mylib::crop --examples test_ops.py
      ddefuzz check-op 'torchvision::*' --import torchvision
    """
    options = OpTask(Source(imports, examples), "", chosen_checks(without, "--without"), budget, seed)
    deliver_ops(checked_ops(ops, options, accepted or ACCEPTED, db, jobs, fresh=fresh), output)


def checked_ops(
    names: Sequence[str], options: OpTask, accepted: Path, db: DatabaseUrl | None, jobs: int, *, fresh: bool
) -> OpsReport:
    """Check the ops that the names mean. With a database, results are kept there, and those that are there are used
    unless `fresh`. Problems in the file `accepted` say so.
    """
    accepting = read_accepted(accepted)
    with ExitStack() as stack:
        stopped = stack.enter_context(stop_on_interrupt())
        store = None if db is None else Store(stack.enter_context(Database.open(db)), fresh)
        live = stack.enter_context(LiveLine("starting workers (importing torch takes some seconds)"))
        pool = stack.enter_context(Pool(jobs, samples=False))
        torch = first_answer(pool.submit(version, "torch", START_SECONDS), stopped)
        report = check_ops(pool, names, options, torch, store, stopped, live.update)
    if not report.ops:
        raise NothingRanError("interrupted before the first op was checked")
    if len(report.ops) == 1 and report.ops[0].reason and not report.ops[0].problems:
        raise InputError(report.ops[0].reason)
    return with_accepted(report, holding(accepting, datetime.datetime.now(datetime.UTC).date()))


def deliver_ops(report: OpsReport, output: Output, *, fails: bool = True) -> None:
    """Write the report. With `fails`, an op that is wrong is exit code 1."""
    pages = page_writers("ddefuzz check-op", ops_view(report), report, indent=True)
    deliver(
        writers_of(ops_report(report)) | pages,
        output,
        {
            EXIT_INTERRUPTED: report.interrupted,
            EXIT_USAGE: any(one.reason for one in report.ops),
            EXIT_FOUND: fails and any(one.failing for one in report.ops),
        },
    )
