"""Captured programs are called and compared with eager: real torch, every stage that is cheap to call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.fx import GraphModule

from ddefuzz.execute import exercise as exercise_module
from ddefuzz.execute.exercise import exercise
from ddefuzz.execute.observe import observe
from ddefuzz.execute.preparation import PreparedSubject
from ddefuzz.execute.processes import Exchange
from ddefuzz.execute.protocol import (
    CHEAP_TO_CALL,
    NO_VALUES,
    Call,
    CallableSubject,
    ProgramSubject,
    Run,
    Semantics,
    Stage,
)
from ddefuzz.execute.stages import Capture, stage_function
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Fault, FaultKind
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles import assertions, specialization
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.program.sizes import CALL_SIZES, CallSize, with_drawn

HEADER = "# ddefuzz program v1\n"
MASKED = f"""{HEADER}# inputs: mask = trues(3); x = normal
def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "6 4"]):
    kept = x[mask]
    return (kept + 1, kept.shape[0])
"""
ROWS = f"""{HEADER}# inputs: x = normal, grad
def program(x: Float32[Tensor, "u0=3 4"]):
    return torch.tanh(x)
"""
OWN_BROADCAST = f"""{HEADER}# inputs: x = normal
def program(x: Float32[Tensor, "u0=3 4"]):
    return x[:1] + x
"""
BY_MINIMUM = f"""{HEADER}# inputs: x = normal
def program(x: Float32[Tensor, "u0=3 4"]):
    ones = torch.ones((3, torch.sym_min(x.shape[0], 3), 2, 2))
    return torch.vmap(torch.matmul)(ones, ones[:, :1])
"""
VIEWS = f"""{HEADER}# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "2 u0=3"], y: Float32[Tensor, "u1"]):
    return x.view(y.shape)
"""
EMPTY_LOSS = f"""{HEADER}# inputs: x = normal; y = index(1)
def program(x: Float32[Tensor, "u0=3 4"], y: Int64[Tensor, "u0=3 4"]):
    return torch.nn.functional.multilabel_margin_loss(x, y)
"""


def calls_of(text: str, stage: Stage, sizes: tuple[CallSize, ...] = CALL_SIZES) -> dict[str, Call]:
    return {call.size: call for call in observe(Run(ProgramSubject(text), stage, calls=sizes)).calls}


@pytest.mark.parametrize("stage", CHEAP_TO_CALL)
@pytest.mark.parametrize("text", [MASKED, ROWS], ids=["mask", "rows"])
def test_a_right_capture_agrees_at_every_size(text: str, stage: Stage) -> None:
    calls = calls_of(text, stage)
    assert {"example", "0", "1", "2"} <= set(calls)
    assert {call.agreement for call in calls.values()} == {"same"}
    assert all(call.eager.returned and call.captured.returned and not call.recompiled for call in calls.values())


@pytest.mark.parametrize("stage", ["aot", "export", "compile"])
@pytest.mark.parametrize("text", [OWN_BROADCAST, BY_MINIMUM], ids=["read later", "of the input alone"])
def test_a_refusal_of_the_captured_program_has_its_expression_and_the_symbols_values(text: str, stage: Stage) -> None:
    call = calls_of(text, stage)["example"]
    assert call.eager.returned
    assert call.agreement is None
    assert call.captured.error.startswith("RuntimeError: Runtime assertion failed")
    assert "u0" in call.captured.expression
    assert call.symbols == (("u0", 3),)


@pytest.mark.parametrize(
    ("kind", "expression"), [("add assertion", "u0 <= 2"), ("specialize", "u1 == u0")], ids=["range", "symbols"]
)
def test_a_refusal_before_the_graph_runs_has_the_symbols_values(kind: FaultKind, expression: str) -> None:
    text = f"""{HEADER}# inputs: x = normal
def program(x: Float32[Tensor, "u0=3 u1=5"]):
    return x.contiguous()
"""
    expression_there = "Eq(u1, 1)" if kind == "add assertion" else "u0*u1 < 2"
    guards = observe(Run(ProgramSubject(text), "export-strict")).guards
    place = next(one.place for one in guards if one.expression == expression_there)
    planted = Semantics(faults=(Fault(place, kind, 1),))
    (call,) = observe(Run(ProgramSubject(text), "export-strict", planted, calls=("example",))).calls
    assert call.captured.error.startswith("AssertionError: Guard failed: args_0.size()")
    assert (call.captured.expression, call.symbols) == (expression, (("u0", 3), ("u1", 5)))


def test_masks_have_the_sizes_where_input_dims_are_static() -> None:
    call = calls_of(OWN_BROADCAST, "export", ("2",))["2"]
    assert call.symbols == (("u0", 2),)


def test_sizes_that_lead_to_the_same_inputs_are_called_once() -> None:
    calls = calls_of(OWN_BROADCAST, "export", CALL_SIZES)
    sizes = [size for call in calls.values() for size in (call.size, *call.same)]
    assert sorted(sizes) == sorted(with_drawn(parse(OWN_BROADCAST, "own").program, CALL_SIZES, 0))
    assert len(calls) < len(CALL_SIZES)


def altered(text: str, change: Callable[[Any], Any]) -> Call:
    """A call of a captured program whose result is changed on its way out."""

    def run(fresh: PreparedSubject) -> Any:
        return fresh.call(*fresh.args)

    graph = torch.fx.symbolic_trace(lambda: None)
    capture = Capture(graph, lambda fresh: change(run(fresh)), run, lambda _: None, lambda: 1)
    (call,) = exercise(ProgramSubject(text), capture, ("example",))
    return call


@pytest.mark.parametrize("value", ["torch.amax(x, 0, out=y)", "y.view(1).add_(x.sum())"])
def test_what_is_written_to_an_input_without_dims_is_seen_in_compile(value: str) -> None:
    """The value of such an input is read by dynamo, so it is cloned where the program does not write to it."""
    text = f"""{HEADER}# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0=3"], y: Float32[Tensor, ""]):
    return {value}
"""
    assert {call.agreement for call in calls_of(text, "compile").values() if call.size != "0"} == {"same"}


def test_a_wrong_value_differs() -> None:
    call = altered(MASKED, lambda result: (result[0] * 2, result[1]))
    assert (call.agreement, [one.what for one in call.differences]) == ("differs", ["values"])
    assert altered(MASKED, lambda result: (result[0], 7)).differences[0].where == "result[1]"


def test_a_call_for_which_torch_fails_to_capture_again_is_no_call_of_what_was_captured() -> None:
    call = calls_of(VIEWS, "compile", ("0",))["0"]
    assert "Could not guard" in call.captured.error
    assert call.recompiled


@pytest.mark.parametrize("stage", ["compile", "aot"])
def test_a_marked_dim_that_became_a_number_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"""{HEADER}# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0=3 4"], y: Float32[Tensor, "u1=5"]):
    return (x * 2, y + 1)
"""
    mark = torch_api.bound(torch_api.MARK_UNBACKED)

    def only_x(tensor: torch.Tensor, dim: int, **options: Any) -> None:
        if tensor.dim() == 2:
            mark(tensor, dim, **options)

    marking = torch_api.MARK_UNBACKED
    monkeypatch.setattr(marking.owner(), marking.name, only_x)
    seen = OracleInput(text, observe(Run(ProgramSubject(text), stage, calls=("example", "7"))))
    (failure,) = specialization.judge(seen)
    assert (failure.kind, failure.evidence) == ("specialized", "at size 7: size_0_of_input_1 = 5 is not so")
    assert specialization.judge(OracleInput(text, observe(Run(ProgramSubject(text), stage, calls=("5",))))) == ()


def test_memory_that_a_kernel_does_not_initialize_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    found, run = {"eager": 1.0, "captured": 2.0}, exercise_module._run

    def left_there(side: Literal["eager", "captured"], at: Any, capture: Capture, **options: Any) -> Any:
        result = run(side, at, capture, **options)
        filled = torch.are_deterministic_algorithms_enabled()
        value = torch.full_like(result.left.result, found[side])
        return result if filled else result._replace(left=result.left._replace(result=value))

    monkeypatch.setattr(exercise_module, "_run", left_there)
    call = calls_of(EMPTY_LOSS, "export", ("0",))["0"]
    assert (call.agreement, call.why) == ("incomparable", "eager differs from eager")
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_copy_where_eager_has_a_view_is_accepted() -> None:
    view = f'{HEADER}# inputs: x = normal\ndef program(x: Float32[Tensor, "4 4"]):\n    return x[1:]\n'
    call = altered(view, lambda result: result.clone())
    assert (call.agreement, [one.what for one in call.accepted]) == ("same", ["alias"])
    call = altered(view.replace("x[1:]", "x.t()"), lambda result: result.clone(memory_format=torch.contiguous_format))
    assert (call.agreement, [one.what for one in call.accepted]) == ("same", ["strides", "alias"])
    call = altered(view.replace("x[1:]", "x.t() + 1"), lambda result: result.contiguous())
    assert (call.agreement, [one.what for one in call.differences]) == ("differs", ["strides"])


def test_float64_decides_between_two_roundings() -> None:
    sums = f'{HEADER}# inputs: x = normal\ndef program(x: Float16[Tensor, "4096"]):\n    return x.sum()\n'

    def exactly(result: torch.Tensor) -> torch.Tensor:
        x = prepare(ProgramSubject(sums)).args[0]
        exact: torch.Tensor = x.double().sum().to(result.dtype)
        return exact

    assert altered(sums, exactly).agreement == "same"
    assert altered(sums, lambda result: result + 1).agreement == "differs"


RANK = f"""{HEADER}# inputs: x = normal
def program(x: Float32[Tensor, "4 4"]):
    return (torch.linalg.matrix_rank(x), x + 1)
"""
AT_ONE = f"""{HEADER}# inputs: x = normal
def program(x: Float32[Tensor, "64"]):
    return torch.softmax(x, 0).sum() >= 1
"""
DROPPED = f"""{HEADER}# inputs: x = normal
def program(x: Float32[Tensor, "64"]):
    return (torch.nn.functional.dropout(x, 0.5), x + 1)
"""


def test_an_integer_is_compared_exactly_beside_small_floats() -> None:
    call = altered(RANK, lambda result: (result[0] * 0, result[1]))
    assert [(one.what, one.where) for one in call.differences] == [("values", "result[0]")]
    call = altered(RANK.replace("(torch.linalg.matrix_rank(x), x + 1)", "x.shape[0]"), lambda result: result + 1)
    assert [(one.what, one.where) for one in call.differences] == [("number", "result")]


def test_a_bool_that_hangs_on_rounding_does_not_differ() -> None:
    assert altered(AT_ONE, torch.logical_not).agreement == "same"


def test_random_numbers_excuse_only_what_depends_on_them() -> None:
    assert altered(DROPPED, lambda result: (result[0] + 1, result[1])).agreement == "incomparable"
    call = altered(DROPPED, lambda result: (result[0] + 1, result[1] + 1))
    assert [one.where for one in call.differences] == ["result[1]"]
    unused = DROPPED.replace("(torch.nn.functional.dropout(x, 0.5), x + 1)", "torch.nn.functional.dropout(x, 0.0)")
    assert altered(unused, lambda result: result + 1).agreement == "differs"


def test_a_gradient_that_is_lost_is_seen() -> None:
    def run(fresh: PreparedSubject) -> Any:
        return fresh.call(*fresh.args)

    graph = torch.fx.symbolic_trace(lambda: None)
    capture = Capture(graph, lambda fresh: run(fresh).detach(), run, lambda _: None, lambda: 1, backward=True)
    (call,) = exercise(ProgramSubject(ROWS), capture, ("example",))
    assert [(one.what, one.where, one.how) for one in call.differences] == [
        ("requires_grad", "result", "requires no gradient, eager's requires a gradient"),
        ("gradient", "gradient 0", "NoneType, eager has Tensor"),
    ]


def test_a_gradient_that_differs_is_seen() -> None:
    def run(fresh: PreparedSubject) -> Any:
        return fresh.call(*fresh.args)

    def doubled(fresh: PreparedSubject) -> Any:
        value = run(fresh)
        return value + (value - value.detach())

    graph = torch.fx.symbolic_trace(lambda: None)
    for compute, expected in ((run, ("same", [])), (doubled, ("differs", ["gradient"]))):
        capture = Capture(graph, compute, run, lambda _: None, lambda: 1, backward=True)
        (call,) = exercise(ProgramSubject(ROWS), capture, ("example",))
        assert (call.agreement, [one.what for one in call.differences]) == expected


@pytest.mark.parametrize(("stage", "backward"), [("aot", True), ("compile", False)])
def test_gradients_are_compared_where_they_are_captured(stage: Stage, backward: bool) -> None:
    capture = stage_function(stage, called=True)(prepare(ProgramSubject(ROWS)))
    assert capture is not None
    assert capture.backward == backward


def test_a_mutation_of_an_input_is_compared_by_its_effect() -> None:
    writes = f'{HEADER}# inputs: x = normal\ndef program(x: Float32[Tensor, "3"]):\n    return torch.relu(x)\n'
    graph = torch.fx.symbolic_trace(lambda: None)
    capture = Capture(
        graph,
        lambda fresh: fresh.args[0].zero_().relu(),
        lambda fresh: fresh.call(*fresh.args),
        lambda _: None,
        lambda: 1,
    )
    (call,) = exercise(ProgramSubject(writes), capture, ("example",))
    assert "mutation" in {one.what for one in call.differences}


@pytest.mark.parametrize("stage", ["export", "compile"])
def test_user_code_that_draws_its_weights_agrees(tmp_path: Path, stage: Stage) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "import torch\n"
        "BIAS = torch.randn(8)\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))\n"
        "    def forward(self, x, mask):\n"
        "        return self.linear(x)[mask] + BIAS\n"
        "def make():\n"
        "    return Model(), (torch.randn(6, 8), torch.rand(6) > 0.5)\n"
    )
    (call,) = observe(Run(CallableSubject(str(path), name="make"), stage, calls=("example",))).calls
    assert (call.agreement, call.differences) == ("same", ())


def test_meta_tensors_are_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "meta.py"
    path.write_text("import torch\ndef f(x): return x + 1\nf_args = (torch.empty(3, device='meta'),)\n")
    (call,) = observe(Run(CallableSubject(str(path), name="f"), "export", calls=("example",))).calls
    assert call.agreement == "incomparable"


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise ValueError("not with another")

    __hash__ = object.__hash__


def test_what_cannot_be_compared_is_no_error_of_ddefuzz(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("import torch\ndef f(x): return x + 1\nf_args = (torch.ones(3),)\n")
    subject = CallableSubject(str(path), name="f")
    capture = stage_function("export", called=True)(prepare(subject))
    assert capture is not None

    def returning(_: PreparedSubject) -> Any:
        return {Incomparable(): 1}

    (call,) = exercise(subject, capture._replace(compute=returning, reference=returning), ("example",))
    assert (call.agreement, call.why) == ("incomparable", "not compared: ValueError: not with another")


class TextError(Exception):
    """Without a message."""

    def __str__(self) -> str:
        raise SystemExit(1)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), TextError()])
def test_whatever_a_call_raises_is_how_it_ends(error: BaseException) -> None:
    def fails(_: Any) -> Any:
        raise error

    assert altered(MASKED, fails).captured.error.startswith(type(error).__name__)


class Forgetful(torch.nn.Module):
    """Changes its state in a call."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(2))
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros(2), persistent=False)

    def load_state_dict(self, *_: Any, **__: Any) -> Any:
        """Not called."""
        raise SystemExit(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The number of calls so far, times x."""
        self.seen = self.seen.add_(1)
        del self.scale
        return x * self.seen


def test_a_call_leaves_the_state_of_a_model_to_the_other_side() -> None:
    model, x = Forgetful(), torch.ones(2)
    scale, seen = model.scale, model.seen

    def run(_: PreparedSubject) -> Any:
        return model(x)

    graph = torch.fx.symbolic_trace(lambda: None)
    capture = Capture(graph, run, run, lambda _: None, lambda: 1, module=model)
    (call,) = exercise(ProgramSubject(MASKED), capture, ("example",))
    assert call.agreement == "same"
    assert (model.scale is scale, model.seen is seen, model.seen.tolist()) == (True, True, [0, 0])


def test_a_result_without_values_is_a_wrong_one() -> None:
    called = "torch.func.functional_call(torch.nn.Linear(4, 3), dict(weight=w), (x,)).sum()"
    body = f"return torch.func.grad(lambda w: {called})(x)"
    text = f'# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "3 4"]):\n    {body}\n'
    (call,) = observe(Run(ProgramSubject(text), "export", calls=("example",))).calls
    assert [(one.what, one.where, one.how) for one in call.differences] == [("values", "result", NO_VALUES)]
    assert call.node is None


PLACED = f"""{HEADER}# inputs: x = normal, shard0; w = normal, replicate
def program(x: Float32[Tensor, "u0=8 4"], w: Float32[Tensor, "4 3"]):
    y = x @ w
    return y, y.to_local()
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["compile", "aot"])
def test_a_program_of_dtensors_is_captured_and_called(stage: Stage) -> None:
    observation = observe(Run(ProgramSubject(PLACED), stage, Semantics(), calls=("example", "random-1", "1", "0")))
    assert (observation.outcome, observation.reason) == ("ok", "")
    assert {call.agreement for call in observation.calls} == {"same"}


GRADIENTS = f"""{HEADER}# inputs: x = normal, shard0, grad; w = normal, replicate, grad
def program(x: Float32[Tensor, "u0=8 4"], w: Float32[Tensor, "4 3"]):
    return torch.nn.functional.relu(x @ w).sum(1)
"""


PARALLEL = f"""{HEADER}# inputs: x = normal, grad
def program(x: Float32[Tensor, "u0=8 4"]):
    return torch.distributed.tensor.parallel.parallelize_module(
        torch.nn.Linear(4, 8),
        torch.distributed.device_mesh.init_device_mesh("cpu", (4,)),
        torch.distributed.tensor.parallel.ColwiseParallel(),
    )(x)
"""


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (PLACED, "result[0]['process 2']"),
        pytest.param(GRADIENTS, "gradient 0['process 2']", marks=pytest.mark.slow),
        pytest.param(PARALLEL, "result['process 2']", marks=pytest.mark.slow),
    ],
    ids=["results", "gradients", "modules"],
)
def test_values_of_all_processes_are_compared(monkeypatch: pytest.MonkeyPatch, text: str, at: str) -> None:
    subject = ProgramSubject(text)
    capture = stage_function("compile", called=True)(prepare(subject))
    assert capture is not None
    (right,) = exercise(subject, capture, ("example",))
    assert (right.agreement, right.everywhere) == ("same", "compared")
    arguments = Exchange.arguments

    def with_other_weights(exchange: Exchange, graph: GraphModule, args: tuple[Any, ...]) -> list[Any]:
        given = list(arguments(exchange, graph, args))
        at, weights = next((at, one) for at, one in reversed([*enumerate(given)]) if isinstance(one, DTensor))
        own: Any = weights.to_local()
        values = {rank: value + (rank == 2) for rank, value in own._local_tensors.items()}
        given[at] = DTensor.from_local(type(own)(values), weights.device_mesh, weights.placements)
        return given

    monkeypatch.setattr(Exchange, "arguments", with_other_weights)
    (call,) = exercise(subject, capture, ("example",))
    assert call.agreement == "differs"
    assert at in [one.where for one in call.differences]


@pytest.mark.parametrize("stage", ["compile", "aot"])
def test_an_input_that_is_returned_has_the_values_of_all_processes(stage: Stage) -> None:
    text = f"""{HEADER}# inputs: x = normal, shard0
def program(x: Float32[Tensor, "u0=8 4"]):
    return x, x + 1
"""
    (call,) = observe(Run(ProgramSubject(text), stage, Semantics(), calls=("example",))).calls
    assert (call.agreement, call.differences) == ("same", ())
    assert (call.everywhere == "compared") == (stage == "compile")


@pytest.mark.parametrize(
    ("shapes", "body", "why"),
    [
        ('"u0=7 4"', "x.new_zeros((x.shape[0], 2)) + x[:, :2]", "compared"),
        ('"7 u0=4"', "x * x.to_local().shape[0]", "not compared: a static dim is sharded unevenly"),
    ],
    ids=["sizes", "uneven"],
)
def test_what_is_compared_in_all_processes(shapes: str, body: str, why: str) -> None:
    text = f"{HEADER}# inputs: x = normal, shard0\ndef program(x: Float32[Tensor, {shapes}]):\n    return {body}\n"
    (call,) = observe(Run(ProgramSubject(text), "compile", Semantics(), calls=("example",))).calls
    assert (call.agreement, call.differences, call.everywhere) == ("same", (), why)


@pytest.mark.parametrize("stage", ["fake", "export"])
def test_a_stage_that_does_not_mark_dims_does_not_judge_dtensors(stage: Stage) -> None:
    observation = observe(Run(ProgramSubject(PLACED), stage, Semantics()))
    assert observation.outcome == "not-judged"
    assert observation.reason.startswith("only mark_unbacked makes sizes of a DTensor unbacked")


def test_an_error_that_dtensor_catches_is_the_reason() -> None:
    """It looks for a decomposition that it can shard, takes a data-dependent error for a way that it cannot, and says
    that the op has no strategy (torch/distributed/tensor/_decompositions.py).
    """
    text = f"""{HEADER}# inputs: x = normal, shard0; y = normal, shard0; z = normal, shard0
def program(x: Float32[Tensor, "u0=8 u1=8"], y: Float32[Tensor, "u2=8"], z: Float32[Tensor, "u3=8"]):
    return torch.addr(x, y, z)
"""
    observation = observe(Run(ProgramSubject(text), "compile"))
    message = "Operator aten.addr.default does not have a sharding strategy registered."
    assert observation.exceptions[-1].message == message
    (failure,) = judge([observation])
    assert (failure.kind, failure.evidence) == ("dde", "u2 < 1")
    assert str(classify(failure).signature.site) == "torch/distributed/tensor/_ops/utils.py:is_tensor_shardable"


def test_what_dtensor_remembers_of_eager_hides_no_failure() -> None:
    """In eager, torch.complex runs and its sharding is remembered. Alone, torch.compile finds none."""
    text = f"""{HEADER}# inputs: x = normal, shard0; y = normal, shard0
def program(x: Float32[Tensor, "8"], y: Float32[Tensor, "8"]):
    return torch.complex(x, y)
"""
    outcomes = [observe(Run(ProgramSubject(text), stage)).outcome for stage in ("eager", "compile")]
    assert outcomes == ["ok", "fail"]


def test_symbols_of_dtensors_have_the_names_of_the_program() -> None:
    """Torch numbers the dims of each shard, too: of these four, it calls the third and fourth u4 and u5."""
    text = f"""{HEADER}# inputs: x = normal, shard0; i = index(4), shard0
def program(x: Float32[Tensor, "u0=8 u1=4"], i: Int64[Tensor, "u2=8 u3=4"]):
    return torch.scatter_add(x, 0, i, x)
"""
    raised = observe(Run(ProgramSubject(text), "compile", Semantics())).raised
    assert raised is not None
    assert raised.expression == "Eq(u1, u3)"
    assert [(one.symbol, one.source) for one in raised.symbols] == [("u1", "dim 1 of x"), ("u3", "dim 1 of i")]


@pytest.mark.parametrize(
    ("recipe", "symbols"), [("values([0.5, 1.0])", (("zuf0", 0.5),)), ("special", ())], ids=["finite", "infinite"]
)
def test_a_symbol_of_a_float_has_its_value(recipe: str, symbols: tuple[tuple[str, float], ...]) -> None:
    text = f"""{HEADER}# inputs: x = {recipe}
def program(x: Float32[Tensor, "2"]):
    s = x[0].item()
    torch._check(s != 0.0)
    return x * s
"""
    seen = observe(Run(ProgramSubject(text), "export", calls=("example",)))
    assert [call.symbols for call in seen.calls] == [symbols]
    assert assertions.judge(OracleInput(text, seen)) == ()
