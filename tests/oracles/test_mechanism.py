"""The mechanism oracle: on observations made by hand, and on planted answers in real torch."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ddefuzz.campaign.case import run_confirm, run_minimize
from ddefuzz.campaign.tasks import MinimizeTask
from ddefuzz.classify.signature import Cause, Signature, Site
from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import (
    EXPLICIT,
    SIZE_OBLIVIOUS,
    Call,
    CallEnd,
    Difference,
    ExceptionInfo,
    Form,
    Observation,
    ProgramSubject,
    Run,
    RuntimeAssertion,
    Semantics,
    Stage,
)
from ddefuzz.findings.model import slim
from ddefuzz.instrument.events import Answer, Guard, Place
from ddefuzz.oracles import mechanism
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.program import judge_program, look, suspect_of
from ddefuzz.oracles.table import classified, comparing, stored
from tests.classify.test_golden import read

TEXT = """\
# ddefuzz program v1
# inputs: x = normal; mask = trues(3)
def program(x: Float32[Tensor, "6"], mask: Bool[Tensor, "6"]):
    t0 = x[mask]
    t1 = torch.cat((torch.add(t0, 1), torch.zeros(2)))
    return torch.mul(t1, t1.shape[0])
"""
STACKED = """\
# ddefuzz program v1
# inputs: x = sizes(3, 4, 3)
def program(x: Int64[Tensor, "3"]):
    t0 = torch.bincount(x).float()
    t1 = torch.stack((t0, t0)).unsqueeze(0)
    return torch.bmm(t1, t1.transpose(1, 2))
"""
GUARD = Guard(Place("Python", "torch/_refs/__init__.py", 10), "guard_or_false", "Eq(u0, 0)", True, "other", "cat")
SAME = msgspec.structs.replace(GUARD, expression="Eq(u1, 0)", counterfactual="same")
REFUSED = CallEnd("RuntimeError: Runtime assertion failed for expression u0 < 2", "u0 < 2")
VALUES, STRIDES = Difference("values", "result", "how"), Difference("strides", "result", "how")
AT_3, AT_1 = (("u0", 3),), (("u0", 1),)
GOLDEN = Path(__file__).parents[1] / "classify" / "golden"
AGREES = Call("2", CallEnd(), CallEnd(), "same")
WRONG = Call("2", CallEnd(), CallEnd(), "differs", (VALUES,), symbols=AT_3)
STRIDED = msgspec.structs.replace(WRONG, differences=(STRIDES,))
REFUSES = Call("2", CallEnd(), REFUSED, symbols=AT_3)
BROADCASTS = Call("2", CallEnd(), CallEnd("RuntimeError: no", "Eq(u0, u1)"), symbols=(*AT_1, ("u1", 3)))
BOTH_REFUSE = Call("2", REFUSED, REFUSED)
TAKES = Call("2", REFUSED, CallEnd())
AT_ONE = msgspec.structs.replace(WRONG, symbols=AT_1)


def explicit(*calls: Call, guards: tuple[Guard, ...] = (SAME, GUARD)) -> Observation:
    return Observation("aot", EXPLICIT, "ok", guards=guards, calls=calls)


def oblivious(*calls: Call) -> Observation:
    return Observation("aot", SIZE_OBLIVIOUS, "ok", calls=calls)


@pytest.mark.parametrize(
    ("ours", "theirs", "kind"),
    [
        (AGREES, AGREES, None),
        (WRONG, AGREES, "diverged"),
        (AGREES, WRONG, "diverged"),
        (WRONG, WRONG, None),
        (WRONG, REFUSES, "diverged"),
        (STRIDED, AGREES, "changed"),
        (AGREES, STRIDED, "changed"),
        (REFUSES, AGREES, "changed"),
        (AGREES, REFUSES, "changed"),
        (TAKES, BOTH_REFUSE, "changed"),
        (BOTH_REFUSE, BOTH_REFUSE, None),
        (AGREES, AT_ONE, None),
        (WRONG, AT_ONE, None),
        (AT_ONE, AGREES, "diverged"),
        (msgspec.structs.replace(WRONG, recompiled=True), AGREES, None),
        (
            msgspec.structs.replace(REFUSES, captured=CallEnd("E: no", "Eq(u0, u1)"), symbols=(*AT_1, ("u1", 3))),
            AGREES,
            None,
        ),
    ],
)
def test_a_difference_between_two_captured_programs(ours: Call, theirs: Call, kind: str | None) -> None:
    found = mechanism.judge(OracleInput(TEXT, explicit(ours), oblivious(theirs)))
    assert [failure.kind for failure in found] == ([kind] if kind else [])


@pytest.mark.parametrize(
    ("bound", "kinds"), [("u0 <= 4", []), ("4 >= u0", []), ("u0 <= 5", ["changed"]), ("u0 >= 4", ["changed"])]
)
def test_size_oblivious_semantics_assume_that_no_size_is_the_largest(bound: str, kinds: list[str]) -> None:
    refused = msgspec.structs.replace(REFUSES, symbols=(("u0", 4),))
    agreed = msgspec.structs.replace(AGREES, symbols=(("u0", 4),))
    ours = msgspec.structs.replace(explicit(agreed), forms=(Form("traced", (RuntimeAssertion(bound, ""),)),))
    assert [failure.kind for failure in mechanism.judge(OracleInput(TEXT, ours, oblivious(refused)))] == kinds


@pytest.mark.parametrize(("captured", "kinds"), [(CallEnd(), ["regressed"]), (REFUSED, [])])
def test_what_refuses_its_own_example_is_no_better_than_no_capture(captured: CallEnd, kinds: list[str]) -> None:
    """Size-oblivious semantics decided `u0//2 == 1` by the sizes that they assume."""
    error = ExceptionInfo("builtins.RuntimeError", "no", ())
    failed = msgspec.structs.replace(explicit(), outcome="fail", exceptions=(error,))
    other = oblivious(Call("example", CallEnd(), captured, symbols=(("u0", 4),)))
    assert [failure.kind for failure in mechanism.judge(OracleInput(TEXT, failed, other))] == kinds


def test_values_come_before_anything_else() -> None:
    first = msgspec.structs.replace(STRIDED, size="1")
    others = (msgspec.structs.replace(AGREES, size="1"), AGREES)
    (failure,) = mechanism.judge(OracleInput(TEXT, explicit(first, WRONG), oblivious(*others)))
    assert (failure.kind, failure.size) == ("diverged", "2")
    assert failure.evidence == "at size 2: other values with explicit, as eager with size-oblivious semantics"


def test_random_numbers_are_not_compared() -> None:
    text = TEXT.replace("torch.add(t0, 1)", "torch.randn_like(t0)")
    assert mechanism.judge(OracleInput(text, explicit(WRONG), oblivious(AGREES))) == ()


def test_without_a_second_run_there_is_nothing_to_compare() -> None:
    assert mechanism.judge(OracleInput(TEXT, explicit(WRONG))) == ()


def test_the_guard_whose_other_answer_makes_the_two_alike_is_blamed() -> None:
    def runner(run: Run) -> Observation:
        flipped = {(one.expression, one.value) for one in run.semantics.answers}
        return explicit(AGREES if ("Eq(u0, 0)", False) in flipped else WRONG)

    guards = (SAME, msgspec.structs.replace(GUARD, function="other", expression="Eq(u2, 0)"), GUARD)
    seen = OracleInput(TEXT, explicit(WRONG, guards=guards), oblivious(AGREES))
    (found,) = classified(seen, runner, comparing(("capture", "mechanism")))
    assert str(found.signature) == "diverged at torch/_refs/__init__.py:cat [guard_or_false Eq]"
    assert found.cause == "wrong-capture"
    (found,) = classified(seen, lambda _: explicit(WRONG), ("mechanism",))
    assert str(found.signature.site) == "an unknown place"


def test_in_user_code_the_only_guard_is_blamed() -> None:
    def no_run(run: Run) -> Observation:
        raise AssertionError(run)

    (found,) = classified(OracleInput("", explicit(WRONG), oblivious(AGREES)), no_run, ("mechanism",))
    assert found.signature.site.function == "cat"


def failed(golden: str) -> tuple[Cause, OracleInput]:
    """A real failed capture with its cause, as if size-oblivious semantics had captured the program."""
    known = next(iter(read(GOLDEN / f"{golden}.json").failures.values()))
    other = msgspec.structs.replace(known.observation, semantics=SIZE_OBLIVIOUS, outcome="ok")
    return known.cause, OracleInput("", known.observation, other)


@pytest.mark.parametrize("golden", ["own-branch", "diff", "cov"])
def test_a_data_dependent_error_is_left_to_the_capture_oracle(golden: str) -> None:
    """regressed-f4e658bd29 blamed a fallback in `should_fold`, where a comparison of bmm.py raised."""
    _, seen = failed(golden)
    assert classified(seen, observe, ("mechanism",)) == ()
    assert [found.signature.kind for found in classified(seen, observe, ("capture",))] == ["dde"]


@pytest.mark.parametrize("golden", ["scatter-out", "cat-empty", "pending"])
def test_what_regressed_has_the_cause_of_the_failed_capture(golden: str) -> None:
    known, seen = failed(golden)
    (found,) = classified(seen, observe, ("mechanism",))
    assert (found.signature.kind, found.cause) == ("regressed", known)


@pytest.mark.parametrize(("golden", "cause"), [("scatter-out", "int-required"), ("pending", "avoidable")])
def test_without_a_cause_of_the_failed_capture_the_guard_that_is_blamed_is_to_change(golden: str, cause: Cause) -> None:
    _, seen = failed(golden)
    (failure,) = mechanism.judge(seen)
    known = Signature("regressed", Site("Python", "torch/_subclasses/fake_impls.py", "_compute_slice_index"), "")
    assert stored(failure, known).cause == cause


def test_other_mechanisms_answer_otherwise_where_their_run_says_so() -> None:
    other = Observation(
        "aot", Semantics("aggressive-1"), "ok", guards=(msgspec.structs.replace(GUARD, fallback=False), SAME)
    )
    assert mechanism.answered_otherwise(explicit(), other) == (GUARD,)


def test_only_explicit_runs_are_compared_and_size_oblivious_ones_only_if_a_fallback_differs() -> None:
    ran: list[str] = []

    def runner(run: Run) -> Observation:
        ran.append(str(run.semantics))
        return msgspec.structs.replace(explicit(guards=(SAME,)), semantics=run.semantics)

    aggressive = Semantics("aggressive-1")
    run = Run(ProgramSubject(TEXT), "aot")
    assert [one.second is None for one in look(run, runner, (SIZE_OBLIVIOUS, EXPLICIT, aggressive))] == [False]
    assert ran == ["explicit", "aggressive-1"]
    assert look(msgspec.structs.replace(run, semantics=aggressive), runner, (SIZE_OBLIVIOUS,))[0].second is None


def test_a_campaign_compares_a_sample_of_the_programs() -> None:
    layout = msgspec.structs.replace(GUARD, place=Place("C++", "c10/core/Contiguity.h", 70), function="")
    texts = [f"{TEXT}    # {number}" for number in range(64)]

    def compared(*guards: Guard, sampled: bool = True) -> int:
        def runner(run: Run) -> Observation:
            return explicit(guards=guards)

        runs = (Run(ProgramSubject(text), "aot") for text in texts)
        seen = [look(run, runner, (SIZE_OBLIVIOUS,), sampled=sampled) for run in runs]
        return sum(one.second is not None for (one,) in seen)

    assert 0 < compared(SAME, layout) < 20 < compared(layout, GUARD) < 44
    assert compared(SAME, layout, sampled=False) == len(texts)


@pytest.mark.parametrize("stage", ["export", "aot"])
def test_a_second_run_that_captures_the_same_is_not_called(stage: Stage) -> None:
    first = observe(Run(ProgramSubject(TEXT), stage, calls=("2",)))
    again = observe(Run(ProgramSubject(TEXT), stage, calls=("2",), called=first.digest))
    assert (len(first.calls), again.calls, again.digest) == (1, (), first.digest)
    other = next(one for one in first.guards if (one.expression, one.function) == ("Eq(u0, 0)", "cat"))
    turned = Semantics(answers=(Answer(other.place, not other.fallback, other.expression),))
    assert len(observe(Run(ProgramSubject(TEXT), stage, turned, calls=("2",), called=first.digest)).calls) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "text", "stage", "expression", "function"),
    [
        ("regressed", TEXT, "export", "Eq(u0, 1)", "_broadcast_shapes"),
        ("changed", STACKED, "aot", "Eq(u0, 0)", "cat"),
        ("diverged", TEXT, "export", "Eq(u0, 0)", "cat"),
    ],
)
def test_a_planted_answer_is_found_named_minimized_and_confirmed(
    kind: str, text: str, stage: Stage, expression: str, function: str
) -> None:
    healthy = observe(Run(ProgramSubject(text), stage))
    guard = next(one for one in healthy.guards if (one.expression, one.function) == (expression, function))
    planted = Semantics(answers=(Answer(guard.place, not guard.fallback, guard.expression),))
    (judged,) = judge_program(text, (stage,), (planted,), observe, oracles=("mechanism",))
    assert judged.verdict == kind
    (found,) = judged.failures
    assert (found.signature.kind, found.signature.site.function) == (kind, function)
    assert found.signature.site.module == guard.place.file

    suspect = suspect_of(text, found.signature, slim(found.failure))
    smaller = run_minimize(MinimizeTask(suspect))
    assert smaller.steps <= 2
    confirmed = run_confirm(msgspec.structs.replace(suspect, program=smaller.program)).shown
    assert confirmed is not None
    assert confirmed.kind == kind
    assert confirmed.second is not None


@pytest.mark.slow
def test_a_healthy_program_shows_no_difference() -> None:
    judged = judge_program(TEXT, ("export", "aot"), (EXPLICIT,), observe, oracles=("mechanism",))
    assert [one.failures for one in judged] == [(), ()]
