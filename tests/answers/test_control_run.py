"""Tests of control runs with a runner that captures nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ddefuzz.answers.control import control
from ddefuzz.answers.model import NOT_JUDGED, Control, ControlOutcome, data_dependent
from ddefuzz.classify.failure import Failure
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation, ProgramSubject, Run
from ddefuzz.oracles.capture import judge
from ddefuzz.program.model import Program
from ddefuzz.program.text import parse

TEXT = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=5 2"]):
    return torch.geqrf(x)
"""
PROGRAM = parse(TEXT, "<test>").program
OPS = ("torch.geqrf",)


def failed(name: str, message: str) -> Observation:
    return Observation("aot", EXPLICIT, "fail", exceptions=(ExceptionInfo(f"torch.{name}", message),))


def failure(name: str, message: str = "") -> Failure:
    (found,) = judge([failed(name, message)])
    return found


def runner(static: Observation, backed: Observation, seen: list[Run] | None = None) -> Callable[[Run], Observation]:
    def run(one: Run) -> Observation:
        if seen is not None:
            seen.append(one)
        assert isinstance(one.subject, ProgramSubject)
        return backed if one.subject.backed else static

    return run


PASSED = Observation("aot", EXPLICIT, "ok")
NO_KERNEL = failed("UnsupportedOperatorException", "aten.geqrf.default")


def as_it_is(program: Program) -> Program | None:
    return program


def test_the_two_forms_have_the_sizes_of_the_program() -> None:
    seen: list[Run] = []
    control(PROGRAM, failure("UnsupportedOperatorException"), OPS, as_it_is, runner(PASSED, PASSED, seen))
    static, backed = (run.subject for run in seen)
    assert isinstance(static, ProgramSubject)
    assert '"5 2"' in static.text
    assert backed == ProgramSubject(TEXT, backed=True)
    assert [run.stage for run in seen] == ["aot", "aot"]


def test_the_same_exception_with_the_same_message_is_the_same_failure() -> None:
    shown = failure("RuntimeError", "size u0 at 0x7f12 of 5")
    same, other = failed("RuntimeError", "size s77 at 0x8f00 of 12"), failed("RuntimeError", "something else")
    assert control(PROGRAM, shown, OPS, as_it_is, runner(same, other)) == Control("fails", "fails otherwise")


def test_another_kind_is_another_failure() -> None:
    shown = failure("UnsupportedOperatorException", "aten.geqrf.default")
    other = failed("IndexError", "aten.geqrf.default")
    assert control(PROGRAM, shown, OPS, as_it_is, runner(other, NO_KERNEL)) == Control("fails otherwise", "fails")


@pytest.mark.parametrize("outcome", ["crash", "timeout", "not-judged"])
def test_a_run_that_could_not_be_made_is_not_judged(outcome: str) -> None:
    lost = Observation("aot", EXPLICIT, outcome)  # type: ignore[arg-type]
    shown = failure("UnsupportedOperatorException")
    assert control(PROGRAM, shown, OPS, as_it_is, runner(lost, PASSED)) == Control("not judged", "passes")


def test_a_program_without_such_forms_is_not_judged() -> None:
    def refused(_run: Run) -> Observation:
        raise AssertionError("nothing may be captured")

    other = parse(TEXT.replace("torch.geqrf", "torch.sin"), "<test>").program
    shown = failure("UnsupportedOperatorException")
    assert control(PROGRAM, shown, OPS, lambda _: None, refused) == NOT_JUDGED
    assert control(PROGRAM, shown, OPS, lambda _: other, refused) == NOT_JUDGED
    dead = Failure("crash", Observation("aot", EXPLICIT, "crash"), "")
    assert control(PROGRAM, dead, OPS, as_it_is, refused) == NOT_JUDGED


@pytest.mark.parametrize(
    ("static", "backed", "expected"),
    [
        ("passes", "passes", True),
        ("passes", "fails otherwise", True),
        ("passes", "fails", False),
        ("fails", "not judged", False),
        ("fails otherwise", "fails", False),
        ("not judged", "passes", True),
        ("not judged", "not judged", None),
    ],
)
def test_what_fails_in_a_control_run_is_not_about_data(
    static: ControlOutcome, backed: ControlOutcome, expected: bool | None
) -> None:
    assert data_dependent(failure("UnsupportedOperatorException"), Control(static, backed)) is expected


def test_without_control_runs_it_is_not_known() -> None:
    assert data_dependent(failure("UnsupportedOperatorException"), None) is None


@pytest.mark.parametrize(
    "shown",
    [
        failure("GuardOnDataDependentSymNode", "Could not guard"),
        failure("PendingUnbackedSymbolNotFound"),
        failure("DataDependentOutputException", "aten.equal.default"),
        failure("DynamicOutputShapeException", "aten.nonzero.out"),
        failure("Unsupported", "Data-dependent branching\n  Explanation: …"),
        failure("Unsupported", "Dynamic shape operator"),
    ],
    ids=lambda shown: shown.evidence[:40],
)
def test_a_failure_that_torch_calls_data_dependent_is(shown: Failure) -> None:
    for found in (None, NOT_JUDGED, Control("fails", "fails")):
        assert data_dependent(shown, found) is True


@pytest.mark.parametrize(
    "title", ["Attempted to call function marked as skipped", "Dynamic shape operator (no meta kernel)"]
)
def test_other_graph_breaks_are_judged_by_the_runs(title: str) -> None:
    assert data_dependent(failure("Unsupported", title), Control("fails", "fails")) is False
