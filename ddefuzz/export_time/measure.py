"""Measure one export, in a worker that has exported nothing before."""

from __future__ import annotations

import hashlib
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from ddefuzz.execute.observe import captured_output
from ddefuzz.export_time.model import KNOBS, Knobs, MeasureTask, Point, Profiled
from ddefuzz.export_time.sampled import Where, sampled
from ddefuzz.export_time.workloads import MAKE
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.counting import Counts, counting
from ddefuzz.instrument.torch_api import ASSERT_SCALAR, NO_STACK_TRACES, SHAPES_CONFIG

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
