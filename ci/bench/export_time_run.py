"""The programs whose export is measured, and one measurement, in a worker that has exported nothing before."""

from __future__ import annotations

import hashlib
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from ci.bench.export_time_model import KNOBS, Knobs, MeasureTask, Point, Profiled, Where, sampled
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.counting import Counts, counting
from ddefuzz.instrument.torch_api import ASSERT_SCALAR, NO_STACK_TRACES, SHAPES_CONFIG

check: Callable[[object], None] = torch._check

Made = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its example arguments."""


def _splits(n: int) -> Made:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        sizes: list[int] = [length.item() for length in lengths.unbind()]  # type: ignore[misc]
        return torch.cat([part.flip(0) for part in torch.split(x, sizes)])

    return program, (torch.randn(2 * n), torch.full((n,), 2))


def _cat(n: int) -> Made:
    def program(masks: Tensor) -> Tensor:
        return torch.cat([torch.nonzero(mask).squeeze(1) for mask in masks.unbind()])

    return program, (torch.ones(n, 3, dtype=torch.bool),)


def _masks(n: int) -> Made:
    def program(x: Tensor) -> Tensor:
        for bound in range(n):
            x = x[x > -bound - 10.0]
        return x

    return program, (torch.randn(8),)


def _narrow(n: int) -> Made:
    def program(x: Tensor, sizes: Tensor) -> Tensor:
        for size in sizes.unbind():
            length = size.item()
            check(length >= 0)
            check(length <= x.size(0))
            x = x.narrow(0, 0, length)  # type: ignore[arg-type]
        return x

    return program, (torch.randn(n + 4), torch.arange(n + 3, 3, -1))


def _views(n: int) -> Made:
    def program(sizes: Tensor) -> Tensor:
        total = torch.zeros(())
        for size in sizes.unbind():
            length = size.item()
            check(length >= 0)
            grid = torch.ones(length, 2, 3).view(2 * length, 3)  # type: ignore[arg-type]
            total = total + grid.view(-1, 6).sum()
        return total

    return program, (torch.full((n,), 2),)


def _checks(n: int) -> Made:
    def program(size: Tensor) -> Tensor:
        length = size.item()
        for bound in range(n):
            check(length <= 1_000 + n - bound)
        check(length >= 0)
        return torch.ones(length)  # type: ignore[arg-type]

    return program, (torch.tensor(3),)


def _shared(n: int) -> Made:
    def program(masks: Tensor) -> Tensor:
        found = [torch.nonzero(mask).squeeze(1) for mask in masks.unbind()]
        total = found[0]
        for one in found[1:]:
            check(one.size(0) == total.size(0))
            total = total + one
        return total

    return program, (torch.ones(n, 3, dtype=torch.bool),)


def _totals(n: int) -> Made:
    def program(masks: Tensor) -> Tensor:
        total = torch.nonzero(masks[0]).squeeze(1)
        for mask in masks[1:].unbind():
            total = torch.cat([total, torch.nonzero(mask).squeeze(1)])
        return total

    return program, (torch.ones(n, 3, dtype=torch.bool),)


def _inferred(n: int) -> Made:
    def program(x: Tensor, sizes: Tensor) -> Tensor:
        rows = [x.view(size.item(), -1).sum() for size in sizes.unbind()]  # type: ignore[arg-type]
        return torch.stack(rows)

    return program, (torch.randn(24), torch.full((n,), 4))


DRAWN = (
    """\
# ddefuzz program v1
# inputs: x0 = normal; x1 = trues(4)
def program(x0: Float32[Tensor, "8 4"], x1: Bool[Tensor, "8"]):
    t0 = x0.index_select(0, x1.nonzero().squeeze(1))
    t1 = t0[:-(t0.shape[0] // 2)]
    t2 = t1[..., 0]
    t3 = torch.outer(t2, t2)
    t5 = torch.mm(t1.t(), t1)
    return (t3, t5)
""",
    """\
# ddefuzz program v1
# inputs: x0 = sizes(3, 3, 5); x1 = normal, sliced
def program(x0: Int64[Tensor, "3"], x1: Float32[Tensor, "4 2 2"]):
    t0 = torch.repeat_interleave(x0)
    t1 = torch.stack((t0, t0))
    t2 = t1.select(1, -1)
    t3 = torch.ones((2, 4, t0.shape[0] - 1))
    t4 = torch.nn.functional.conv_transpose1d(t3, x1)
    return (t2, t4)
""",
)
"""Drawn with the profile `captures` and the seed 0, at the indices 0 and 9, without what returns plain numbers. The
texts are kept, so that another version of the generator measures the same.
"""


def _drawn(n: int) -> Made:
    blocks = [prepare(ProgramSubject(text)) for text in DRAWN]
    split = len(blocks[0].args)

    def program(*args: Tensor) -> Tensor:
        total = torch.zeros(())
        for number in range(n):
            own = args[split:] if number % 2 else args[:split]
            for result in blocks[number % 2].call(*own):
                total = total + result.sum()
        return total

    return program, (*blocks[0].args, *blocks[1].args)


MAKE: dict[str, Callable[[int], Made]] = {
    "unbind_split_flip_cat": _splits,
    "cat": _cat,
    "masks": _masks,
    "narrow": _narrow,
    "views": _views,
    "checks": _checks,
    "shared": _shared,
    "totals": _totals,
    "inferred": _inferred,
    "drawn": _drawn,
}
"""What makes the function for n, by the names of `model.WORKLOADS`."""


MOST_PATTERNS = 12


def run_measure(task: MeasureTask) -> Point:
    """Export once. Counting makes the seconds longer."""
    with captured_output():
        return measured(task.workload, task.n, task.knobs, counted=task.how == "counted")


def run_profile(task: MeasureTask) -> Profiled:
    """Export once and sample the stack."""
    program, arguments = MAKE[task.workload](task.n)
    with captured_output(), _set(KNOBS[task.knobs]):
        _export(*MAKE[task.workload](1))
        with sampled() as samples:
            _export(program, arguments)
    numbers: dict[Where, int] = {}
    stacks = tuple(
        (tuple(numbers.setdefault(one, len(numbers)) for one in stack), seconds) for stack, seconds in samples.stacks
    )
    return Profiled(tuple(numbers), stacks)


def measured(workload: str, n: int, knob: str, *, counted: bool) -> Point:
    """Export one workload. A small export before it has imported all that export imports."""
    program, arguments = MAKE[workload](n)
    _export(*MAKE[workload](1))
    with ExitStack() as stack:
        stack.enter_context(_set(KNOBS[knob]))
        counts = stack.enter_context(counting()) if counted else Counts()
        before = time.process_time()
        exported = _export(program, arguments)
        seconds = time.process_time() - before
    module = exported.module()
    graph = "\n".join(f"{node.op} {node.target} {node.args}" for node in exported.graph.nodes)
    return Point(
        workload=workload,
        n=n,
        knobs=knob,
        torch=str(torch.__version__),
        seconds=round(seconds, 4),
        peak_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
        counts={**dict(sorted(counts.calls.items())), "sympy": counts.sympy, "repeated": counts.repeated()}
        if counted
        else {},
        hits=dict(sorted(counts.hits.items())),
        nodes=len(exported.graph.nodes),
        assertions=sum(node.target is ASSERT_SCALAR.get() for node in exported.graph.nodes),
        graph=hashlib.sha256(graph.encode()).hexdigest()[:16],
        agrees=_agrees(program(*arguments), module(*arguments)),
        patterns=dict(list(counts.patterns().items())[:MOST_PATTERNS]),
        askers=dict(counts.askers.most_common(MOST_PATTERNS)),
    )


@contextmanager
def _set(knobs: Knobs) -> Iterator[None]:
    """Set torch's settings while the block runs."""
    with (
        patch.object(SHAPES_CONFIG.owner(), SHAPES_CONFIG.name, knobs.guard_free),
        patch.object(NO_STACK_TRACES.owner(), NO_STACK_TRACES.name, knobs.no_stack_traces),
        torch_api.bound(torch_api.DYNAMO_CONFIG)({torch_api.FAKE_CACHE.key: knobs.fake_cache}),
    ):
        yield


def _export(program: Any, arguments: tuple[Any, ...]) -> Any:
    class Module(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return program(*args)

    return torch.export.export(Module(), arguments, strict=False)


def _agrees(eager: torch.Tensor, captured: torch.Tensor) -> bool:
    return eager.shape == captured.shape and bool(torch.equal(eager, captured))
