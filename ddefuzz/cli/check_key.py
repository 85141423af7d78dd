"""`ddefuzz check-key`: try a key function of a kernel cache on drawn tensors."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import rich_click as click

from ddefuzz.cli.command import Output, argument, click_command, formats, option
from ddefuzz.cli.options import timeout_option
from ddefuzz.cli.output import LiveLine, Page, Writer, deliver
from ddefuzz.errors import EXIT_FOUND, EXIT_USAGE
from ddefuzz.escape import json_text
from ddefuzz.execute.pool import LostTask, Pool
from ddefuzz.execute.protocol import KeySubject, Run
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import sighting
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.keys.argument_lists import NOTES, row_of
from ddefuzz.keys.case import KeyCase, KeyReport, Options, PairKind, SizeParts, StrideParts, print_key
from ddefuzz.oracles import keys
from ddefuzz.oracles.keys import PROPERTY_SECONDS, check_key
from ddefuzz.oracles.program import Trial, judge_run
from ddefuzz.show.blocks import counted
from ddefuzz.show.terminal import folded


def _flag(name: str, default: bool, what: str) -> Any:
    return option(f"Whether the key must distinguish {what}.", f"--{name}/--no-{name}", default=default)


@click_command("check-key")
def command(
    target: str = argument(),
    examples: int = option(
        "Number of tensors or pairs that each property is tried on.", default=300, type_=click.IntRange(1), metavar="N"
    ),
    sizes: SizeParts = option("Which sizes the key must distinguish: all, or only 0, 1, and 2 or more.", default="all"),
    strides: StrideParts = option(
        "Which strides the key must distinguish: all, only their pattern (0, 1, order, dense), or none.", default="all"
    ),
    divisible: bool = _flag("divisible", False, "sizes that are divisible by 16 from others"),
    alignment: bool = _flag("alignment", True, "data at an address that is divisible by 16 from other data"),
    dtype: bool = _flag("dtype", True, "dtypes"),
    device: bool = _flag("device", True, "devices"),
    requires_grad: bool = _flag("requires-grad", True, "tensors that require a gradient from others"),
    parameter: bool = _flag("parameter", False, "a Parameter from a tensor; if not, it may"),
    inference: bool = _flag("inference", False, "tensors made in inference mode from others; if not, it may"),
    aliasing: bool = _flag("aliasing", True, "arguments that overlap in memory from others, if it takes several"),
    values: bool = _flag("values", True, "arguments that are no tensors by type and value, if it takes several"),
    kinds: tuple[str, ...] = option("Draw only this kind of tensors, such as tensor, parameter or sparse."),
    timeout: float = timeout_option(PROPERTY_SECONDS, "one property"),
    db: DatabaseUrl | None = option("Record each violation as a finding in this database."),
    output: Output = formats("text", "json"),
) -> None:
    """Check a function that makes the keys of a cache of compiled kernels.

    TARGET is MODULE:FUNCTION or FILE:FUNCTION, a function of one or several arguments that returns their key. Its code
    is executed. Each property is tried on systematic pairs, of which a table says the kinds, and on drawn tensors of
    every dtype, layout and kind. A violation is printed with the tensors that show it, and the exit code is 1.

    A property is not judged if the function ends its process, or takes too long. Then the exit code is 2.

    With --db, each violation is a finding: the kind says which property is violated. `ddefuzz findings show`, `replay`
    and `minimize` take it.

    Examples: `ddefuzz.keys.key:key` is correct. The functions in `ddefuzz.keys.planted` have planted faults.
    """
    options = Options(
        sizes, strides, divisible, alignment, dtype, device, requires_grad, parameter, inference, aliasing, values
    )
    with ExitStack() as stack:
        database = None if db is None else stack.enter_context(Database.open(db))
        live = stack.enter_context(LiveLine("starting a worker (importing torch takes some seconds)"))
        pool = stack.enter_context(Pool(1, samples=False))
        checked = check_key(pool, target, options, examples, kinds, timeout, live.update)
        if database is not None:
            live.say(_recorded(database, checked, pool))
    writers: dict[str, Writer] = {
        "text": lambda page: key_text(checked, page),
        "json": json_text(checked, indent=True) + "\n",
    }
    is_violated = any(one.violations for one in checked.properties)
    deliver(writers, output, {EXIT_USAGE: any(one.reason for one in checked.properties), EXIT_FOUND: is_violated})


def _recorded(database: Database, checked: KeyReport, pool: Pool) -> str:
    """Record each violation, and say which findings are new."""
    now = datetime.now(UTC)
    recorded: dict[str, bool] = {}
    with database.transaction():
        for checks, violation in [(found, one) for found in checked.properties for one in found.violations]:
            text = print_key(KeyCase(checked.function, checks.name, checked.options, violation.drawn, violation.given))
            trial = Trial(Run(KeySubject(text, trust=True), keys.STAGE.name), (keys.ORACLE.name,), ())
            tried = pool.submit(judge_run, trial, PROPERTY_SECONDS).result()
            for failure in () if isinstance(tried, LostTask) else tried.failures:
                result = database.record(sighting(failure, text, "", checked.torch), now)
                recorded[result.finding_id] = result.is_new
                if result.is_new:
                    database.set_minimal(
                        result.finding_id, text, steps=len(violation.drawn or violation.given), attempts=checks.tried
                    )
    listed = ", ".join(f"{name} ({'new' if is_new else 'known'})" for name, is_new in sorted(recorded.items()))
    return f"{counted(len(recorded), 'finding')} in {database.url}{': ' if listed else ''}{listed}"


def key_text(checked: KeyReport, page: Page) -> str:
    """The kinds of systematic pairs. Then one line for each property; below it the smallest violation."""
    lines: list[str] = []
    for tried in checked.properties:
        if tried.reason:
            lines.append(f"not judged {tried.name}: {tried.reason}")
            continue
        verdict = "violated" if tried.violations else "ok"
        lines.append(f"{verdict:9} {tried.name}: {tried.meaning} ({counted(tried.tried, 'try', 'tries')})")
        for violation in tried.violations:
            texts = [violation.why, *(f"tensor {text}" for text in violation.tensors)]
            texts += [f"key    {text}" for text in violation.keys]
            row = row_of(violation.given, guarded=tried.name == "adds-no-guard")
            texts += [f"names  {NOTES[row.setup]}"] if row is not None and row.setup in NOTES else []
            lines += [f"          {line}" for text in texts for line in folded(text, page.width - 10).split("\n")]
    violated = sum(bool(one.violations) for one in checked.properties)
    title = f"{checked.function}, torch {checked.torch}"
    last = f"{violated} of {counted(len(checked.properties), 'property', 'properties')} violated"
    return "\n".join([title, *_pairs_table(checked), "", *lines, "", last]) + "\n"


def _pairs_table(checked: KeyReport) -> list[str]:
    """A line for each kind of systematic pairs: how many need different or equal keys, and how many have not."""
    by_name = {tried.name: {row.kind: row for row in tried.covered} for tried in checked.properties}
    apart, shared = by_name.get("tells-apart", {}), by_name.get("shares", {})
    none = PairKind("", 0, 0, 0, 0)
    lines = ["", "   differ    equal    wrong  no key  systematic pairs"] if apart or shared else []
    for kind in dict.fromkeys([*apart, *shared]):
        differ, equal = apart.get(kind, none), shared.get(kind, none)
        raised = max(differ.raised, equal.raised)
        lines.append(f"{differ.pairs:9,}{equal.pairs:9,}{differ.wrong + equal.wrong:9,}{raised:8,}  {kind}")
    return lines
