"""A known failure hides none of another severity."""

from __future__ import annotations

import pytest

from ddefuzz.classify.signature import Signature, Site
from ddefuzz.execute.protocol import EXPLICIT, Call, CallEnd, Difference, Observation, Run, Stage, harm
from ddefuzz.oracles import agreement
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.oracle import SEVERITIES
from ddefuzz.oracles.program import judge_program
from ddefuzz.oracles.table import kinds, row_of

TEXT = """# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=3"]):
    return torch.neg(x)
"""
RETURNED, RAISED = CallEnd(), CallEnd("RuntimeError: no")
SAME = Call("2", RETURNED, RETURNED, "same")
STRIDES = Call("2", RETURNED, RETURNED, "differs", (Difference("strides", "result", "(1, 2), eager has (2, 1)"),))
VALUES = Call("2", RETURNED, RETURNED, "differs", (Difference("values", "result", "all"),))
BOTH = Call("2", RETURNED, RETURNED, "differs", (*STRIDES.differences, *VALUES.differences))
TAKES, REFUSES = Call("2", RAISED, RETURNED), Call("2", RETURNED, RAISED)


def judged(**calls: Call) -> list[tuple[Stage, str]]:
    def runner(run: Run) -> Observation:
        return Observation(run.stage, EXPLICIT, "ok", calls=(calls.get(run.stage, SAME),) if run.calls else ())

    runs = judge_program(TEXT, tuple(calls), (EXPLICIT,), runner, oracles=("agreement",), called=tuple(calls))
    return [(run.observation.stage, one.failure.kind) for run in runs for one in run.failures]


@pytest.mark.parametrize(("first", "kind"), [(STRIDES, "wrong-layout"), (VALUES, "wrong-result")])
def test_what_is_wrong_in_a_cheap_stage_hides_nothing_of_a_slow_one(first: Call, kind: str) -> None:
    assert judged(compile=first, inductor=VALUES) == [("compile", kind), ("inductor", "wrong-result")]


def test_what_a_cheap_stage_does_not_capture_is_not_compiled() -> None:
    ran: list[Stage] = []

    def runner(run: Run) -> Observation:
        ran.append(run.stage)
        return Observation(run.stage, EXPLICIT, "fail", reason="no")

    judge_program(TEXT, ("compile", "inductor"), (EXPLICIT,), runner, called=("compile", "inductor"), compare=False)
    assert ran == ["compile"]


def test_the_worst_difference_of_all_calls_is_reported() -> None:
    (failure,) = agreement.judge(OracleInput(TEXT, Observation("aot", EXPLICIT, "ok", calls=(STRIDES, BOTH))))
    assert row_of(failure.kind).severity == "wrong values"


def test_the_harm_of_calls_has_the_order_of_severities() -> None:
    kinds_of_calls = ("wrong-result", "wrong-layout", "missing-assertion", "over-strict")
    order = [SEVERITIES.index(row_of(kind).severity) for kind in kinds_of_calls]
    assert order == sorted(order)
    assert [harm(call) for call in (VALUES, STRIDES, TAKES, REFUSES, SAME)] == [4, 3, 2, 1, 0]
    assert harm(BOTH) == harm(VALUES)


def test_no_two_kinds_share_a_finding() -> None:
    assert len({Signature(kind, Site("op", None, "torch.neg"), "values").key for kind in kinds()}) == len(kinds())
