"""`ddefuzz check-key`: try a key function of a kernel cache on drawn tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_args

import rich_click as click

from ddefuzz.cli.options import URL
from ddefuzz.cli.output import Page, deliver, output_options
from ddefuzz.cli.progress import LiveLine
from ddefuzz.errors import EXIT_FOUND
from ddefuzz.escape import json_text
from ddefuzz.execute.protocol import KeySubject, Run
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Sighting, sighting
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.keys.case import KeyCase, Options, SizeParts, StrideParts, print_key
from ddefuzz.oracles import keys
from ddefuzz.oracles.program import Trial, judge_run
from ddefuzz.show.blocks import counted
from ddefuzz.show.terminal import folded

Command = TypeVar("Command", bound=Callable[..., Any])


def _flag(name: str, default: bool, said: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}/--no-{name}", default=default, show_default=True, help=said)


@click.command("check-key")
@click.argument("target")
@click.option("--examples", type=click.IntRange(1), metavar="N", default=300, show_default=True,
              help="Number of tensors or pairs that each property is tried on.")  # fmt: skip
@click.option("--sizes", type=click.Choice(get_args(SizeParts)), default="all", show_default=True,
              help="Which sizes the key must distinguish: all, or only 0, 1, and 2 or more.")  # fmt: skip
@click.option("--strides", type=click.Choice(get_args(StrideParts)), default="all", show_default=True,
              help="Which strides the key must distinguish: all, only their pattern (0, 1, order, dense), or "
              "none.")  # fmt: skip
@_flag("divisible", False, "Whether the key must distinguish sizes that are divisible by 16 from others.")
@_flag(
    "alignment", True, "Whether the key must distinguish data at an address that is divisible by 16 from other data."
)
@_flag("dtype", True, "Whether the key must distinguish dtypes.")
@_flag("device", True, "Whether the key must distinguish devices.")
@_flag("requires-grad", True, "Whether the key must distinguish tensors that require a gradient from others.")
@click.option("--kind", "kinds", metavar="KIND", multiple=True,
              help="Draw only this kind of tensors, such as tensor, parameter or sparse. Can be repeated.")  # fmt: skip
@click.option("--db", type=URL, help="Record each violation as a finding in this database.")
@output_options("text", "json")
def command(
    target: str,
    examples: int,
    kinds: tuple[str, ...],
    db: DatabaseUrl | None,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
    **parts: Any,
) -> None:
    """Check a function that makes the keys of a cache of compiled kernels.

    TARGET is MODULE:FUNCTION or FILE:FUNCTION, a function of one tensor that returns its key. Its code is executed.
    Each property is tried on drawn tensors of every dtype, layout and kind. A violation is printed with the smallest
    tensors that show it, and the exit code is 1.

    With --db, each violation is a finding: the kind says which property is violated. `ddefuzz findings show`, `replay`
    and `minimize` take it.

    Examples: `ddefuzz.keys.key:key` is correct. The functions in `ddefuzz.keys.planted` have planted faults.
    """
    options = Options(**parts)
    # Imported here: `ddefuzz check-key --help` must not import torch.
    checking = import_module("ddefuzz.oracles.keys_run")
    with ExitStack() as stack:
        database = None if db is None else stack.enter_context(Database.open(db))
        live = stack.enter_context(LiveLine("importing torch"))
        checked = checking.checked(target, options, examples, kinds, live.update)
        if database is not None:
            live.say(_recorded(database, checked))
    document = json_text(checked, indent=True) + "\n"
    deliver({"text": lambda page: key_text(checked, page), "json": lambda _page: document}, format_, outputs)
    if any(one.violations for one in checked.properties):
        raise SystemExit(EXIT_FOUND)


def _recorded(database: Database, checked: Any) -> str:
    """Record each violation, and say which findings are new."""
    sightings = tuple(one for found in checked.properties for one in _sightings(checked, found))
    now = datetime.now(UTC)
    recorded: dict[str, bool] = {}
    with database.transaction():
        for one, tried, tensors in sightings:
            result = database.record(one, now)
            recorded[result.finding_id] = result.is_new
            if one.program is not None and result.is_new:
                database.set_minimal(result.finding_id, one.program, steps=tensors, attempts=tried)
    listed = ", ".join(f"{name} ({'new' if is_new else 'known'})" for name, is_new in sorted(recorded.items()))
    return f"{counted(len(recorded), 'finding')} in {database.url}{': ' if listed else ''}{listed}"


def _sightings(checked: Any, found: Any) -> Iterator[tuple[Sighting, int, int]]:
    """The violation of a property as what a campaign records, with how many were tried and the number of tensors."""
    for one in found.violations:
        text = print_key(KeyCase(checked.function, found.name, checked.options, one.drawn))
        tried = judge_run(Trial(Run(KeySubject(text, trust=True), keys.STAGE.name), (keys.ORACLE.name,), ()))
        for failure in tried.failures:
            yield sighting(failure, text, "", checked.torch), found.tried, len(one.drawn)


def key_text(checked: Any, page: Page) -> str:
    """One line for each property; below it the smallest violation."""
    lines = [f"{checked.function}, torch {checked.torch}"]
    for one in checked.properties:
        verdict = "violated" if one.violations else "ok"
        lines.append(f"{verdict:9} {one.name}: {one.meaning} ({counted(one.tried, 'try', 'tries')})")
        for violation in one.violations:
            said = [violation.why, *(f"tensor {text}" for text in violation.tensors)]
            said += [f"key    {text}" for text in violation.keys]
            lines += [f"          {line}" for text in said for line in folded(text, page.width - 10).split("\n")]
    return "\n".join(lines) + "\n"
