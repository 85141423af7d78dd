"""Tests of the verdicts of experiments: on hand-made runs, and on real torch for one guard of each kind."""

from __future__ import annotations

import pytest

from ddefuzz.answers.experiment import experiment, verdict
from ddefuzz.answers.model import Given, Row, Verdict
from ddefuzz.classify.signature import Site
from ddefuzz.execute.calls import Call, Difference, Ended
from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import ExceptionInfo, Observation, Run
from ddefuzz.instrument.events import Frame, Place, Raised
from ddefuzz.program.sizes import CALL_SIZES, CallSize

SITE = Site("C++", None, "at::native::diff_helper")
HEADER = "# ddefuzz program v1\n"


def row(answer: Given, *, agrees: str = "", refuses: str = "", differs: str = "", accepts: str = "") -> Row:
    """A row of a captured program, if any size is named; else of one that its op's own error stopped."""
    captured = any((agrees, refuses, differs, accepts))
    return Row(
        SITE,
        answer,
        captured,
        agrees=sizes(agrees),
        refuses=sizes(refuses),
        differs=sizes(differs),
        accepts=sizes(accepts),
        raises=not captured,
    )


def sizes(names: str) -> tuple[CallSize, ...]:
    return tuple(one for one in CALL_SIZES if one in names.split())


@pytest.mark.parametrize(
    ("false", "true", "asserted", "expected"),
    [
        (row("False", agrees="0 1 2"), row("True", agrees="0 1 2"), row("assert", agrees="1"), "guard_or_false here"),
        (row("False", agrees="1", differs="0"), row("True", agrees="0 1"), row("assert"), "guard_or_true here"),
        (row("False"), row("True", agrees="0 1"), row("assert", agrees="0", refuses="1"), "torch._check here"),
        (
            row("False", agrees="1", refuses="0"),
            row("True"),
            row("assert", agrees="1", refuses="0"),
            "torch._check here",
        ),
        (row("False", agrees="1", accepts="0"), row("True"), row("assert"), "no answer is right for all sizes"),
        (row("False", agrees="1", refuses="0"), row("True"), row("assert"), "no answer is right for all sizes"),
        (row("False"), row("True"), row("assert"), "no answer captures"),
        (Row(SITE, "False", True), row("True"), row("assert"), "nothing to compare"),
    ],
)
def test_the_verdict_is_the_smallest_correct_change(false: Row, true: Row, asserted: Row, expected: Verdict) -> None:
    assert verdict((false, true, asserted)) == expected


def failed(expression: str, method: str = "guard_bool") -> Observation:
    frame = Frame("torch/_refs/__init__.py", 10, "roll", "x.numel() == 0", exact=True)
    place = Place("Python", frame.file, frame.line)
    error = ExceptionInfo("torch.GuardOnDataDependentSymNode", "Could not guard", frames=(frame,))
    return Observation(
        "export",
        Run.__struct_defaults__[0],
        "fail",
        exceptions=(error,),
        raised=Raised(expression, method, place, (frame,)),
    )


def captured(*calls: Call) -> Observation:
    return Observation("export", Run.__struct_defaults__[0], "ok", calls=calls)


def call(size: CallSize, agreement: str) -> Call:
    wrong = (Difference("values", "result", ""),)
    match agreement:
        case "agrees":
            return Call(size, Ended(), Ended(), "same")
        case "differs":
            return Call(size, Ended(), Ended(), "differs", wrong)
        case "refuses":
            return Call(size, Ended(), Ended("RuntimeError: no"))
        case "accepts":
            return Call(size, Ended("RuntimeError: no"), Ended())
        case _:
            return Call(size, Ended("RuntimeError: no"), Ended("RuntimeError: no"))


def test_each_call_is_counted_where_it_belongs() -> None:
    def runner(run: Run) -> Observation:
        if not run.semantics.answers:
            return failed("Eq(u0, 0)")
        ends = ("agrees", "differs", "refuses", "accepts", "both refuse")
        return captured(*(call(size, end) for size, end in zip(CALL_SIZES, ends, strict=False)))

    found = experiment("text", "export", runner)
    assert [one.answer for one in found.rows] == ["False", "True", "assert"]
    first = found.rows[0]
    assert (first.agrees, first.differs, first.refuses, first.accepts) == (("example",), ("0",), ("1",), ("2",))
    assert (str(found.site), found.expression) == ("torch/_refs/__init__.py:roll", "Eq(u0, 0)")


def test_a_guard_that_follows_is_given_a_value_too() -> None:
    def runner(run: Run) -> Observation:
        answers = {one.expression: one.value for one in run.semantics.answers}
        if "Eq(u0, 0)" not in answers:
            return failed("Eq(u0, 0)")
        if "Eq(u0, 1)" not in answers:
            return failed("Eq(u0, 1)")
        return captured(call("0", "agrees" if answers["Eq(u0, 1)"] else "differs"))

    found = experiment("text", "export", runner)
    assert found.verdict == "guard_or_false here"
    assert found.rows[0].then == ("Eq(u0, 1) is True",)


def test_an_endless_sequence_of_guards_is_given_up() -> None:
    def runner(run: Run) -> Observation:
        return failed(f"Eq(u0, {len(run.semantics.answers)})")

    found = experiment("text", "export", runner)
    assert found.verdict == "no answer captures"
    assert found.rows[0].stopped.endswith("at torch/_refs/__init__.py:roll")


def test_a_number_has_no_answer_and_other_failures_are_no_guards() -> None:
    assert experiment("text", "export", lambda _: failed("u0", "guard_int")).verdict == "needs SymInt"
    assert experiment("text", "export", lambda _: captured()).verdict == "not a guard"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return torch.nn.functional.feature_alpha_dropout(x[:, None], training=True)", "guard_or_false here"),
        ("return torch.diff(x)", "no answer is right for all sizes"),
        ("return torch.zeros(6).chunk(x.shape[0])", "needs SymInt"),
        ("return torch.relu(x)", "not a guard"),
    ],
)
def test_real_guards(body: str, expected: Verdict) -> None:
    text = f'{HEADER}# inputs: x = normal\ndef program(x: Float32[Tensor, "u0=3"]):\n    {body}\n'
    assert experiment(text, "aot", observe).verdict == expected
