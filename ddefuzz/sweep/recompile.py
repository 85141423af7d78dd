"""Counts every selected op in worker processes. Each result is appended to a file at once, so a run can be resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from ddefuzz.errors import InputError
from ddefuzz.execute.pool import Lost, Pool, Stopped, first_answer
from ddefuzz.execute.worker import late
from ddefuzz.files import append, is_file, read_text
from ddefuzz.findings.model import Sighting
from ddefuzz.oracles.recompilation import MODES, Mode
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


class Row(msgspec.Struct, frozen=True):
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


class Recompiled(msgspec.Struct, frozen=True):
    """The rows of an op. `dropped` says why it has none, `sightings` are its needless compilations."""

    op: str
    rows: tuple[Row, ...] = ()
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
    rows: tuple[Row, ...]
    groups: tuple[Group, ...]
    refused: tuple[Group, ...]
    dropped: dict[str, str]
    interrupted: bool = False
    schema: str = SCHEMA


def document(torch: str, sizes: tuple[int, ...], done: Iterable[Recompiled], *, interrupted: bool) -> Recompilations:
    """The document of what was done, ops by name."""
    ordered = sorted(done, key=lambda one: one.op)
    rows = tuple(row for one in ordered for row in one.rows)
    dropped = {one.op: one.dropped for one in ordered if one.dropped}
    above = groups_of(row for row in rows if row.is_above)
    refused = groups_of(row for row in rows if row.dynamic == "unbacked" and row.error)
    return Recompilations(torch, sizes, rows, above, refused, dropped, interrupted)


def groups_of(rows: Iterable[Row]) -> tuple[Group, ...]:
    """The rows grouped by the frame that makes their guard, the group with most ops first."""
    by_frame: dict[tuple[str, Owner], list[Row]] = {}
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


def describe(task: DescribeTask) -> Versions:
    """The version of torch, and what can be compiled: the reference functions, the entries of OpInfo that have an out=
    argument or are of torch.nn.functional, and the modules.
    """
    result: Versions = late("ddefuzz.sweep.recompile_worker").describe(task)
    return result


def run_recompile(task: RecompileTask) -> Recompiled:
    """Compile one op over the sequence."""
    result: Recompiled = late("ddefuzz.sweep.recompile_worker").run_recompile(task)
    return result


SECONDS: Final = 600.0
"""Time limit of the start and of each op, which take some seconds, for a machine that is busy."""


class StoredResult(msgspec.Struct, frozen=True):
    """A line of the file: a result, and what decides it."""

    torch: str
    task: RecompileTask
    result: Recompiled


class Ran(NamedTuple):
    """The document, and the needless compilations, if they were asked for."""

    document: Recompilations
    sightings: tuple[Sighting, ...]


def recompiles(
    globs: tuple[str, ...],
    asked: RecompileTask,
    jobs: int,
    keep: Path | None,
    tell: Callable[[int, int, Recompiled], None],
    stopped: Stopped,
) -> Ran:
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
            if isinstance(answer, Lost):
                done[op] = Recompiled(op, dropped=f"{answer.outcome}: {answer.reason}")
            else:
                done[op] = answer
            again = isinstance(answer, Lost) and answer.outcome == "not-judged"
            if keep is not None and not again:
                append(keep, msgspec.json.encode(StoredResult(versions.torch, tasks[op], done[op])) + b"\n")
            tell(len(done), len(ops), done[op])
    made = document(versions.torch, asked.sizes, done.values(), interrupted=len(done) < len(ops))
    return Ran(made, tuple(seen for op in sorted(done) for seen in done[op].sightings))


def _read(keep: Path | None, torch: str, asked: RecompileTask) -> dict[str, Recompiled]:
    if keep is None or not is_file(keep):
        return {}
    found: dict[str, Recompiled] = {}
    for number, line in enumerate(read_text(keep).splitlines(), 1):
        try:
            one = msgspec.json.decode(line, type=StoredResult)
        except msgspec.DecodeError as error:
            raise InputError(
                f"{keep}:{number}: found {error}, expected a line of `ddefuzz recompiles --keep`"
            ) from error
        if (one.torch, one.task) == (torch, msgspec.structs.replace(asked, op=one.task.op)):
            found[one.result.op] = one.result
    return found
