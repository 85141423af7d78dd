"""Upstream's own test of one entry, reimplemented: what `test/test_ops_unbacked.py` does, sample by sample.

Each sample of float32, with every dim of 2 or more marked unbacked, runs through `torch.compile(backend="eager",
fullgraph=True)` of the entry's own function, with dynamo's default settings. The first failure ends it.
"""

from __future__ import annotations

import copy
import time
from functools import partial
from typing import Any

import torch

from ddefuzz.execute.observe import observe_in
from ddefuzz.execute.prepared import Prepared
from ddefuzz.execute.protocol import ProgramSubject, Run
from ddefuzz.generate import opinfo
from ddefuzz.generate.lockstep import tolerant_eager
from ddefuzz.instrument import torch_api
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.sweep.tasks import UpstreamResult, UpstreamTask

UPSTREAM = Run(ProgramSubject(""), "compile")


def run_upstream(task: UpstreamTask) -> UpstreamResult:
    """How upstream's own test ends on an entry."""
    started = time.process_time()
    info = opinfo.entry(task.op)
    tried = 0
    failure: tuple[str, str, str] | None = None
    for args, kwargs in _samples(info) if opinfo.takes(task.op, "float32") else ():
        if not any(_dims(tensor) for tensor in _tensors(args, kwargs)):
            continue
        if tried == task.samples:
            break
        tried += 1
        failure = _failure(info.op, args, kwargs)
        if failure is not None:
            break
    kind, signature, message = failure or ("", "", "")
    outcome = "fail" if failure else "ok" if tried else "no-sample"
    spent = time.process_time() - started
    return UpstreamResult(task.op, outcome, kind, signature, message[:200], tried, spent)  # type: ignore[arg-type]


def _samples(info: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    torch.manual_seed(0)
    with tolerant_eager():
        listed = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
    return [((sample.input, *sample.args), dict(sample.kwargs)) for sample in listed]


def _tensors(args: Any, kwargs: Any) -> list[torch.Tensor]:
    leaves = torch_api.bound(torch_api.TREE_LEAVES)((args, kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _dims(tensor: torch.Tensor) -> list[int]:
    return [dim for dim in range(tensor.ndim) if tensor.shape[dim] >= 2]


def _failure(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str, str] | None:
    """Kind, signature and message of what ends the test of one sample."""
    try:
        with tolerant_eager():
            op(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        copied = copy.deepcopy((args, kwargs))
    except Exception as error:  # noqa: BLE001 upstream's code: that it fails before any capture is a result
        return "eager", f"{type(error).__name__} in eager", str(error).partition("\n")[0]
    observation = observe_in(partial(_stage, op, *copied), lambda: Prepared(op, ()), UPSTREAM)
    failures = judge([observation])
    if not failures:
        return None
    classified = classify(failures[0])
    return classified.signature.kind, str(classified.signature), failures[0].evidence


def _stage(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], prepared: Prepared) -> None:
    del prepared
    for tensor in _tensors(args, kwargs):
        for dim in _dims(tensor):
            torch_api.bound(torch_api.MARK_UNBACKED)(tensor, dim)

    def compiled(*given: Any, **named: Any) -> Any:
        return op(*given, **named)

    by_default = torch_api.bound(torch_api.DYNAMO_CONFIG)(
        {torch_api.CAPTURE_SCALARS.key: False, torch_api.CAPTURE_DYNAMIC_SHAPES.key: False}
    )
    with by_default:
        torch.compile(compiled, backend="eager", fullgraph=True)(*args, **kwargs)
