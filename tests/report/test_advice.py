"""The search for advice, with trials that are plain functions."""

from __future__ import annotations

import pytest

from ddefuzz.classify.cause import FRAMEWORK_CAUSES, MEANINGS
from ddefuzz.classify.signature import Cause
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation, Stage
from ddefuzz.instrument.events import Frame, Place, Raised, SymbolOrigin
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.report.advice import MOST_TRIES, advise
from tests.classify.test_golden import cases, reclassified

SOURCE = "def f(x, keep):\n    kept = x[keep]\n    if kept.shape[0] > 2:\n        return kept\n    return x\n"
GUARD = ExceptionInfo("torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode", "Could not guard")


def failing(stage: Stage, line: int = 3, code: str = "kept.shape[0] > 2", expression: str = "u0 > 2") -> Observation:
    frame = Frame("/home/user/model.py", line, "f", code, True)
    made = SymbolOrigin("u0", "nonzero", Frame("/home/user/model.py", 2, "f", "x[keep]", True))
    raised = Raised(expression, "guard_bool", Place("Python", "model.py", line), (frame,), symbols=(made,))
    return Observation(stage, EXPLICIT, "fail", exceptions=(GUARD,), raised=raised)


def passing(stage: Stage) -> Observation:
    return Observation(stage, EXPLICIT, "ok")


def test_only_what_passes_eager_and_a_stage_is_suggested() -> None:
    def trial(source: str, stage: Stage) -> Observation:
        if stage == "eager" and "kept.shape[0] <= 2)" in source:
            return Observation(stage, EXPLICIT, "fail")
        return passing(stage) if "torch._check" in source else failing(stage)

    failures = [classify(failure) for failure in judge([failing("export"), failing("compile")])]
    advice = advise(failures, "model.py", SOURCE, trial)
    assert advice.suggestions[0].code == ("torch._check(kept.shape[0] > 2)",)
    assert advice.suggestions[0].passes == ("export", "compile")
    assert all("<= 2" not in line for suggestion in advice.suggestions for line in suggestion.code)
    assert advice.origins == ("u0 comes from `nonzero` at /home/user/model.py:2: x[keep]",)


def test_a_change_that_moves_the_failure_is_extended() -> None:
    source = SOURCE.replace("return x\n", "return x if kept.shape[0] == 1 else kept\n")

    def trial(text: str, stage: Stage) -> Observation:
        if stage == "eager":
            return passing(stage)
        if "_check(kept.shape[0] <= 2)" not in text:
            return failing(stage)
        line = len(text.splitlines())
        moved = failing(stage, line, "kept.shape[0] == 1", "Eq(u0, 1)")
        return passing(stage) if "_check(kept.shape[0] != 1)" in text else moved

    failures = [classify(failure) for failure in judge([failing("export")])]
    (suggestion,) = advise(failures, "model.py", source, trial).suggestions
    assert suggestion.code == ("torch._check(kept.shape[0] <= 2)", "torch._check(kept.shape[0] != 1)")


def test_an_equivalent_assertion_is_not_tried_again() -> None:
    source = SOURCE.replace("> 2", ">= 1")

    def trial(text: str, stage: Stage) -> Observation:
        return passing(stage) if stage == "eager" or "torch._check" in text else here(stage)

    def here(stage: Stage) -> Observation:
        return failing(stage, code="kept.shape[0] >= 1", expression="u0 > 0")

    advice = advise([classify(failure) for failure in judge([here("export")])], "model.py", source, trial)
    codes = [line for suggestion in advice.suggestions for line in suggestion.code]
    assert "torch._check(kept.shape[0] >= 1)" in codes
    assert "torch._check(kept.shape[0] > 0)" not in codes


def test_nothing_is_tried_in_a_file_that_is_not_at_hand() -> None:
    def trial(source: str, stage: Stage) -> Observation:
        raise AssertionError("must not be called")

    failures = [classify(failure) for failure in judge([failing("export")])]
    advice = advise(failures, "other.py", SOURCE, trial)
    assert (advice.tried, advice.suggestions) == (0, ())
    assert advice.line is not None


def test_the_search_ends() -> None:
    tries = []

    def trial(source: str, stage: Stage) -> Observation:
        tries.append(stage)
        if stage == "eager":
            return passing(stage)
        return failing(stage, expression=f"u0 > {len(tries)}")

    failures = [classify(failure) for failure in judge([failing("export")])]
    advice = advise(failures, "model.py", SOURCE, trial)
    assert advice.suggestions == ()
    assert advice.tried <= MOST_TRIES


@pytest.mark.parametrize("cause", sorted(MEANINGS.keys() - {"wrong-capture"}))
def test_the_summary_says_whether_the_cause_is_in_pytorch(cause: Cause) -> None:
    """Of real failures: PyTorch's own, unless an op lacks a kernel, which may be anybody's."""
    shown = next(case.expected.observation for case in cases() if case.expected.cause == cause)
    summary = advise([reclassified(shown)], "model.py", "", lambda _source, stage: passing(stage)).summary
    assert ("PyTorch's" in summary) == (cause in FRAMEWORK_CAUSES)
