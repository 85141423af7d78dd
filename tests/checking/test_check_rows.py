"""The result of a check, from observations made by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ddefuzz.answers.model import Control
from ddefuzz.checking.patch import Advice, Change
from ddefuzz.checking.problems import YOURS, Caller, CaseRuns, Owner, exception_of, origin_of, problems_of
from ddefuzz.checking.report import (
    FEWEST_IN_COMMON,
    Offer,
    Report,
    captures_of,
    failed,
    headline,
    in_common,
    without_wrappers,
)
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.execute.protocol import EXPLICIT, SIZE_OBLIVIOUS, Call, CallEnd, ExceptionInfo, Observation
from ddefuzz.instrument.events import AnsweredGuard, Frame, Guard, Place, RaisedError, SymbolOrigin
from ddefuzz.oracles.capture import KINDS, classify, judge
from ddefuzz.oracles.program import TriedRun
from ddefuzz.oracles.table import kinds

EAGER = Observation("eager", EXPLICIT, "ok")
SAME = Call("example", CallEnd(), CallEnd(), "same")
OK = Observation("export", EXPLICIT, "ok", graph="a", calls=(SAME,))
GUARD = ExceptionInfo("torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode", "Could not guard\nmore")
RAISED = RaisedError(
    "Eq(u0, 0)",
    "guard_bool",
    Place("Python", "torch/_refs/__init__.py", 1),
    (Frame("torch/_refs/__init__.py", 1, "roll", "a.numel() == 0", True),),
)
FAILED = Observation("export", EXPLICIT, "fail", exceptions=(GUARD,), raised=RAISED)


BRANCH = RaisedError(
    "u0 > 2",
    "guard_bool",
    Place("Python", "model.py", 7),
    (Frame("model.py", 3, "forward", "self.layer(x)", True), Frame("model.py", 7, "forward", "n > 2", True)),
    symbols=(
        SymbolOrigin("u0", "input", None, "dim 1 of ids"),
        SymbolOrigin("u1", "nonzero", Frame("model.py", 5, "forward", "x[mask]")),
    ),
    module="layers.0",
)
UNSUPPORTED = ExceptionInfo("torch._dynamo.exc.Unsupported", "Unsupported context manager\n  Hint: Move it out.")
REFUSED = Observation("export-strict", EXPLICIT, "fail", exceptions=(UNSUPPORTED,))


def runs(*observations: Observation, continued: tuple[Observation, ...] = (), static: str = "") -> CaseRuns:
    tried = tuple(TriedRun(one) for one in observations)
    controls: tuple[tuple[str, Control], ...] = ()
    if static:
        (failure,) = judge([one for one in observations if one.stage != "eager"])
        controls = ((classify(failure).signature.key, Control(static, "not judged")),)  # type: ignore[arg-type]
    return CaseRuns("c", tried, continued, controls)


def test_a_failure_has_guard_site_cause_and_owner() -> None:
    (problem,) = problems_of(runs(EAGER, FAILED))
    assert (problem.kind, problem.classified.cause) == ("dde", "avoidable")
    assert (problem.expression, problem.stages, problem.owner.kind) == ("Eq(u0, 0)", ("export",), "PyTorch")
    site = Site("Python", "torch/_refs/__init__.py", "roll")
    assert problem.classified.signature == Signature("dde", site, "a.numel() == 0")
    assert exception_of(problem.observation) == "GuardOnDataDependentSymNode: Could not guard"


def test_what_was_not_compared_is_captured_and_not_ok() -> None:
    fakes = msgspec.structs.replace(SAME, agreement="incomparable", why="a result is a fake")
    cases = {(): "not called", (fakes,): "not compared: a result is a fake"}
    for calls, reason in cases.items():
        captures = captures_of(runs(EAGER, msgspec.structs.replace(OK, calls=calls)))
        assert [(one.outcome, one.reason) for one in captures] == [("ok", ""), ("captured", reason)]
        assert headline("c", captures, ()) == "c exports: captured, but not compared in export."
        assert not failed(captures)
    assert captures_of(runs(EAGER, OK))[1].outcome == "ok"


def test_the_document_is_json_and_back() -> None:
    case = runs(EAGER, FAILED)
    document = Report("model.py:f", "2.13.0", False, captures_of(case), problems_of(case))
    told = msgspec.json.decode(msgspec.json.encode(document))
    assert {"schema", "captures", "problems", "known", "torch"} <= told.keys()
    assert (told["schema"], told["captures"][1]["stage"]) == ("ddefuzz.check/3", "export")
    assert msgspec.json.decode(msgspec.json.encode(document), type=Report) == document


def test_a_problem_in_several_captures_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.py").write_text("")
    monkeypatch.chdir(tmp_path)
    own = msgspec.structs.replace(FAILED, raised=BRANCH)
    strict = msgspec.structs.replace(
        own, stage="export-strict", raised=msgspec.structs.replace(BRANCH, traced=BRANCH.python)
    )
    (problem,) = problems_of(runs(EAGER, own, strict))
    assert problem.stages == ("export", "export-strict")
    assert str(problem.owner) == "your code"
    assert [(caller.line, caller.code) for caller in problem.chain] == [(3, "self.layer(x)"), (7, "n > 2")]
    assert problem.module == "layers.0"
    assert [origin_of(one) for one in problem.symbols] == ["dim 1 of ids", "nonzero() at model.py:5"]


def test_what_shows_after_an_answer_is_a_problem_of_its_own() -> None:
    went_on = Observation(
        "export",
        EXPLICIT,
        "ok",
        answered=(AnsweredGuard(RAISED, False), AnsweredGuard(BRANCH, True), AnsweredGuard(BRANCH, True)),
    )
    first, second = problems_of(runs(EAGER, FAILED, continued=(went_on,)))
    assert (first.stages, [one.value for one in first.answers]) == (("export",), [False])
    assert (second.stages, [one.value for one in second.answers]) == ((), [True])
    assert exception_of(second.observation) is None


def test_what_fails_with_static_sizes_is_not_about_data() -> None:
    (told,) = problems_of(runs(EAGER, REFUSED, static="fails"))
    assert told.about_data is False
    assert "outside of the captured code" in told.remedy
    (told,) = problems_of(runs(EAGER, REFUSED, static="passes"))
    assert (told.about_data, told.remedy) == (True, "")


def test_what_fails_after_answers_may_be_their_consequence() -> None:
    broken = ExceptionInfo("builtins.ValueError", "no")
    went_on = Observation("export", EXPLICIT, "fail", exceptions=(broken,), answered=(AnsweredGuard(RAISED, False),))
    first, second = problems_of(runs(EAGER, FAILED, continued=(went_on,)))
    assert (first.consequence, second.consequence) == (False, True)


def test_an_output_of_an_unknown_type_is_no_consequence_of_answers() -> None:
    error = ExceptionInfo("builtins.RuntimeError", "Found <class 'm.Cache'> in output, which is not a known type.")
    answered = (AnsweredGuard(RAISED, True),)
    went_on = Observation("export", EXPLICIT, "fail", exceptions=(error,), answered=answered)
    problems = problems_of(runs(EAGER, FAILED, continued=(went_on,)))
    other = next(one for one in problems if one.kind != "dde")
    assert (other.about_data, other.consequence, other.owner) == (False, False, YOURS)
    assert other.remedy.startswith("return tensors in tuples, lists or dicts, or register the type")


def test_code_of_a_change_is_neither_folded_nor_cut() -> None:
    line = "+    return " + " + ".join(f"argument_{at}" for at in range(20))
    change = Change("rewrite", 1, "something " * 20, f"--- a/m.py\n+++ b/m.py\n{line}\n", ())
    problems = tuple(problems_of(runs(EAGER, FAILED)))
    captures = tuple(captures_of(runs(EAGER, FAILED)))
    shown = Report(
        "m.py:c", "2.13.0", False, captures, problems, changes=(Offer("c", change),), advice=(("c", Advice("why")),)
    )
    lines = shown.text(60).splitlines()
    assert line in lines
    assert all(len(one) <= 60 for one in lines if one != line)


def test_calls_by_which_a_package_passes_its_arguments_on_are_left_out() -> None:
    package = Owner("package", "lib", "1.0")
    calls = (
        Caller("lib/wrap.py", 3, "wrapper", "func(self, *args, **kwargs)", package),
        Caller("m.py", 7, "f", "self.layer(*args, **kwargs)", YOURS),
        Caller("lib/wrap.py", 3, "wrapper", "func(self, *args, **kwargs)", package),
    )
    assert without_wrappers(calls) == calls[1:]


def test_an_endless_loop_after_answers_is_no_problem_of_pytorch() -> None:
    went_on = Observation("export", EXPLICIT, "timeout", "stopped after 60 s")
    (problem,) = problems_of(runs(EAGER, FAILED, continued=(went_on,)))
    assert problem.kind == "dde"


def test_a_program_that_fails_in_eager_is_not_judged() -> None:
    refused = Observation("eager", EXPLICIT, "fail", exceptions=(ExceptionInfo("builtins.ValueError", "no"),))
    case = runs(refused, FAILED)
    eager, export = captures_of(case)
    assert (eager.outcome, export.outcome, export.keys) == ("fail", "not-judged", ())
    assert export.reason == "it fails in eager: ValueError: no"
    assert problems_of(case) == ()
    assert failed(captures_of(case))


def test_what_cannot_be_built_does_not_fail_in_eager() -> None:
    nothing = Observation("eager", EXPLICIT, "not-judged", "found no such name")
    captures = captures_of(runs(nothing, FAILED))
    assert captures[1].reason == "it cannot be built: found no such name"
    assert headline("net", captures, ()) == "net cannot be built: it cannot be judged."
    assert failed(captures)


def test_what_hangs_in_eager_as_well_is_not_judged() -> None:
    eager = Observation("eager", EXPLICIT, "timeout", "stopped after 60 s")
    hang = Observation("export", EXPLICIT, "timeout", "stopped after 60 s")
    first, second = captures_of(runs(eager, hang))
    assert (first.outcome, second.outcome) == ("timeout", "not-judged")
    assert second.reason == "it fails in eager: stopped after 60 s"


def test_failures_under_size_oblivious_semantics_do_not_count() -> None:
    guard = Guard(Place("C++", "x.cpp", 1), "guard_or_false", "Eq(u0, 1)", False, "undecided")
    rescued = msgspec.structs.replace(OK, guards=(guard,))
    case = runs(EAGER, rescued, msgspec.structs.replace(FAILED, semantics=SIZE_OBLIVIOUS))
    assert [one.verdict for one in captures_of(case)] == [None, "rescued", None]
    assert not failed(captures_of(case))
    assert problems_of(case) == ()


def test_a_verdict_that_needs_a_second_run_waits_for_it() -> None:
    guard = Guard(Place("C++", "x.cpp", 1), "guard_or_false", "Eq(u0, 1)", False, "other")
    other = msgspec.structs.replace(OK, guards=(guard,))
    second = msgspec.structs.replace(OK, semantics=SIZE_OBLIVIOUS, graph="b")
    assert captures_of(runs(EAGER, other))[1].verdict is None
    assert captures_of(runs(EAGER, other, second))[1].verdict == "changed"


def captured_with(*found: Kind) -> CaseRuns:
    """A capture that succeeds and has failures of these kinds."""
    failures = tuple(
        Classification(
            Failure(kind, OK, "at size 0"), Signature(kind, Site("op", None, kind), ""), "wrong-capture", "test"
        )
        for kind in found
    )
    return CaseRuns("c", (TriedRun(EAGER), TriedRun(OK, failures)))


def test_only_some_kinds_make_a_captured_program_wrong() -> None:
    wrong = {kind for kind, row in kinds().items() if row.wrong}
    assert wrong == {
        *("wrong-result", "specialized", "narrowed", "diverged"),
        *("over-strict", "missing-assertion", "lost-assertion"),
        *("crash-in-call", "timeout-in-call"),
    }
    for kind in wrong.difference(KINDS):
        captures = captures_of(captured_with(kind))
        assert [one.outcome for one in captures] == ["ok", "wrong"]
        assert failed(captures)
        assert headline("c", captures, problems_of(captured_with(kind))) == (
            "c does not export: captured, but wrong in export. 1 problem."
        )


@pytest.mark.parametrize("kind", ["lost-message", "repeated-assertion", "late-assertion", "wrong-layout"])
def test_other_problems_of_a_captured_program_are_listed_and_do_not_fail(kind: Kind) -> None:
    case = captured_with(kind)
    captures, problems = captures_of(case), problems_of(case)
    assert [(one.outcome, bool(one.keys)) for one in captures] == [("ok", False), ("ok", True)]
    assert not failed(captures)
    assert headline("c", captures, problems) == (
        "c exports: captured in export. 1 problem; neither stops capture nor makes its result wrong."
    )
    both = captured_with(kind, "wrong-result")
    assert [one.kind for one in problems_of(both)] == ["wrong-result", kind]
    assert headline("c", captures_of(both), problems_of(both)).endswith(
        "2 problems; 1 of them neither stops capture nor makes its result wrong."
    )


def test_calls_that_problems_share_are_counted() -> None:
    calls = tuple(Caller("m.py", line, "f", "x", YOURS) for line in range(FEWEST_IN_COMMON + 2))
    assert in_common(calls, (*calls[:-1], Caller("m.py", 99, "g", "y", YOURS))) == FEWEST_IN_COMMON + 1
    assert in_common(calls, calls) == FEWEST_IN_COMMON + 1  # the innermost call is always printed
    assert in_common(calls, calls[1:]) == 0


@pytest.mark.parametrize(
    ("exceptions", "text"),
    [
        (
            (
                ExceptionInfo(
                    "torch._dynamo.exc.TorchRuntimeError", "RuntimeError when making fake tensor call\n  Hint"
                ),
                ExceptionInfo("RuntimeError", "It seems one of cond's output stride is wrong.\nMore"),
            ),
            "RuntimeError: It seems one of cond's output stride is wrong.",
        ),
        (
            (
                ExceptionInfo(
                    "torch._dynamo.exc.UserError",
                    'Constraints violated (s)! For more information, run with TORCH_LOGS="+dynamic".\n'
                    "  - Not all values of s satisfy the generated guard s <= 5.\nSuggested fixes: …",
                ),
            ),
            "UserError: Not all values of s satisfy the generated guard s <= 5.",
        ),
        ((ExceptionInfo("ValueError", "one\ntwo"),), "ValueError: one"),
    ],
)
def test_the_line_of_an_exception_says_what_is_wrong(exceptions: tuple[ExceptionInfo, ...], text: str) -> None:
    assert exception_of(Observation("export", EXPLICIT, "fail", exceptions=exceptions)) == text
