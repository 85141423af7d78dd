"""Tests of what is concluded from the runs before and after a change: on hand-made runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddefuzz.execute.protocol import EXPLICIT, Call, CallEnd, Difference, ExceptionInfo, Observation
from ddefuzz.fixes.change import DELETED
from ddefuzz.fixes.tasks import Sights, Task
from ddefuzz.fixes.verify import form_doubts, judged, without
from ddefuzz.fixes.work import truths_at_calls
from ddefuzz.instrument.events import Frame, Place, RaisedError

TASK = Task((("", ("export", "aot")),), ("torch.roll",), "torch/x.py", ("torch.x:roll",), "import torch\n")


def ok(stage: str = "export") -> Observation:
    return Observation(stage, EXPLICIT, "ok", calls=(Call("example", CallEnd(), CallEnd(), "same"),))


def failed(stage: str = "aot") -> Observation:
    return Observation(stage, EXPLICIT, "fail", exceptions=(ExceptionInfo("ValueError", "no"),))


def differs() -> Observation:
    call = Call("0", CallEnd(), CallEnd(), "differs", (Difference("values", "result", ""),))
    return Observation("aot", EXPLICIT, "ok", calls=(call,))


BEFORE = Sights(
    eager=(ok(),), of_samples=(failed(), ok()), samples={"roll 0": "a"}, scripted={"torch.x:roll": ""}, test="fails: E"
)
AFTER = replace(BEFORE, captured=(ok(), ok("aot")), of_samples=(ok(), ok()), test="passes")


def test_nothing_speaks_against_a_change_that_only_mends() -> None:
    result = judged(TASK, BEFORE, AFTER)
    assert not result.doubts
    assert result.evidence[0] == "Captured in export, aot, and agrees with eager at example."
    assert "2 runs, none is worse, 1 are captured only with the change" in result.evidence[2]
    assert "The test fails before (E) and passes after." in result.evidence


@pytest.mark.parametrize(
    ("after", "doubt"),
    [
        (replace(AFTER, captured=(ok(), failed())), "in aot: ValueError: no"),
        (replace(AFTER, captured=(ok(), differs())), "in aot: differs at 0"),
        (replace(AFTER, eager=(failed("eager"),)), "eager raises another error"),
        (replace(AFTER, samples={"roll 0": "b"}), "sample roll 0: was a, is b"),
        (replace(AFTER, of_samples=(failed(), failed("export"))), "a sample in export: ValueError: no"),
        (replace(AFTER, of_samples=(ok(),)), "torch's samples are 2 runs, and with the change 1"),
        (replace(AFTER, of_samples=(differs(), ok())), "a sample in aot: differs at 0"),
        (replace(AFTER, scripted={"torch.x:roll": "Error: no"}), "torch.jit.script of torch.x:roll fails: Error: no"),
        (replace(AFTER, test="fails: E"), "the test, before: fails: E; after: fails: E"),
        ("the process ended with code -11", "with the change, the process ended with code -11"),
    ],
)
def test_each_difference_speaks_against_it(after: Sights | str, doubt: str) -> None:
    assert any(doubt in one for one in judged(TASK, BEFORE, after).doubts)


def test_a_test_that_passes_before_shows_nothing() -> None:
    assert judged(TASK, replace(BEFORE, test="passes"), AFTER).doubts


def test_what_fails_in_both_is_no_difference() -> None:
    fails = {"torch.x:roll": "Error: no"}
    assert not judged(TASK, replace(BEFORE, scripted=fails), replace(AFTER, scripted=fails)).doubts


@pytest.mark.parametrize(
    ("form", "verdict", "truths", "doubt"),
    [
        ("torch._check", "torch._check here", (), ""),
        ("guard_or_false", "guard_or_false here", (False, True), ""),
        (DELETED, "either answer here", (False, True), ""),
        (DELETED, "guard_or_false here", (False, True), "not redundant"),
        ("guard_or_true", "torch._check here", (True, False), "asserts nothing"),
        ("guard_or_false", "guard_or_false here", (False, False), "is False each time"),
        ("guard_or_false", "guard_or_false here", (), "was not evaluated"),
        ("guard_or_true", "guard_or_true here", (False, True), "takes the branch of unusual sizes"),
    ],
)
def test_an_answer_has_to_be_tested_and_to_be_that_of_usual_sizes(
    form: str, verdict: str, truths: tuple[bool, ...], doubt: str
) -> None:
    doubts = form_doubts(form, verdict, truths)
    assert [doubt in one for one in doubts] == [True] * bool(doubt)


def test_before_the_change_the_programs_are_not_captured_again() -> None:
    assert without(TASK).programs == (("", ()),)


@pytest.mark.parametrize(
    ("code", "expression", "truths"),
    [
        ("n.numel() == 0", "Eq(u0, 0)", (False, True)),
        ("n.numel() != 0", "Eq(u0, 0)", (True, False)),
        ("n.numel() != 0", "Ne(u0, 0)", (True, False)),
        ("n > 3", "u0 > 3", (True, False)),
    ],
)
def test_the_truths_of_a_guard_follow_from_the_sizes_of_the_calls(
    code: str, expression: str, truths: tuple[bool, ...]
) -> None:
    frame = Frame("torch/_refs/__init__.py", 1, "roll", f"if {code}:")
    raised = RaisedError(expression, "guard_bool", Place("Python", frame.file, 1), (frame,))
    calls = tuple(Call(str(size), CallEnd(), CallEnd(), "same", symbols=(("u0", size),)) for size in (5, 0))
    assert truths_at_calls(raised, [Observation("aot", EXPLICIT, "ok", calls=calls)]) == truths
