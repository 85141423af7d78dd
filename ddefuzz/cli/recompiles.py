"""`ddefuzz recompiles`: count how often torch.compile compiles each op with out= over calls of different sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import rich_click as click

from ddefuzz.cli.layout import counted
from ddefuzz.cli.options import jobs_option
from ddefuzz.cli.output import Writer, deliver, output_options
from ddefuzz.cli.progress import LiveLine, stop_on_interrupt
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED
from ddefuzz.execute.repeated import MODES, Mode
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Sighting
from ddefuzz.recompile.model import FORMS, REFERENCE_SIZES, Form, Group, Recompilations, Recompiled, RecompileTask, Row
from ddefuzz.recompile.run import recompiles


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
@click.option("--ops", "globs", metavar="GLOB", multiple=True,
              help="Count only ops that match, such as topk or 'linalg.*'. Can be repeated.")  # fmt: skip
@click.option("--sizes", type=Sizes(), metavar="N,N", default=REFERENCE_SIZES,
              help="The sizes of the calls, in this order. "
              f"[default={','.join(map(str, REFERENCE_SIZES))}]")  # fmt: skip
@click.option("--mode", "modes", type=click.Choice(MODES), metavar="MODE", multiple=True, default=MODES,
              show_default=True, help="default (torch.compile's own settings), dynamic (dynamic=True), marked (dims "
              "that differ are marked dynamic) or unbacked (they are marked unbacked). Can be repeated.")  # fmt: skip
@click.option("--form", "forms", type=click.Choice(FORMS), metavar="FORM", multiple=True, default=FORMS,
              show_default=True, help="plain (a function), out (with out=), method, in-place (the method that changes "
              "its first argument) or module (nn.Modules with buffers). Can be repeated.")  # fmt: skip
@click.option("--db", metavar="URL", help="Record needless compilations as findings in this database. "
              "`ddefuzz minimize --all` then minimizes and confirms them.")  # fmt: skip
@click.option("--keep", type=click.Path(path_type=Path), metavar="FILE",
              help="Append each result to this file, and do not count again what is in it.")  # fmt: skip
@click.option("--fail-on", type=click.Choice(["any", "never"]), metavar="WHAT", default="never", show_default=True,
              help="Exit with code 1 if a function compiles more often than allowed (any), or never.")  # fmt: skip
@jobs_option
@output_options("text", "json", "markdown")
def command(
    globs: tuple[str, ...],
    sizes: tuple[int, ...],
    modes: tuple[Mode, ...],
    forms: tuple[Form, ...],
    db: str | None,
    keep: Path | None,
    fail_on: str,
    jobs: int,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Count how often torch.compile compiles each op with out= over calls of different sizes.

    Each op is called with out= and without. Allowed is one compilation for each specialization key: dtype, device,
    layout, and which sizes are 0 or 1. With default settings it is one more, because the first graph is static.
    Above that, the output has the guard that failed and the code that made it.
    """
    with stop_on_interrupt() as stopped, LiveLine("starting workers (importing OpInfo takes some seconds)") as live:

        def tell(done: int, of: int, one: Recompiled) -> None:
            live.update(f"{done} of {counted(of, 'op')}, {one.op}", is_last=done == of)

        asked = RecompileTask("", sizes, modes, forms, record=db is not None)
        found, sightings = recompiles(globs, asked, jobs, keep, tell, stopped)
        if db is not None:
            live.say(_recorded(db, sightings))
    deliver(_writers(found), format_, outputs)
    if found.interrupted:
        raise SystemExit(EXIT_INTERRUPTED)
    if fail_on == "any" and any(row.is_above for row in found.rows):
        raise SystemExit(EXIT_FOUND)


def _recorded(url: str, sightings: tuple[Sighting, ...]) -> str:
    """Record the sightings, and say how many findings they are."""
    now = datetime.now(UTC)
    with Database.open(url) as database, database.transaction():
        ids = {database.record(one, now).finding_id for one in sightings}
    return f"{counted(len(ids), 'finding')} in {url}: {', '.join(sorted(ids))}"


def _writers(found: Recompilations) -> dict[str, Writer]:
    return {
        "text": lambda _page: recompiles_text(found),
        "json": lambda _page: msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n",
        "markdown": lambda _page: recompiles_markdown(found),
    }


def said_mode(row: Row) -> str:
    """How a row's function was compiled: `default`, `dynamic=True`, `marked`, `unbacked`."""
    return "default" if row.dynamic is None else "dynamic=True" if row.dynamic is True else str(row.dynamic)


_MORE: Final = re.compile(r"\s+(?=Caused by:|For more information)")
"""Where the part of an error begins that repeats the program and the settings of logs."""


_FORM: Final[dict[Form, str]] = {
    "plain": "",
    "out": " out=",
    "method": " method",
    "in-place": " in-place",
    "module": "",
}
"""What a line says of a form after the op."""


def recompiles_text(found: Recompilations) -> str:
    """One line for each function and mode, then the frames that specialize."""
    lines = [f"torch {found.torch}, sizes {', '.join(map(str, found.sizes))}: compilations (allowed)"]
    for row in found.rows:
        name = f"{row.op}{_FORM[row.form]}"
        why = f"  {row.guard} at {row.frame or 'an unknown place'}" if row.is_above else ""
        why += f" (without out=: {row.without_out})" if row.is_above and row.without_out is not None else ""
        why += f"  {_MORE.split(row.error)[0]}" if row.error else ""
        lines.append(f"{row.compilations:4} ({row.allowed})  {said_mode(row):12}  {name}{why}")
    for group in found.groups:
        lines.append(f"{counted(len(group.ops), 'op')} by {group.frame}: {', '.join(group.ops)}")
    lines += [f"not counted: {op}: {reason}" for op, reason in found.dropped.items()]
    return "\n".join(lines) + "\n"


def recompiles_markdown(found: Recompilations) -> str:
    """A page: how it is counted, the groups, then every op, then what was not counted."""
    counted_ops = {row.op for row in found.rows}
    above = {row.op for row in found.rows if row.is_above and row.out}
    sizes = ", ".join(map(str, found.sizes))
    return "\n".join(
        [
            "# Recompilation of ops with `out=`",
            "",
            "This page is written by `ddefuzz recompiles --output markdown=docs/recompilation.md`.",
            "",
            _COUNTED,
            "",
            f"torch {found.torch}, sizes {sizes}: {counted(len(counted_ops), 'op')} counted, of which {len(above)} "
            f"compile more often than allowed with `out=`. {len(found.dropped)} could not be called at these sizes.",
            "",
            "## Which code makes the guards",
            "",
            "For each op that compiles more often than allowed: the code that made the guard that failed.",
            "",
            *_group_table(found.groups),
            "",
            "## Which code refuses unbacked sizes",
            "",
            "With the dims that differ marked unbacked, a function must compile once. These ops do not compile.",
            "",
            *_group_table(found.refused),
            "",
            "## All ops",
            "",
            *_op_table(found.rows),
            "",
            *_dropped_table(found.dropped),
        ]
    )


_COUNTED = """Each op is called at the sizes with fresh arguments, and with `out=` tensors of the right shape, under
torch.compile with a backend that counts. A call counts as a compilation if it compiled any graph. Allowed is one
compilation for each specialization key of the arguments (dtype, device, `requires_grad`, layout pattern, which sizes
are 0 or 1), and one more with default settings, because the first graph of a key is static. The failed guard is the
first one of the newest graph with the same key that is false for the arguments of the call."""


def _group_table(groups: Iterable[Group]) -> list[str]:
    rows = [
        f"| `{one.frame}` | {one.owner or '-'} | {len(one.ops)} | {_code(one.guards)} | {', '.join(one.ops)} |"
        for one in groups
    ]
    return ["| frame that makes the guard | whose | ops | guards | which |", "|---|---|---|---|---|", *rows]


def _op_table(rows: tuple[Row, ...]) -> list[str]:
    columns = list(dict.fromkeys(said_mode(row) for row in rows))
    cells: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        shown = f"**{row.compilations}**" if row.is_above else str(row.compilations)
        cells.setdefault(row.op, {}).setdefault(said_mode(row), []).append("error" if row.error else shown)
    lines = [f"| op | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for op, by_mode in cells.items():
        lines.append(f"| {op} | {' | '.join(' / '.join(by_mode.get(column, [])) for column in columns)} |")
    return [
        "Compilations without `out=` / with it, in bold above what is allowed; error: the sequence ended in one.",
        "",
        *lines,
    ]


def _dropped_table(dropped: dict[str, str]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for op, reason in dropped.items():
        by_reason.setdefault(reason, []).append(op)
    rows = [f"| {reason} | {len(ops)} | {', '.join(ops)} |" for reason, ops in sorted(by_reason.items(), key=_size)]
    return ["| not counted because | ops | which |", "|---|---|---|", *rows, ""]


def _size(item: tuple[str, list[str]]) -> Any:
    return -len(item[1]), item[0]


def _code(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts if text) or "-"
