"""Ops called at several sizes under torch.compile: records, the loop (each result is appended to a file at once, so a
run can be resumed), and the page: the guards that make torch.compile compile again, and the counts of every op.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from ddefuzz.escape import whole_number
from ddefuzz.execute.pool import LostTask, Pool, Stopped, first_answer
from ddefuzz.execute.worker import Task
from ddefuzz.files import append, is_file, json_lines
from ddefuzz.findings.model import Sighting
from ddefuzz.oracles.recompilation import KIND, KINDS, MODES, Mode
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
from ddefuzz.show.record import Outcome, Report, Result, Rule
from ddefuzz.sweep.recompile_reviewed import REFUSED, REVIEWED
from ddefuzz.sweep.sweep import OPS_PER_WORKER, answers, matching
from ddefuzz.sweep.tasks import DescribeTask, Versions

SCHEMA = "ddefuzz.recompiles/1"

Form: TypeAlias = Literal["plain", "out", "method", "in-place", "module"]
FORMS: tuple[Form, ...] = ("plain", "out", "method", "in-place", "module")
"""
plain     the op as a function
out       the same with out= tensors of the right shape
method    the same as a method of its first argument
in-place  the method that changes its first argument
module    an nn.Module with buffers
"""

Owner: TypeAlias = Literal["", "user", "torch"]

REFERENCE_SIZES = (5, 7, 9, 11)


class SequenceCount(msgspec.Struct, frozen=True):
    """One function over one sequence of sizes.

    `dynamic` is the argument of torch.compile (null, true), or how the dims were marked. `compilations` is the number
    of calls that compiled something, `allowed` the number that the policy needs. Above it, `guard` is the guard that
    failed at the first call that should have reused a graph, `frame` the code that made it, and `owner` says whose
    code that is. `shareable` are the sizes whose calls need no graphs of their own. `without_out` is the count of
    the same function without out=. `form` is how the op is called. `error` is what ended the sequence, if anything did.
    """

    op: str
    out: bool
    dynamic: bool | str | None
    sizes: tuple[int, ...]
    compilations: int
    allowed: int
    guard: str = ""
    frame: str = ""
    owner: Owner = ""
    shareable: tuple[tuple[int, ...], ...] = ()
    without_out: int | None = None
    error: str = ""
    line: str = ""
    form: Form = "plain"

    @property
    def is_above(self) -> bool:
        """Whether it compiled more often than the policy needs."""
        return self.compilations > self.allowed


class RecompileTask(msgspec.Struct, frozen=True):
    """One op, or module, to compile over a sequence of sizes, in each of the forms that it has.

    With `record`, needless compilations become sightings of findings.
    """

    op: str
    sizes: tuple[int, ...] = REFERENCE_SIZES
    modes: tuple[Mode, ...] = MODES
    forms: tuple[Form, ...] = FORMS
    record: bool = False


class OpRecompilations(msgspec.Struct, frozen=True):
    """The rows of an op. `dropped` says why it has none, `sightings` are its needless compilations."""

    op: str
    rows: tuple[SequenceCount, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    dropped: str = ""
    cpu_seconds: float = 0.0


class Group(msgspec.Struct, frozen=True):
    """The ops with a guard that one frame makes, and the guards that are most frequent."""

    frame: str
    owner: Owner
    ops: tuple[str, ...]
    guards: tuple[str, ...]


class Recompilations(msgspec.Struct, frozen=True):
    """The whole document. `refused` are the ops that cannot be compiled with unbacked sizes, by the frame that asks."""

    torch: str
    sizes: tuple[int, ...]
    rows: tuple[SequenceCount, ...]
    groups: tuple[Group, ...]
    refused: tuple[Group, ...]
    dropped: dict[str, str]
    interrupted: bool = False
    schema: str = SCHEMA


def document(
    torch: str, sizes: tuple[int, ...], done: Iterable[OpRecompilations], *, interrupted: bool
) -> Recompilations:
    """The document of what was done, ops by name."""
    ordered = sorted(done, key=lambda one: one.op)
    rows = tuple(row for one in ordered for row in one.rows)
    dropped = {one.op: one.dropped for one in ordered if one.dropped}
    above = groups_of(row for row in rows if row.is_above)
    refused = groups_of(row for row in rows if row.dynamic == "unbacked" and row.error)
    return Recompilations(torch, sizes, rows, above, refused, dropped, interrupted)


def groups_of(rows: Iterable[SequenceCount]) -> tuple[Group, ...]:
    """The rows grouped by the frame that makes their guard, the group with most ops first."""
    by_frame: dict[tuple[str, Owner], list[SequenceCount]] = {}
    for row in rows:
        by_frame.setdefault((row.frame or "no guard is known", row.owner), []).append(row)
    groups = [
        Group(
            frame,
            owner,
            tuple(sorted({row.op for row in found})),
            tuple(guard for guard, _ in Counter(row.guard for row in found).most_common(3)),
        )
        for (frame, owner), found in by_frame.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-len(group.ops), group.frame)))


describe = Task("ddefuzz.sweep.recompile_worker:describe", DescribeTask, Versions)
run_recompile = Task("ddefuzz.sweep.recompile_worker:run_recompile", RecompileTask, OpRecompilations)


SECONDS: Final = 600.0
"""Time limit of the start and of each op, which take some seconds, for a machine that is busy."""


class StoredResult(msgspec.Struct, frozen=True):
    """A line of the file: a result, and what decides it."""

    torch: str
    task: RecompileTask
    result: OpRecompilations


class RecompileRun(NamedTuple):
    """The document, and the needless compilations, if they were asked for."""

    document: Recompilations
    sightings: tuple[Sighting, ...]


def recompiles(
    globs: tuple[str, ...],
    asked: RecompileTask,
    jobs: int,
    keep: Path | None,
    tell: Callable[[int, int, OpRecompilations], None],
    stopped: Stopped,
) -> RecompileRun:
    """Count the ops that the globs match, each as `asked`. `keep` is the file of results; those in it are not counted
    again.
    """
    with Pool(jobs, tasks_per_worker=OPS_PER_WORKER) as pool:
        versions = first_answer(pool.submit(describe, DescribeTask(), SECONDS), stopped)
        ops = matching(versions.entries, globs, fnmatchcase, "ops with out=", "'linalg.*'")
        done = {op: one for op, one in _read(keep, versions.torch, asked).items() if op in ops}
        tasks = {op: msgspec.structs.replace(asked, op=op) for op in ops if op not in done}
        futures = {op: pool.submit(run_recompile, task, SECONDS) for op, task in tasks.items()}
        for op, answer in answers(futures, stopped):
            if isinstance(answer, LostTask):
                done[op] = OpRecompilations(op, dropped=f"{answer.outcome}: {answer.reason}")
            else:
                done[op] = answer
            again = isinstance(answer, LostTask) and answer.outcome == "not-judged"
            if keep is not None and not again:
                append(keep, msgspec.json.encode(StoredResult(versions.torch, tasks[op], done[op])) + b"\n")
            tell(len(done), len(ops), done[op])
    made = document(versions.torch, asked.sizes, done.values(), interrupted=len(done) < len(ops))
    return RecompileRun(made, tuple(seen for op in sorted(done) for seen in done[op].sightings))


def _read(keep: Path | None, torch: str, asked: RecompileTask) -> dict[str, OpRecompilations]:
    if keep is None or not is_file(keep):
        return {}
    kept: dict[str, OpRecompilations] = {}
    for _, stored in json_lines(keep, StoredResult, "a line of `ddefuzz recompiles --keep`"):
        if (stored.torch, stored.task) == (torch, msgspec.structs.replace(asked, op=stored.task.op)):
            kept[stored.result.op] = stored.result
    return kept


def mode_of(row: SequenceCount) -> str:
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


def recompiles_view(result: Recompilations) -> Iterator[Block]:
    """The page: how it is counted, the groups, then every op, then what was not counted."""
    above = {row.op for row in result.rows if row.is_above and row.out}
    with_out = {row.op for row in result.rows if row.out}
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
        result.torch,
        sizes_text(result.sizes),
        len({row.op for row in result.rows}),
        len(with_out),
        len(above),
        len(result.dropped),
    )
    yield Heading("Which code makes the guards")
    yield prose("For each op that compiles more often than allowed: the code that made the guard that failed.")
    yield _group_table(result.groups)
    yield Heading("Where these guards come from", 3)
    yield _reviewed(result.groups)
    yield Heading("Which code refuses unbacked sizes")
    yield prose("With the dims that differ marked unbacked, a function must compile once. These ops do not compile.")
    yield _group_table(result.refused)
    yield Heading("Why these refuse them", 3)
    yield prose("A size that is read as an int, or compared by `if`, has no value for an unbacked size.")
    yield _reviewed(result.refused)
    yield Heading("All ops with `out=`")
    yield prose(
        "Compilations without `out=` / with it, in bold above what is allowed; error: the sequence ended in one."
    )
    yield _op_table([row for row in result.rows if row.op in with_out and row.form in ("plain", "out")])
    yield Heading("Methods, in-place methods, modules, and functions without `out=`")
    yield _form_table(result.rows, with_out)
    by_reason: dict[str, list[str]] = {}
    for op, reason in result.dropped.items():
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


def _op_table(rows: Iterable[SequenceCount]) -> Table:
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


def _form_table(rows: Iterable[SequenceCount], with_out: set[str]) -> Table:
    """How many of each form compile too often or end in an error, and those that compile too often."""
    forms: dict[str, list[SequenceCount]] = {}
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


def recompiles_text(result: Recompilations) -> str:
    """One line for each function and mode, then the frames that specialize."""
    lines = [f"torch {result.torch}, sizes {sizes_text(result.sizes)}: compilations (allowed)"]
    for row in result.rows:
        name = f"{row.op}{FORM_TITLES[row.form]}"
        why = f"  {row.guard} at {row.frame or 'an unknown place'}" if row.is_above else ""
        why += f" (without out=: {row.without_out})" if row.is_above and row.without_out is not None else ""
        why += _shared(row) if row.is_above else ""
        why += f"  {_MORE.split(row.error)[0]}" if row.error else ""
        lines.append(f"{row.compilations:4} ({row.allowed})  {mode_of(row):12}  {name}{why}")
    for group in result.groups:
        lines.append(f"{counted(len(group.ops), 'op')} by {group.frame}: {', '.join(group.ops)}")
    lines += [f"not counted: {op}: {reason}" for op, reason in result.dropped.items()]
    return "\n".join(lines) + "\n"


def sizes_text(sizes: Iterable[int]) -> str:
    """Sizes in a line, three or more that follow each other as a range.

    >>> sizes_text((5, 7, 8, 9, 11, 12))
    '5, 7 to 9, 11, 12'
    """
    runs: list[list[int]] = []
    for size in sizes:
        if runs and size == runs[-1][-1] + 1:
            runs[-1].append(size)
        else:
            runs.append([size])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _shared(row: SequenceCount) -> str:
    """The sizes for which one graph is right."""
    groups = [sizes_text(group) for group in row.shareable if len(group) > 1]
    return f"; one graph is right for {' and one for '.join(groups)}" if groups else ""


def recompiles_report(recompilations: Recompilations) -> Report:
    """A result for each function and mode: failed if it compiles too often, skipped if an error ends it."""
    return Report(
        title=f"ddefuzz recompiles: {counted(len({row.op for row in recompilations.rows}), 'op')}",
        torch=recompilations.torch,
        rules=tuple(Rule(kind, row.meaning) for kind, row in KINDS.items()),
        results=tuple(_of_row(row) for row in recompilations.rows),
        facts=tuple(f"{counted(len(group.ops), 'op')} by {group.frame}" for group in recompilations.groups),
        document=msgspec.to_builtins(recompilations),
        records=tuple(msgspec.to_builtins(row) for row in recompilations.rows),
    )


def _of_row(row: SequenceCount) -> Result:
    outcome: Outcome = "failed" if row.is_above else "skipped" if row.error else "passed"
    name, mode = f"{row.op}{FORM_TITLES[row.form]}", mode_of(row)
    path, _, line = row.line.rpartition(":")
    return Result(
        id=f"{KIND}/{name}/{mode}",
        rule=KIND,
        outcome=outcome,
        title=f"{name} ({mode}): {row.compilations} compilations, {row.allowed} allowed",
        message=row.error or row.guard,
        site=row.frame,
        site_path=path if path.startswith("torch/") else "",
        site_line=(path.startswith("torch/") and whole_number(line)) or 0,
    )
