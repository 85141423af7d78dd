"""What `ddefuzz recompiles` shows: the guards that make torch.compile compile again, and the counts of every op."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from ddefuzz.show.blocks import (
    Block,
    Heading,
    Inline,
    Items,
    Paragraph,
    Span,
    Table,
    codes,
    counted,
    joined,
    marked,
    prose,
    table,
)
from ddefuzz.sweep.recompile import Form, Group, Recompilations, Row
from ddefuzz.sweep.recompile_reviewed import REFUSED, REVIEWED


def mode_of(row: Row) -> str:
    """How a row's function was compiled: `default`, `dynamic=True`, `marked`, `unbacked`."""
    return "default" if row.dynamic is None else "dynamic=True" if row.dynamic is True else str(row.dynamic)


_MORE: Final = re.compile(r"\s+(?=Caused by:|For more information)")
"""Where the part of an error begins that repeats the program and the settings of logs."""


FORM_TITLES: Final[dict[Form, str]] = {
    "plain": "",
    "out": " out=",
    "method": " method",
    "in-place": " in-place",
    "module": "",
}
"""What a line says of a form after the op."""


def recompiles_view(found: Recompilations) -> Iterator[Block]:
    """The page: how it is counted, the groups, then every op, then what was not counted."""
    above = {row.op for row in found.rows if row.is_above and row.out}
    with_out = {row.op for row in found.rows if row.out}
    yield Heading("Recompilation for other sizes", 1)
    yield prose(
        "This page is written by `ddefuzz recompiles --output markdown=docs/results/recompilation.md`. The sentences "
        "about torch's source are kept in `ddefuzz/sweep/recompile_reviewed.py`."
    )
    yield prose(
        "Each op is called at the sizes with fresh arguments, and with `out=` tensors of the right shape, under "
        "torch.compile with a backend that counts. A call counts as a compilation if it compiled any graph. Allowed is "
        "one compilation for each specialization key of the arguments (dtype, device, `requires_grad`, layout pattern, "
        "which sizes are 0 or 1), and one more with default settings, because the first graph of a key is static. The "
        "failed guard is the first one of the newest graph with the same key that is false for the arguments of the "
        "call."
    )
    yield prose(
        "torch {}, sizes {}: {} ops and modules counted, {} of them with `out=`, of which {} compile more often than "
        "allowed with `out=`. {} could not be called at these sizes.",
        found.torch,
        ", ".join(map(str, found.sizes)),
        len({row.op for row in found.rows}),
        len(with_out),
        len(above),
        len(found.dropped),
    )
    yield Heading("Which code makes the guards")
    yield prose("For each op that compiles more often than allowed: the code that made the guard that failed.")
    yield _group_table(found.groups)
    yield Heading("Where these guards come from", 3)
    yield _reviewed(found.groups)
    yield Heading("Which code refuses unbacked sizes")
    yield prose("With the dims that differ marked unbacked, a function must compile once. These ops do not compile.")
    yield _group_table(found.refused)
    yield Heading("Why these refuse them", 3)
    yield prose("A size that is read as an int, or compared by `if`, has no value for an unbacked size.")
    yield _reviewed(found.refused)
    yield Heading("All ops with `out=`")
    yield prose(
        "Compilations without `out=` / with it, in bold above what is allowed; error: the sequence ended in one."
    )
    yield _op_table([row for row in found.rows if row.op in with_out and row.form in ("plain", "out")])
    yield Heading("Methods, in-place methods, modules, and functions without `out=`")
    yield _form_table(found.rows, with_out)
    by_reason: dict[str, list[str]] = {}
    for op, reason in found.dropped.items():
        by_reason.setdefault(reason, []).append(op)
    reasons = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    dropped = ((reason, str(len(ops)), ", ".join(ops)) for reason, ops in reasons)
    yield table(("not counted because", "ops", "which"), dropped, right=("ops",), folding=("which",))


def _group_table(groups: Iterable[Group]) -> Table:
    rows = [
        (Span(one.frame, code=True), one.owner or "-", str(len(one.ops)), codes(one.guards) or "-", ", ".join(one.ops))
        for one in groups
    ]
    titles = ("frame that makes the guard", "whose", "ops", "guards", "which")
    return table(titles, rows, right=("ops",), folding=("guards", "which"))


def _reviewed(groups: Iterable[Group]) -> Block:
    """A line for each group that was read in torch's source, the largest first."""
    known = REVIEWED | REFUSED
    read = tuple(
        (Span(one.frame, code=True), f" ({counted(len(one.ops), 'op')}): ", *marked(known[one.frame]))
        for one in groups
        if one.frame in known
    )
    return Items(read) if read else Paragraph("None of them was read.")


def _op_table(rows: Iterable[Row]) -> Table:
    columns: list[str] = []
    cells: dict[str, dict[str, list[Span]]] = {}
    for row in rows:
        mode = mode_of(row)
        columns += [mode] if mode not in columns else []
        count = Span("error" if row.error else str(row.compilations), style="bold" if row.is_above else "")
        cells.setdefault(row.op, {}).setdefault(mode, []).append(count)
    lines: list[tuple[Inline, ...]] = [
        (op, *(joined(by_mode.get(column, []), " / ") for column in columns)) for op, by_mode in cells.items()
    ]
    return table(("op", *columns), lines)


def _form_table(rows: Iterable[Row], with_out: set[str]) -> Table:
    """How many of each form compile too often or end in an error, and those that compile too often."""
    forms: dict[str, list[Row]] = {}
    for row in rows:
        if row.form != "out" and not (row.form == "plain" and row.op in with_out):
            forms.setdefault("function without out=" if row.form == "plain" else row.form, []).append(row)
    lines = []
    for form, of_form in forms.items():
        for mode in dict.fromkeys(map(mode_of, of_form)):
            here = [row for row in of_form if mode_of(row) == mode]
            above = [row for row in here if row.is_above]
            names = ", ".join(f"{row.op} ({row.compilations})" for row in above)
            errors = sum(bool(row.error) for row in here)
            counts = (str(len(here)), str(len(above)), str(errors))
            lines.append((form, mode, *counts, names or "-"))
    titles = ("form", "mode", "counted", "above allowed", "error", "above allowed are")
    return table(titles, lines, right=titles[2:5], folding=titles[5:])


def recompiles_text(found: Recompilations) -> str:
    """One line for each function and mode, then the frames that specialize."""
    lines = [f"torch {found.torch}, sizes {', '.join(map(str, found.sizes))}: compilations (allowed)"]
    for row in found.rows:
        name = f"{row.op}{FORM_TITLES[row.form]}"
        why = f"  {row.guard} at {row.frame or 'an unknown place'}" if row.is_above else ""
        why += f" (without out=: {row.without_out})" if row.is_above and row.without_out is not None else ""
        why += _shared(row) if row.is_above else ""
        why += f"  {_MORE.split(row.error)[0]}" if row.error else ""
        lines.append(f"{row.compilations:4} ({row.allowed})  {mode_of(row):12}  {name}{why}")
    for group in found.groups:
        lines.append(f"{counted(len(group.ops), 'op')} by {group.frame}: {', '.join(group.ops)}")
    lines += [f"not counted: {op}: {reason}" for op, reason in found.dropped.items()]
    return "\n".join(lines) + "\n"


def _shared(row: Row) -> str:
    """The sizes for which one graph is right."""
    groups = [", ".join(map(str, group)) for group in row.shareable if len(group) > 1]
    return f"; one graph is right for {' and one for '.join(groups)}" if groups else ""
