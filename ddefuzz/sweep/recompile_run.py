"""Counts every selected op in worker processes. Each result is appended to a file at once, so a run can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from ddefuzz.errors import InputError
from ddefuzz.execute.pool import Lost, Pool, Stopped, first_answer, waited
from ddefuzz.files import append, is_file, read_text
from ddefuzz.findings.model import Sighting
from ddefuzz.sweep.recompile_model import (
    Described,
    DescribeTask,
    Recompilations,
    Recompiled,
    RecompileTask,
    describe,
    document,
    run_recompile,
)

START_SECONDS: Final = 600.0
OP_SECONDS: Final = 600.0
"""Time limits of what takes some seconds, for a machine that is busy."""

OPS_PER_WORKER: Final = 60
"""A worker is replaced after this many ops, because torch keeps something of each compilation."""


class _Kept(msgspec.Struct, frozen=True):
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
        described = first_answer(pool.submit(describe, DescribeTask(), START_SECONDS), stopped)
        ops = selected(described, globs)
        done = {op: one for op, one in _read(keep, described.torch, asked).items() if op in ops}
        waiting = [msgspec.structs.replace(asked, op=op) for op in ops if op not in done]
        futures = [(task, pool.submit(run_recompile, task, OP_SECONDS)) for task in waiting]
        interrupted = False
        for task, future in futures:
            try:
                result = waited(future, stopped, task.op)
            except KeyboardInterrupt:
                interrupted = True
                break
            done[task.op] = _of_lost(task, result) if isinstance(result, Lost) else result
            if not (isinstance(result, Lost) and result.outcome == "not-judged"):  # else it is to be counted again
                _append(keep, _Kept(described.torch, task, done[task.op]))
            tell(len(done), len(ops), done[task.op])
    made = document(described.torch, asked.sizes, done.values(), interrupted=interrupted)
    return Ran(made, tuple(seen for op in sorted(done) for seen in done[op].sightings))


def selected(described: Described, globs: Iterable[str]) -> tuple[str, ...]:
    """The ops that the globs match, all if there are none. Raises InputError for a glob that matches none."""
    patterns = tuple(globs)
    for pattern in patterns:
        if not any(fnmatchcase(op, pattern) for op in described.ops):
            raise InputError(
                f"--ops: found {pattern!r}, which names none of {len(described.ops)} ops with out=, "
                "expected a glob such as 'linalg.*'"
            )
    return tuple(op for op in described.ops if not patterns or any(fnmatchcase(op, one) for one in patterns))


def _of_lost(task: RecompileTask, lost: Lost) -> Recompiled:
    return Recompiled(task.op, dropped=f"{lost.outcome}: {lost.reason}")


def _read(keep: Path | None, torch: str, asked: RecompileTask) -> dict[str, Recompiled]:
    if keep is None or not is_file(keep):
        return {}
    found: dict[str, Recompiled] = {}
    for number, line in enumerate(read_text(keep).splitlines(), 1):
        try:
            one = msgspec.json.decode(line, type=_Kept)
        except msgspec.DecodeError as error:
            raise InputError(
                f"{keep}:{number}: found {error}, expected a line of `ddefuzz recompiles --keep`"
            ) from error
        if (one.torch, one.task) == (torch, msgspec.structs.replace(asked, op=one.task.op)):
            found[one.result.op] = one.result
    return found


def _append(keep: Path | None, one: _Kept) -> None:
    if keep is not None:
        append(keep, msgspec.json.encode(one) + b"\n")
