"""Tests of the verdicts of experiments: on hand-made runs, and on real torch for one guard of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ddefuzz.answers.experiment import NamedProgram, Runners, answer_guard, experiment, in_expression
from ddefuzz.answers.model import (
    GIVEN,
    Answers,
    Experiment,
    Given,
    GuardOutcome,
    OfProgram,
    PatchEvidence,
    Score,
    Tally,
    tallied,
    verdict,
)
from ddefuzz.classify.signature import Site, Verdict
from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import (
    Call,
    CallableSubject,
    CallEnd,
    Difference,
    ExceptionInfo,
    Observation,
    ProgramSubject,
    Run,
    Runner,
    Stage,
)
from ddefuzz.instrument.events import Frame, Place, RaisedError
from ddefuzz.program.sizes import CALL_SIZES, CallSize

SITE = Site("C++", None, "at::native::diff_helper")
HEADER = "# ddefuzz program v1\n"
TEXT = f'{HEADER}# inputs: x = normal\ndef program(x: Float32[Tensor, "u0=3"]):\n    return x + 1\n'


def row(answer: Given, *, agrees: str = "", refuses: str = "", differs: str = "", accepts: str = "") -> GuardOutcome:
    """A row of a captured program, if any size is named; else of one that its op's own error stopped."""
    captured = any((agrees, refuses, differs, accepts))
    return GuardOutcome(
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
        (
            row("False", agrees="1 2 equal"),
            row("True", agrees="1 2 equal"),
            row("assert", agrees="2"),
            "either answer here",
        ),
        (row("False", agrees="1 2"), row("True", agrees="2", refuses="1"), row("assert"), "guard_or_false here"),
        (row("False", agrees="2", differs="1"), row("True", agrees="1 2"), row("assert"), "guard_or_true here"),
        (row("False"), row("True", agrees="1 2"), row("assert", agrees="2"), "torch._check here"),
        # The assertion refuses what eager takes: it is no check of arguments.
        (row("False"), row("True", agrees="1 2"), row("assert", agrees="2", refuses="1"), "guard_or_true here"),
        (
            row("False", agrees="2", refuses="1"),
            row("True"),
            row("assert", agrees="2", refuses="1"),
            "no answer is right for all sizes",
        ),
        (row("False", agrees="2", accepts="1"), row("True"), row("assert"), "no answer is right for all sizes"),
        (row("False", agrees="2", refuses="1"), row("True"), row("assert"), "no answer is right for all sizes"),
        (row("False"), row("True"), row("assert"), "no answer captures"),
        (GuardOutcome(SITE, "False", True), row("True"), row("assert"), "nothing to compare"),
        (
            row("False", agrees="2", accepts="1"),
            row("True", agrees="2", accepts="1"),
            row("assert", agrees="2"),
            "torch._check here",
        ),
    ],
)
def test_the_verdict_is_the_smallest_correct_change(
    false: GuardOutcome, true: GuardOutcome, asserted: GuardOutcome, expected: Verdict
) -> None:
    assert verdict(tallied([of_program(false, true, asserted)])) == expected


def of_program(*rows: GuardOutcome) -> OfProgram:
    return OfProgram("one", "Eq(u0, 0)", rows, "not a guard")


def test_a_check_may_be_of_what_is_false() -> None:
    rows = (row("False", agrees="2", accepts="1"), row("True"), row("assert"), row("assert not", agrees="2"))
    assert verdict(tallied([of_program(*rows)])) == "torch._check here"


def test_all_programs_have_to_agree() -> None:
    one = of_program(row("False", agrees="1 2"), row("True", agrees="1 2"), row("assert", agrees="1"))
    other = of_program(row("False", agrees="2", differs="1"), row("True", agrees="1 2"), row("assert", agrees="1"))
    false, true, _ = tallied([one, other])
    assert (false.programs, false.agrees, false.differs) == (2, ("2",), ("1",))
    assert verdict((false, true)) == "guard_or_true here"


def test_a_program_that_another_guard_stops_says_nothing() -> None:
    stopped = of_program(*(GuardOutcome(SITE, given, captures=False, stopped="u9 > 3") for given in GIVEN[:3]))
    right = of_program(row("False", agrees="1 2"), row("True"), row("assert"))
    tallies = tallied([right, stopped])
    assert (tallies[0].programs, tallies[0].captures) == (1, 1)
    assert verdict(tallies) == "guard_or_false here"


def test_a_wrong_result_after_another_guard_is_not_blamed_on_the_first() -> None:
    rows = [msgspec.structs.replace(row(given, differs="1"), then=("Eq(u1, 1) is False",)) for given in GIVEN[:3]]
    assert verdict(tallied([of_program(*rows)])) == "another guard decides"


def test_a_size_that_is_refused_whatever_is_answered_is_not_refused_by_the_guard() -> None:
    """As `index_fill` of an unbacked input at size 0: dynamo's guard of its strides refuses that."""
    rows = [row(given, refuses="0", agrees="example 2") for given in GIVEN[:3]]
    assert verdict(tallied([of_program(*rows)])) == "either answer here"
    of_true = [rows[0], row("True", refuses="0 1", agrees="example 2"), rows[2]]
    assert verdict(tallied([of_program(*of_true)])) == "guard_or_false here"
    after = [msgspec.structs.replace(one, then=("Eq(u1, 1) is False",)) for one in rows]
    assert verdict(tallied([of_program(*after)])) == "another guard decides"


def test_clauses_come_after_the_whole_guard() -> None:
    whole = [row(given, differs="1", agrees="2") for given in GIVEN[:3]]
    clause = [msgspec.structs.replace(row(given, agrees="1 2"), clause="Eq(u0, 1)") for given in GIVEN[:3]]
    tallies = tallied([of_program(*whole, *clause)])
    assert [one.clause for one in tallies] == ["", "", "", "Eq(u0, 1)", "Eq(u0, 1)", "Eq(u0, 1)"]
    assert verdict(tallies) == "either answer here"


def test_the_extent_counts_programs_sizes_and_kinds_of_values() -> None:
    tallies = tuple(Tally(given, 2, 2, agrees=("0", "1", "values-ties"), refuses=("2",)) for given in GIVEN[:2])
    assert (
        Answers("guard_or_false here", "aot", "2.13.0", 2, tallies).extent == "2 programs, 3 sizes, 2 kinds of values"
    )
    assert Answers("not a guard", "aot", "2.13.0", 1).extent == "1 program, 0 sizes, 1 kind of values"


@pytest.mark.parametrize(
    ("verdict", "form", "code", "expression", "fits"),
    [
        ("torch._check here", "torch._check", "", "Eq(u0, 1)", True),
        ("torch._check here", "guard_or_false", "", "Eq(u0, 1)", False),
        ("guard_or_true here", "guard_or_true", "", "Eq(u0, 1)", True),
        ("another guard decides", "guard_or_false", "", "Eq(u0, 1)", False),
        ("no answer is right for all sizes", "a symbolic form", "", "Eq(u0, 1)", True),
        ("either answer here", "guard_or_false", "", "Eq(u0, 1)", True),
        ("either answer here", "guard_or_true", "", "Eq(u0, 1)", False),
        ("either answer here", "guard_or_true", "torch.sym_not(sym_eq(a, b))", "Eq(u0, 1)", True),
    ],
)
def test_a_patch_fits_a_verdict_if_it_does_what_the_verdict_says(
    verdict: Verdict, form: str, code: str, expression: str, fits: bool
) -> None:
    patch = PatchEvidence(form, code, Score(agree=1), Score())
    answers = Answers(verdict, "aot", "2.13.0", 1, patch=patch)
    assert (answers.fitting_patch(expression) is not None) == fits
    wrong = msgspec.structs.replace(answers, patch=PatchEvidence(form, code, Score(differ=1), Score()))
    assert wrong.fitting_patch(expression) is None


def test_the_clauses_of_an_expression() -> None:
    found = in_expression("Eq(u0, 1) | (u1 > 2) | Eq(u2, 3)")
    assert found is not None
    assert (found.is_or, found.clauses) == (True, ("Eq(u0, 1)", "u1 > 2", "Eq(u2, 3)"))
    assert in_expression("And(Eq(u0, 1), u1 > 2)") == (False, "And(Eq(u0, 1), u1 > 2)", ("Eq(u0, 1)", "u1 > 2"))
    assert in_expression("Eq(u0, 1)") is None
    assert in_expression("not an expression") is None


def failed(expression: str, method: str = "guard_bool") -> Observation:
    frame = Frame("torch/_refs/__init__.py", 10, "roll", "x.numel() == 0", exact=True)
    place = Place("Python", frame.file, frame.line)
    error = ExceptionInfo("torch.GuardOnDataDependentSymNode", "Could not guard", frames=(frame,))
    return Observation(
        "export",
        Run.__struct_defaults__[0],
        "fail",
        exceptions=(error,),
        raised=RaisedError(expression, method, place, (frame,)),
    )


def captured(*calls: Call) -> Observation:
    return Observation("export", Run.__struct_defaults__[0], "ok", calls=calls)


def call(size: CallSize, agreement: str) -> Call:
    wrong = (Difference("values", "result", ""),)
    match agreement:
        case "agrees":
            return Call(size, CallEnd(), CallEnd(), "same")
        case "differs":
            return Call(size, CallEnd(), CallEnd(), "differs", wrong)
        case "refuses":
            return Call(size, CallEnd(), CallEnd("RuntimeError: no"))
        case "accepts":
            return Call(size, CallEnd("RuntimeError: no"), CallEnd())
        case _:
            return Call(size, CallEnd("RuntimeError: no"), CallEnd("RuntimeError: no"))


def tried(text: str, stage: Stage, runner: Runner) -> Experiment:
    return experiment([NamedProgram("one", ProgramSubject(text))], stage, runner)


def test_each_call_is_counted_where_it_belongs() -> None:
    def runner(run: Run) -> Observation:
        if not run.semantics.answers:
            return failed("Eq(u0, 0)")
        ends = ("agrees", "differs", "refuses", "accepts", "both refuse")
        return captured(*(call(size, end) for size, end in zip(CALL_SIZES, ends, strict=False)))

    found = tried(TEXT, "export", runner)
    assert [one.answer for one in found.programs[0].rows] == ["False", "True", "assert"]
    first = found.programs[0].rows[0]
    assert (first.agrees, first.differs, first.refuses, first.accepts) == (("example",), ("0",), ("1",), ("2",))
    assert (str(found.site), found.expression) == ("torch/_refs/__init__.py:roll", "Eq(u0, 0)")


def test_a_guard_that_follows_is_given_a_value_too() -> None:
    def runner(run: Run) -> Observation:
        answers = {one.expression: one.value for one in run.semantics.answers}
        if "Eq(u0, 0)" not in answers:
            return failed("Eq(u0, 0)")
        if "Eq(u0, 1)" not in answers:
            return failed("Eq(u0, 1)")
        return captured(call("2", "agrees" if answers["Eq(u0, 1)"] else "differs"))

    found = tried(TEXT, "export", runner)
    assert found.verdict == "either answer here"
    assert found.programs[0].rows[0].then == ("Eq(u0, 1) is True",)


def test_what_differs_with_static_sizes_is_not_the_answers_doing() -> None:
    def runner(run: Run) -> Observation:
        assert isinstance(run.subject, ProgramSubject)
        is_static = "u0" not in run.subject.text
        if not run.semantics.answers and not is_static:
            return failed("Eq(u0, 0)")
        wrong = {"values-special"} if is_static else {"values-special", "values-ties"}
        return captured(*(call(size, "differs" if size in wrong else "agrees") for size in run.calls))

    (row, *_) = tried(TEXT, "export", runner).programs[0].rows
    assert row.differs == ("values-ties",)
    assert "values-zero" in row.agrees


def test_an_endless_sequence_of_guards_is_given_up() -> None:
    def runner(run: Run) -> Observation:
        return failed(f"Eq(u0, {len(run.semantics.answers)})")

    found = tried(TEXT, "export", runner)
    assert found.verdict == "no answer captures"
    assert found.programs[0].rows[0].stopped.endswith("at torch/_refs/__init__.py:roll")


def test_a_number_has_no_answer_and_other_failures_are_no_guards() -> None:
    assert tried(TEXT, "export", lambda _: failed("u0", "guard_int")).verdict == "needs SymInt"
    assert tried(TEXT, "export", lambda _: captured()).verdict == "not a guard"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return torch.nn.functional.feature_alpha_dropout(x[:, None], training=True)", "guard_or_false here"),
        ("return torch.diff(x)", "another guard decides"),
        ("return torch.zeros(6).chunk(x.shape[0])", "needs SymInt"),
        ("return torch.relu(x)", "not a guard"),
    ],
)
def test_real_guards(body: str, expected: Verdict) -> None:
    text = f'{HEADER}# inputs: x = normal\ndef program(x: Float32[Tensor, "u0=3"]):\n    {body}\n'
    assert tried(text, "aot", observe).verdict == expected


@pytest.mark.slow
def test_each_clause_of_a_real_expression_has_rows_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(
        "import torch\n"
        "def two(x, y):\n"
        "    return x + 1 if (x.shape[0] == 1) | (y.shape[0] == 1) else x * 3\n"
        "two_args = (torch.ones(3), torch.ones(4))\n"
        "two_unbacked = {0: [0], 1: [0]}\n"
    )
    found = experiment([NamedProgram("two", CallableSubject(str(path), "two"))], "export", observe)
    assert found.verdict == "guard_or_false here"
    rows = {(one.clause, one.answer): one for one in found.programs[0].rows}
    clauses = [clause for clause in dict.fromkeys(one.clause for one in found.programs[0].rows) if clause]
    assert len(clauses) == 2
    assert not rows["", "True"].is_right
    assert rows[clauses[0], "False"].is_right
    assert rows[clauses[0], "False"].then == (f"{clauses[1]} is False",)
    assert not rows[clauses[1], "True"].is_right


@pytest.mark.slow
def test_each_clause_of_pythons_or_has_rows_of_its_own() -> None:
    """torch/nn/functional.py, affine_grid: `theta.shape[-2] != 2 or theta.shape[-1] != 3` raises."""
    call = "return torch.nn.functional.affine_grid(x, [2, 3, 4, 5], align_corners=False)"
    text = f'{HEADER}# inputs: x = normal\ndef program(x: Float32[Tensor, "2 u0=2 u1=3"]):\n    {call}\n'
    found = tried(text, "export", observe)
    assert found.code == "theta.shape[-2] != 2"
    clauses = list(dict.fromkeys(one.clause for one in found.tallies))
    assert clauses == [
        "",
        "theta.dim() != 3 or theta.shape[-2] != 2 or theta.shape[-1] != 3",
        "theta.shape[-1] != 3",
    ]
    by_row = {(one.clause, one.answer): one for one in found.tallies}
    assert by_row[clauses[1], "False"].captures == 1
    assert by_row["", "True"].raises == by_row[clauses[1], "assert"].raises == 1
    assert found.verdict == "torch._check here"


def unpatched(*_: object) -> Any:
    raise AssertionError("no patch is tried")


@pytest.mark.slow
def test_where_no_answer_captures_in_aot_the_code_of_an_export_is_tried() -> None:
    """AOTAutograd refuses a tensor that torch reads as a number, whatever the guard before it says."""
    text = f"""{HEADER}# inputs: x = normal; y = values([-2.0])
def program(x: Float32[Tensor, "3"], y: Float32[Tensor, ""]):
    return torch.nn.functional.hardtanh(x, min_val=y)
"""
    runners = Runners(observe, unpatched, lambda _: ())
    asked = [NamedProgram("hardtanh", ProgramSubject(text))]
    found = answer_guard(asked, (), (), ("aot", "export"), None, runners, patching=False).experiment
    assert (found.stage, found.verdict) == ("export", "torch._check here")
