"""Faults planted in what is captured, which only some of the calls and comparisons show: each is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch._dynamo.backends import debugging

from ddefuzz.classify.failure import Kind
from ddefuzz.execute.metas import unlike
from ddefuzz.execute.protocol import ProgramSubject, Run, Stage
from ddefuzz.instrument import torch_api
from ddefuzz.oracles.program import Trial, judge_run
from ddefuzz.oracles.table import NAMES
from ddefuzz.program.sizes import CALL_SIZES, CallSize
from tests.oracles.test_planted_assertions import plant_in_dynamo

Patch = pytest.MonkeyPatch

HEADER = "# ddefuzz program v1\n# inputs: "
RELU = f'{HEADER}x = normal\ndef program(x: Float32[Tensor, "u0=3 4"]):\n    return torch.relu(x)\n'
LEARNS = RELU.replace("normal", "normal, grad")
COUNTS = f"""{HEADER}x = normal
def program(x: Float32[Tensor, "u0=3 4"]):
    return (torch.relu(x), (x > 0).sum(), torch.nn.functional.dropout(x, 0.5))
"""
DROPS = COUNTS.replace("(x > 0).sum(), torch.nn.functional.dropout(x, 0.5)", "torch.nn.functional.dropout(x, 0.5)")
WRITES = f"""{HEADER}x = normal
def program(x: Float32[Tensor, "u0=3 4"]):
    t0 = torch.transpose(x, 0, 1)
    t0.add_(1)
    return (x, t0)
"""


def in_place_of(function: Any, other: Callable[..., Any]) -> Callable[[Patch], None]:
    """Dynamo's graph calls another function."""

    def change(graph: torch.fx.Graph, _: Any) -> None:
        for node in graph.nodes:
            if node.target in (function, getattr(function, "__name__", "")):
                node.op, node.target = "call_function", other

    return lambda patch: plant_in_dynamo(patch, change)


class Detached(torch.autograd.Function):
    """relu, squared, whose gradient has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return torch.relu(x) ** 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * (2 * torch.relu(x)).detach()


def detached(x: torch.Tensor) -> Any:
    return Detached.apply(x)  # type: ignore[no-untyped-call]


def without_gradient(patch: Patch, *, kept: bool) -> None:
    """AOTAutograd's backward graph gives zeros or, unless it is `kept`, nothing."""
    run = debugging.boxed_nop

    def planted(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        if any(node.name.startswith("tangents") for node in graph.graph.nodes):
            output = list(graph.graph.nodes)[-1]
            with graph.graph.inserting_before(output):
                zeros = [one and graph.graph.call_function(torch.zeros_like, (one,)) for one in output.args[0]]
            output.args = (tuple(zeros) if kept else (None,) * len(zeros),)
            graph.recompile()
        return run(graph, inputs)

    patch.setattr(debugging, "boxed_nop", planted)


ELU = LEARNS.replace("torch.relu(x)", "torch.nn.functional.elu(x)")


def wrong_decomposition(patch: Patch) -> None:
    """Inductor's decomposition of a gradient leaves out a factor where the data are negative."""
    api, leaky = torch_api.DECOMPOSE, torch.ops.aten.elu_backward.default
    decompose = api.get()

    def planted(mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        if op is not leaky or op not in mode.decomposition_table:
            return decompose(mode, op, *args, **kwargs)
        with mock.patch.dict(mode.decomposition_table, {op: lambda grad_output, *_: grad_output.clone()}):
            return decompose(mode, op, *args, **kwargs)

    patch.setattr(api.owner(), api.name, planted)


def other_package(patch: Patch) -> None:
    """AOTInductor's package computes something else. No C++ is compiled."""
    modules: list[Any] = []
    make, load = torch_api.AOTI_PACKAGE, torch_api.AOTI_LOAD
    patch.setattr(make.owner(), make.name, lambda program, **_: modules.append(program.module()))
    patch.setattr(load.owner(), load.name, lambda _: lambda *args: modules[0](*args) + 1)


def other_wrapper(patch: Patch) -> None:
    """The code around inductor's kernels adds 1 if it is C++. No C++ is compiled: dynamo's graphs run as they are."""
    config, backend = torch._inductor.config, torch_api.LOOKUP_BACKEND

    def plain(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        extra = int(config.cpp_wrapper)
        return lambda *args: [one + extra if isinstance(one, torch.Tensor) else one for one in graph(*args)]

    patch.setattr(backend.owner(), backend.name, lambda _: plain)


class Fault(NamedTuple):
    """`missed` are the calls that do not show it."""

    plant: Callable[[Patch], None]
    text: str
    stage: Stage
    kind: Kind
    says: str
    missed: tuple[CallSize, ...] = ()


FAULTS = {
    "only at a large size": Fault(
        in_place_of(torch.relu, lambda x: torch.relu(x) + (x.shape[0] > 5)),
        RELU,
        "compile",
        "wrong-result",
        "values of result",
        CALL_SIZES[:-2],
    ),
    "a count that is off by one": Fault(
        in_place_of(torch.Tensor.sum, lambda x: torch.sum(x) + 1),
        COUNTS,
        "compile",
        "wrong-result",
        "values of result[1]",
    ),
    "beside random numbers": Fault(
        in_place_of(torch.relu, lambda x: torch.relu(x) + 1), DROPS, "compile", "wrong-result", "values of result[0]"
    ),
    "a gradient of zeros": Fault(
        lambda patch: without_gradient(patch, kept=True),
        LEARNS,
        "aot",
        "wrong-result",
        "gradient 0",
        ("0",),
    ),
    "no gradient": Fault(
        lambda patch: without_gradient(patch, kept=False), LEARNS, "aot", "wrong-result", "gradient 0"
    ),
    "a gradient without a gradient": Fault(
        in_place_of(torch.square, detached),
        LEARNS.replace("torch.relu(x)", "torch.square(torch.relu(x))"),
        "compile",
        "wrong-result",
        "gradient ",
        ("1", "2", "7"),
    ),
    "a copy in place of a view": Fault(
        in_place_of(torch.transpose, lambda *args: torch.transpose(*args).clone()),
        WRITES,
        "compile",
        "wrong-result",
        "values of result[0]",
    ),
    "in a decomposition": Fault(wrong_decomposition, ELU, "aot-decomposed", "wrong-result", "gradient 0", ("0",)),
    "in AOTInductor's package": Fault(other_package, RELU, "aoti", "wrong-result", "values of result"),
    "in the C++ wrapper": Fault(other_wrapper, RELU, "cpp-wrapper", "wrong-result", "values of result"),
}


QUICK = ("no gradient", "a count that is off by one")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in FAULTS]
)
def test_a_planted_fault_is_found(name: str, monkeypatch: Patch) -> None:
    fault = FAULTS[name]
    subject = ProgramSubject(fault.text)
    with monkeypatch.context() as patch:
        fault.plant(patch)
        first, *others = judge_run(Trial(Run(subject, fault.stage, calls=CALL_SIZES), NAMES)).failures
        assert (first.failure.kind, others) == (fault.kind, [])
        assert fault.says in first.failure.evidence
        if name == "in a decomposition":
            assert str(first.signature.site) == "torch/_decomp/decompositions.py:elu_backward"
            assert first.signature.anchor == "after aot: decompositions aten.elu_backward.default"
        if fault.missed:
            assert not judge_run(Trial(Run(subject, fault.stage, calls=fault.missed), NAMES)).failures
    if fault.stage in ("compile", "aot"):
        assert not judge_run(Trial(Run(subject, fault.stage, calls=CALL_SIZES), NAMES)).failures


def test_the_first_node_of_which_the_graph_is_wrong_is_the_site(monkeypatch: Patch) -> None:
    """The fake kernel of relu says that its result is contiguous. So AOTAutograd leaves the op after it out."""
    text = RELU.replace("torch.relu(x)", "torch.relu(torch.transpose(x, 0, 1)).contiguous()")
    table, relu = torch._decomp.decomposition_table, torch.ops.aten.relu.default
    monkeypatch.setitem(table, relu, lambda x: x.new_empty(x.shape))
    (found,) = judge_run(Trial(Run(ProgramSubject(text), "aot", calls=("example",)), NAMES)).failures
    assert found.failure.kind == "wrong-layout"
    assert (found.signature.site.function, found.signature.anchor) == ("<lambda>", "strides: permuted for contiguous")


def test_the_graph_of_the_gradients_is_compared_node_by_node(monkeypatch: Patch) -> None:
    table, backward = torch._decomp.decomposition_table, torch.ops.aten.threshold_backward.default
    monkeypatch.setitem(table, backward, lambda grad, x, threshold: grad.new_empty_strided(x.shape, (1, x.shape[0])))
    (found,) = judge_run(Trial(Run(ProgramSubject(LEARNS), "aot", calls=("example",)), NAMES)).failures
    assert found.failure.kind == "wrong-meta"
    assert (found.signature.site.function, found.signature.anchor) == (
        "<lambda>",
        "strides of aten::threshold_backward",
    )


def test_a_kernel_that_says_nothing_of_a_tensor_is_wrong() -> None:
    said = [(one.what, one.how) for one in unlike((None,), (torch.ones(1),), [], {}, one_op=True)]
    assert said == [("structure", "nothing, the value is a tensor")]
    assert not list(unlike((None,), (None,), [], {}, one_op=True))
