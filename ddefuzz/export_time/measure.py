"""Measure one export in a new process: `python -m ddefuzz.export_time.measure WORKLOAD N KNOBS`, one JSON line."""

from __future__ import annotations

import hashlib
import resource
import sys
import time
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import msgspec
import torch

from ddefuzz.export_time.model import KNOBS, Point
from ddefuzz.export_time.workloads import MAKE
from ddefuzz.instrument.counting import Counts, counting
from ddefuzz.instrument.torch_api import ASSERT_SCALAR, NO_STACK_TRACES, SHAPES_CONFIG

MOST_PATTERNS = 12


def main(words: list[str]) -> None:
    """Measure and print. With the word `counted`, counts are taken, which makes the seconds longer."""
    workload, number, knob, *how = words
    point = measured(workload, int(number), knob, counted="counted" in how)
    sys.stdout.write(msgspec.json.encode(point).decode() + "\n")


def measured(workload: str, n: int, knob: str, *, counted: bool) -> Point:
    """Export one workload. A small export before it has imported all that export imports."""
    program, arguments = MAKE[workload](n)
    _export(*MAKE[workload](1))
    settings = KNOBS[knob]
    with ExitStack() as stack:
        for api, value in ((SHAPES_CONFIG, settings.guard_free), (NO_STACK_TRACES, settings.no_stack_traces)):
            stack.enter_context(patch.object(api.owner(), api.name, value))
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


def _export(program: Any, arguments: tuple[Any, ...]) -> Any:
    class Module(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return program(*args)

    return torch.export.export(Module(), arguments, strict=False)


def _agrees(eager: torch.Tensor, captured: torch.Tensor) -> bool:
    return eager.shape == captured.shape and bool(torch.equal(eager, captured))


if __name__ == "__main__":
    main(sys.argv[1:])
