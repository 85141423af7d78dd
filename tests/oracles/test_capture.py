"""Tests of the capture oracle: the kind of a failure follows from its chain of exceptions."""

from __future__ import annotations

import pytest

from ddefuzz.classify.failure import Kind
from ddefuzz.execute.protocol import EXPLICIT, Call, CallEnd, ExceptionInfo, Observation, Outcome, Stage
from ddefuzz.instrument.events import Place, RaisedError
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.capture import classify, judge, judge_seen

GUARD = "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode"
PENDING = "torch.fx.experimental.symbolic_shapes.PendingUnbackedSymbolNotFound"
RAISED = RaisedError("Eq(u0, 0)", "guard_bool", Place("Python", "torch/_refs/__init__.py", 1), ())


def failed(*types: str, stage: Stage = "export", outcome: Outcome = "fail") -> Observation:
    chain = tuple(ExceptionInfo(name, f"what {name} says\nat length") for name in types)
    return Observation(stage, EXPLICIT, outcome, exceptions=chain, raised=RAISED if GUARD in types else None)


@pytest.mark.parametrize(
    ("chain", "kind"),
    [
        ((GUARD,), "dde"),
        (("torch._dynamo.exc.UserError", GUARD), "dde"),
        (("torch._inductor.exc.LoweringException", GUARD), "dde"),
        ((PENDING,), "pending-unbacked"),
        (("torch._dynamo.exc.InternalTorchDynamoError", PENDING), "pending-unbacked"),
        (("torch._subclasses.fake_tensor.DataDependentOutputException",), "data-dependent-output"),
        (("torch._subclasses.fake_tensor.DynamicOutputShapeException",), "data-dependent-output"),
        (
            ("torch._dynamo.exc.Unsupported", "torch._subclasses.fake_tensor.UnsupportedOperatorException"),
            "data-dependent-output",
        ),
        (("torch._dynamo.exc.Unsupported",), "unsupported"),
        (("torch._dynamo.exc.UserError",), "unsupported"),
        (("torch._dynamo.exc.InternalTorchDynamoError", "builtins.AssertionError"), "internal-error"),
        (("builtins.RuntimeError",), "internal-error"),
    ],
)
def test_the_chain_decides_the_kind(chain: tuple[str, ...], kind: Kind) -> None:
    (failure,) = judge([failed(*chain)])
    assert failure.kind == kind


def test_evidence_is_the_expression_or_the_first_line() -> None:
    assert [failure.evidence for failure in judge([failed(GUARD), failed("builtins.RuntimeError")])] == [
        "Eq(u0, 0)",
        "RuntimeError: what builtins.RuntimeError says",
    ]


BROADCAST = """\
# ddefuzz program v1
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0=5 {dim}"], y: Float32[Tensor, "u2={size}"]):
    return torch.max(x, y)
"""


@pytest.mark.parametrize(
    ("dim", "size", "kinds"),
    [("u1=1", 5, []), ("u1=1", 1, ["internal-error"]), ("u1=4", 5, ["internal-error"]), ("1", 5, ["internal-error"])],
)
def test_dynamo_may_refuse_an_example_that_broadcasts_a_size_of_1(dim: str, size: int, kinds: list[str]) -> None:
    said = (
        "Guard failed on the same frame it was created. This is a bug - please create an issue."
        "Guard fail reason: 0/0: args[1].size()[0] == args[0].size()[1]  # (unknown source args[1].size()[0])"
    )
    observation = Observation("compile", EXPLICIT, "fail", exceptions=(ExceptionInfo("builtins.AssertionError", said),))
    found = judge_seen(OracleInput(BROADCAST.format(dim=dim, size=size), observation))
    assert [failure.kind for failure in found] == kinds
    assert [failure.kind for failure in judge_seen(OracleInput("", observation))] == ["internal-error"]


@pytest.mark.parametrize("outcome", ["crash", "timeout"])
def test_a_dead_worker_is_a_failure_even_if_eager_raises(outcome: Outcome) -> None:
    failures = judge([failed("builtins.ValueError", stage="eager"), failed(outcome=outcome)])
    assert [failure.kind for failure in failures] == [outcome]


@pytest.mark.parametrize("outcome", ["crash", "timeout"])
def test_a_loss_in_a_call_of_the_captured_program_is_a_kind_of_its_own(outcome: Outcome) -> None:
    lost = Observation("aot", EXPLICIT, outcome, "SIGFPE", calls=(Call("0", CallEnd(), CallEnd("SIGFPE")),))
    (failure,) = judge([lost])
    assert (failure.kind, failure.evidence, failure.size) == (f"{outcome}-in-call", "at size 0: SIGFPE", "0")
    assert classify(failure).cause == "wrong-capture"


def test_an_error_that_eager_raises_too_is_no_failure() -> None:
    assert judge([failed("builtins.ValueError", stage="eager"), failed("builtins.ValueError")]) == ()


@pytest.mark.parametrize("outcome", ["crash", "timeout"])
def test_a_crash_or_hang_of_eager_is_reported_for_eager_only(outcome: Outcome) -> None:
    failures = judge([failed(outcome=outcome, stage="eager"), failed(outcome=outcome), failed("builtins.ValueError")])
    assert [(failure.kind, failure.observation.stage) for failure in failures] == [(outcome, "eager")]


@pytest.mark.parametrize("outcome", ["ok", "not-judged"])
def test_ok_and_not_judged_are_no_failures(outcome: Outcome) -> None:
    assert judge([failed(outcome=outcome)]) == ()


def test_failures_come_in_the_order_of_stages() -> None:
    failures = judge([failed(GUARD, stage="compile"), failed(GUARD, stage="fake")])
    assert [failure.observation.stage for failure in failures] == ["fake", "compile"]
