"""Gradients of tensor-parallel modules are compared in all processes: of what was captured with eager's, and of eager
with those of the plain module.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, _api, _redistribute
from torch.fx import GraphModule

from ddefuzz.execute.exercise import exercise
from ddefuzz.execute.processes import Exchange
from ddefuzz.execute.protocol import Call, ProgramSubject
from ddefuzz.execute.stages import stage_function
from ddefuzz.execute.subject import prepare

PARALLEL = "torch.distributed.tensor.parallel"
MESH = 'torch.distributed.device_mesh.init_device_mesh("cpu", (4,))'
SIZES = ("example", "0", "1", "drawn-1")


def parallelized(module: str, plan: str) -> str:
    return f"{PARALLEL}.parallelize_module(torch.nn.{module}, {MESH}, {PARALLEL}.{plan})"


def program(call: str, x: str = 'Float32[Tensor, "u0=8 4"]', made: str = "normal, grad") -> str:
    return f"# ddefuzz program v1\n# inputs: x = {made}\ndef program(x: {x}):\n    return {call}\n"


WAIT = "torch.distributed._functional_collectives.wait_tensor"
COLUMNS = parallelized("Linear(4, 8)", "ColwiseParallel()")
ROWS = parallelized("Linear(8, 4)", "RowwiseParallel()")
NORM = parallelized("LayerNorm(4)", "SequenceParallel()")
TENSOR = "torch.distributed.tensor"
BY_ROW = f"RowwiseParallel(input_layouts={TENSOR}.Replicate(), output_layouts={TENSOR}.Shard(0))"

LINEAR = program(f"{COLUMNS}(x)")
TWO = program(f"{WAIT}(torch.nn.Sequential({COLUMNS}, torch.nn.ReLU(), {ROWS})(x))")
RIGHT = {
    "columns": LINEAR,
    "two": TWO,
    "norm": program(f"{NORM}(x).to_local()", 'Float32[Tensor, "2 8 4"]'),
    "rows": program(f"{WAIT}({parallelized('Linear(4, 8)', BY_ROW)}(x))", 'Float32[Tensor, "8 4"]'),
    "sharded": program(f"{COLUMNS}(x)", made="normal, shard0, grad"),
    "embedding": program(
        f"{parallelized('Embedding(6, 8)', 'ColwiseParallel()')}(x)", 'Int64[Tensor, "5"]', "index(6)"
    ),
}


def called(text: str, *sizes: str) -> tuple[Call, ...]:
    torch.compiler.reset()
    subject = ProgramSubject(text)
    capture = stage_function("compile", called=True)(prepare(subject))
    assert capture is not None
    return exercise(subject, capture, sizes)


def different(calls: tuple[Call, ...]) -> list[list[str]]:
    return [[one.where for one in call.differences if one.what == "gradient"] for call in calls]


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_right_gradients_are_compared_and_equal(name: str) -> None:
    calls = called(RIGHT[name], *SIZES)
    assert len(calls) == (len(SIZES) if "u0" in RIGHT[name] else 1)
    assert {(call.agreement, call.everywhere, call.differences) for call in calls} == {("same", "compared", ())}


def test_a_wrong_redistribution_in_eager_differs_from_the_plain_module(monkeypatch: pytest.MonkeyPatch) -> None:
    backward = _redistribute.Redistribute.backward

    def wrong(ctx: Any, gradient: Any) -> Any:
        right, *others = backward(ctx, gradient)
        own = right.to_local()
        if hasattr(own, "_local_tensors"):
            values = {rank: value + (rank == 2) for rank, value in own._local_tensors.items()}
            right = DTensor.from_local(type(own)(values), right.device_mesh, right.placements)
        return (right, *others)

    monkeypatch.setattr(_redistribute.Redistribute, "backward", staticmethod(wrong))
    for call, places in zip(calls := called(LINEAR, *SIZES), different(calls), strict=True):
        weights = [place for place in places if "input" not in place]
        expected = ("same", []) if call.size == "0" else ("differs", ["m0.weight['process 2']"])
        assert (call.agreement, weights) == expected


def test_a_wrong_backward_of_the_result_differs_in_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    backward = _api._ToTorchTensor.backward

    def wrong(ctx: Any, gradient: Any) -> Any:
        right, *others = backward(ctx, gradient)
        return (right * 2, *others)

    monkeypatch.setattr(_api._ToTorchTensor, "backward", staticmethod(wrong))
    (places,) = different(called(LINEAR, "example"))
    assert "m0.weight['process 0']" in places


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


def test_a_wrong_gradient_of_a_weight_in_the_captured_graph_differs_from_eager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = Exchange.arguments
    apply: Any = Doubled.apply

    def doubled(exchange: Exchange, graph: GraphModule, args: tuple[Any, ...]) -> list[Any]:
        given = list(arguments(exchange, graph, args))
        return [apply(one) if isinstance(one, DTensor) else one for one in given]

    monkeypatch.setattr(Exchange, "arguments", doubled)
    for places in different(called(LINEAR, "example", "drawn-1")):
        assert [place.partition("[")[0] for place in places] == [*["gradient 1"] * 4, "gradient 2"]
