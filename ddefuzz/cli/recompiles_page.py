"""What `ddefuzz recompiles` prints: lines for a terminal, a page for `docs/`, and a report for the other formats."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from ddefuzz import __version__
from ddefuzz.cli.layout import counted
from ddefuzz.cli.output import Writer
from ddefuzz.cli.reports import command_line, writers_of
from ddefuzz.escape import json_text, markdown_code, markdown_table, markdown_text
from ddefuzz.oracles import recompilation
from ddefuzz.show.record import Outcome, Report, Result, Rule
from ddefuzz.sweep.recompile_model import Form, Group, Recompilations, Row
from ddefuzz.sweep.recompile_reviewed import REFUSED, REVIEWED


def writers(found: Recompilations) -> dict[str, Writer]:
    """The formats: a page of its own for Markdown, else those of every report."""
    return {
        **writers_of(report_of(found)),
        "text": lambda _page: recompiles_text(found),
        "json": lambda _page: json_text(found, indent=True) + "\n",
        "markdown": lambda _page: recompiles_markdown(found),
    }


def report_of(found: Recompilations) -> Report:
    """A result for each function and mode: failed if it compiles too often, skipped if an error ends it."""
    return Report(
        command=command_line(),
        title=f"ddefuzz recompiles: {counted(len({row.op for row in found.rows}), 'op')}",
        version=__version__,
        torch=found.torch,
        rules=tuple(Rule(kind, row.meaning) for kind, row in recompilation.KINDS.items()),
        results=tuple(_result(row) for row in found.rows),
        facts=tuple(f"{counted(len(group.ops), 'op')} by {group.frame}" for group in found.groups),
        document=msgspec.to_builtins(found),
        records=tuple(msgspec.to_builtins(row) for row in found.rows),
    )


def _result(row: Row) -> Result:
    outcome: Outcome = "failed" if row.is_above else "skipped" if row.error else "passed"
    name, mode = f"{row.op}{_FORM[row.form]}", said_mode(row)
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
        why += _shared(row) if row.is_above else ""
        why += f"  {_MORE.split(row.error)[0]}" if row.error else ""
        lines.append(f"{row.compilations:4} ({row.allowed})  {said_mode(row):12}  {name}{why}")
    for group in found.groups:
        lines.append(f"{counted(len(group.ops), 'op')} by {group.frame}: {', '.join(group.ops)}")
    lines += [f"not counted: {op}: {reason}" for op, reason in found.dropped.items()]
    return "\n".join(lines) + "\n"


def _shared(row: Row) -> str:
    """The sizes for which one graph is right."""
    groups = [", ".join(map(str, group)) for group in row.shareable if len(group) > 1]
    return f"; one graph is right for {' and one for '.join(groups)}" if groups else ""


def recompiles_markdown(found: Recompilations) -> str:
    """A page: how it is counted, the groups, then every op, then what was not counted."""
    counted_ops = {row.op for row in found.rows}
    above = {row.op for row in found.rows if row.is_above and row.out}
    with_out = {row.op for row in found.rows if row.out}
    sizes = ", ".join(map(str, found.sizes))
    return "\n".join(
        [
            "# Recompilation for other sizes",
            "",
            "This page is written by `ddefuzz recompiles --output markdown=docs/recompilation.md`. The sentences about "
            "torch's source are kept in `ddefuzz/sweep/recompile_reviewed.py`.",
            "",
            _COUNTED,
            "",
            f"torch {markdown_text(found.torch)}, sizes {sizes}: {len(counted_ops)} ops and modules counted, "
            f"{len(with_out)} of them with `out=`, of which {len(above)} compile more often than allowed with `out=`. "
            f"{len(found.dropped)} could not be called at these sizes.",
            "",
            "## Which code makes the guards",
            "",
            "For each op that compiles more often than allowed: the code that made the guard that failed.",
            "",
            _group_table(found.groups),
            "",
            "### Where these guards come from",
            "",
            *_reviewed(found.groups),
            "",
            "## Which code refuses unbacked sizes",
            "",
            "With the dims that differ marked unbacked, a function must compile once. These ops do not compile.",
            "",
            _group_table(found.refused),
            "",
            "### Why these refuse them",
            "",
            "A size that is read as an int, or compared by `if`, has no value for an unbacked size.",
            "",
            *_reviewed(found.refused),
            "",
            "## All ops with `out=`",
            "",
            *_op_table([row for row in found.rows if row.op in with_out]),
            "",
            "## Methods, in-place methods, modules, and functions without `out=`",
            "",
            _form_table(found.rows, with_out),
            "",
            _dropped_table(found.dropped),
            "",
        ]
    )


_COUNTED = """Each op is called at the sizes with fresh arguments, and with `out=` tensors of the right shape, under
torch.compile with a backend that counts. A call counts as a compilation if it compiled any graph. Allowed is one
compilation for each specialization key of the arguments (dtype, device, `requires_grad`, layout pattern, which sizes
are 0 or 1), and one more with default settings, because the first graph of a key is static. The failed guard is the
first one of the newest graph with the same key that is false for the arguments of the call."""


def _group_table(groups: Iterable[Group]) -> str:
    rows = [
        (
            markdown_code(one.frame),
            markdown_text(one.owner) or "-",
            str(len(one.ops)),
            ", ".join(markdown_code(text) for text in one.guards if text) or "-",
            markdown_text(", ".join(one.ops)),
        )
        for one in groups
    ]
    return markdown_table(("frame that makes the guard", "whose", "ops", "guards", "which"), rows)


def _reviewed(groups: Iterable[Group]) -> list[str]:
    """A line for each group that was read in torch's source, the largest first."""
    known = REVIEWED | REFUSED
    read = [
        f"- {markdown_code(one.frame)} ({counted(len(one.ops), 'op')}): {known[one.frame]}"
        for one in groups
        if one.frame in known
    ]
    return read or ["None of them was read."]


def _form_table(rows: Iterable[Row], with_out: set[str]) -> str:
    """How many of each form compile too often or end in an error, and those that compile too often."""
    forms: dict[str, list[Row]] = {}
    for row in rows:
        if row.form != "out" and not (row.form == "plain" and row.op in with_out):
            forms.setdefault("function without out=" if row.form == "plain" else row.form, []).append(row)
    lines = []
    for form, of_form in forms.items():
        for mode in dict.fromkeys(map(said_mode, of_form)):
            here = [row for row in of_form if said_mode(row) == mode]
            above = [row for row in here if row.is_above]
            names = ", ".join(f"{row.op} ({row.compilations})" for row in above)
            errors = sum(bool(row.error) for row in here)
            counts = (str(len(here)), str(len(above)), str(errors))
            lines.append((markdown_text(form), markdown_text(mode), *counts, markdown_text(names) or "-"))
    return markdown_table(("form", "mode", "counted", "above allowed", "error", "above allowed are"), lines)


def _op_table(rows: Iterable[Row]) -> list[str]:
    rows = [row for row in rows if row.form in ("plain", "out")]
    columns = list(dict.fromkeys(said_mode(row) for row in rows))
    cells: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        shown = f"**{row.compilations}**" if row.is_above else str(row.compilations)
        cells.setdefault(row.op, {}).setdefault(said_mode(row), []).append("error" if row.error else shown)
    lines = (
        (markdown_text(op), *(" / ".join(by_mode.get(column, [])) for column in columns))
        for op, by_mode in cells.items()
    )
    return [
        "Compilations without `out=` / with it, in bold above what is allowed; error: the sequence ended in one.",
        "",
        markdown_table(("op", *map(markdown_text, columns)), lines),
    ]


def _dropped_table(dropped: dict[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for op, reason in dropped.items():
        by_reason.setdefault(reason, []).append(op)
    rows = (
        (markdown_text(reason), str(len(ops)), markdown_text(", ".join(ops)))
        for reason, ops in sorted(by_reason.items(), key=_size)
    )
    return markdown_table(("not counted because", "ops", "which"), rows)


def _size(item: tuple[str, list[str]]) -> Any:
    return -len(item[1]), item[0]
