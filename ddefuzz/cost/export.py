"""Exports a subject once and as repeated blocks, and says what shape reasoning spends its time on. Runs in a worker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from cProfile import Profile
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import torch

from ddefuzz.cost.model import Evaluation, ExportCost, ExportTask
from ddefuzz.cost.sampling import Samples, fit, growing, sampled, speedscope, times_of
from ddefuzz.errors import InputError
from ddefuzz.execute.observe import captured_output, clean_slate, kept_apart
from ddefuzz.execute.preparation import PreparedSubject, with_leaves
from ddefuzz.execute.stages import export
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument.counting import Counts, counting
from ddefuzz.internal import message_of
from ddefuzz.oracles.growth_run import carried_results, repeated

FIRST, MOST = 2, 128
"""The numbers of blocks are doubled from the first to the last, while the budget lasts."""

NEXT = 2.5
"""How many times as long an export of twice as many blocks may take."""

ROWS = 12


def export_cost(task: ExportTask) -> ExportCost:
    """Export the subject, and blocks of it while that takes less than the budget. What it raises is the error."""
    with captured_output(), kept_apart(task.subject), clean_slate(own_settings=True):
        try:
            export(prepare(task.subject))  # imports, and fills torch's caches
            with counting() as counts:
                export(prepare(task.subject))
            seconds, carried = _seconds(prepare(task.subject)), carried_results(prepare(task.subject))
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001 the subject is under test
            return ExportCost(error=f"{type(error).__name__}: {message_of(error)}".partition("\n")[0])
        points, ended = _points(task, carried)
    cost = _counted(counts, seconds, bool(carried))
    if not points:
        return msgspec.structs.replace(cost, error=ended)
    last = points[max(points)].samples
    return msgspec.structs.replace(
        cost,
        error=ended,
        blocks=tuple((n, round(point.samples.seconds, 3)) for n, point in points.items()),
        fit=fit([(n, point.samples.seconds) for n, point in points.items()]),
        growing=growing({n: times_of(*point) for n, point in points.items()}),
        speedscope=speedscope(last, f"torch.export of {max(points)} blocks") if task.speedscope else {},
    )


class ExportPoint(NamedTuple):
    """An export of blocks: its samples, and the profile of another export of the same."""

    samples: Samples
    profile: Profile


def _points(task: ExportTask, carried: Mapping[int, int]) -> tuple[dict[int, ExportPoint], str]:
    """Exports of more and more blocks, while the next one fits the budget. And the error that ended them early."""
    points: dict[int, ExportPoint] = {}
    n, begun, last = FIRST, time.process_time(), 0.0
    while n <= MOST and time.process_time() - begun + NEXT * last < task.budget:
        before = time.process_time()
        try:
            blocks, again = (repeated(_on_copies(prepare(task.subject)), n, carried) for _ in range(2))
            with sampled() as samples:
                export(blocks)
            with Profile() as profile:
                export(again)
        except Exception as error:  # noqa: BLE001 the subject is under test
            return points, f"{n} blocks: {type(error).__name__}: {message_of(error)}".partition("\n")[0]
        points[n] = ExportPoint(samples, profile)
        last, n = time.process_time() - before, 2 * n
    return points, ""


def _on_copies(prepared: PreparedSubject) -> PreparedSubject:
    """The subject, which copies its tensors first: torch remembers `nonzero` of a fake tensor, and all blocks that get
    the same one would have one symbol (torch/_subclasses/fake_impls.py).
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = with_leaves(args, kwargs, lambda _, leaf: leaf.clone() if _is_plain(leaf) else leaf)
        return prepared.call(*args, **kwargs)

    return replace(prepared, call=call)


def _is_plain(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and not isinstance(leaf, torch.nn.Parameter)


def _seconds(prepared: PreparedSubject) -> float:
    before = time.process_time()
    export(prepared)
    return round(time.process_time() - before, 3)


def _counted(counts: Counts, seconds: float, chained: bool) -> ExportCost:
    calls: dict[str, Any] = dict(sorted(counts.calls.items()))
    return ExportCost(
        seconds=seconds,
        calls={**calls, "sympy": counts.sympy, "repeated": counts.repeated()},
        expressions=tuple(Evaluation(one, *numbers) for one, numbers in list(counts.patterns().items())[:ROWS]),
        sites=tuple(Evaluation(one, number) for one, number in counts.askers.most_common(ROWS)),
        chained=chained,
    )
