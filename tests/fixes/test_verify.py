"""Tests of what is concluded from the runs before and after a change: on hand-made runs."""

from __future__ import annotations

import ast

import pytest
from msgspec.structs import replace

from ddefuzz.answers.patch import Patch, source_of
from ddefuzz.execute.protocol import (
    EXPLICIT,
    Call,
    CallEnd,
    Difference,
    ExceptionInfo,
    NodeDifference,
    Observation,
)
from ddefuzz.fixes.change import DELETED, noting
from ddefuzz.fixes.tasks import Sights, Task, Truths
from ddefuzz.fixes.verify import form_doubts, judged, probed, without
from ddefuzz.fixes.work import answered_truths, in_helpers, truths_at_calls, usual_answer
from ddefuzz.instrument.events import Constraint, Frame, Guard, Place, RaisedError

TASK = Task((("", ("export", "aot")),), ("torch.roll",), "torch/x.py", ("torch.x:roll",), "import torch\n")


def ok(stage: str = "export") -> Observation:
    return Observation(stage, EXPLICIT, "ok", calls=(Call("example", CallEnd(), CallEnd(), "same"),))


def failed(stage: str = "aot", message: str = "no") -> Observation:
    return Observation(stage, EXPLICIT, "fail", exceptions=(ExceptionInfo("ValueError", message),))


def differs() -> Observation:
    call = Call("0", CallEnd(), CallEnd(), "differs", (Difference("values", "result", ""),))
    return Observation("aot", EXPLICIT, "ok", calls=(call,))


def of_samples(*seen: Observation) -> tuple[tuple[str, Observation], ...]:
    return tuple(("", one) for one in seen)


BEFORE = Sights(
    captured=(failed(),),
    eager=(ok(),),
    of_samples=of_samples(failed(), ok()),
    samples={"roll 0": "a"},
    scripted={"torch.x:roll": ""},
    test="fails: E",
)
AFTER = replace(BEFORE, captured=(ok(), ok("aot")), of_samples=of_samples(ok(), ok()), test="passes")


def test_nothing_speaks_against_a_change_that_only_mends() -> None:
    result = judged(TASK, BEFORE, AFTER)
    assert not result.doubts
    assert result.evidence[0] == "Captured in export, aot, and agrees with eager at example."
    assert "2 runs, none is worse, 1 are captured only with the change" in result.evidence[2]
    assert "The test fails before (E) and passes after." in result.evidence


@pytest.mark.parametrize(
    ("after", "doubt"),
    [
        (replace(AFTER, captured=(failed("export"), ok("aot"))), "in export: ValueError: no"),
        (replace(AFTER, captured=(ok(), failed("aot", "another"))), "in aot: ValueError: another"),
        (replace(AFTER, captured=(ok(), differs())), "in aot: differs at 0"),
        (replace(AFTER, eager=(failed("eager"),)), "eager raises another error"),
        (replace(AFTER, samples={"roll 0": "b"}), "sample roll 0: was a, is b"),
        (replace(AFTER, of_samples=of_samples(failed(), failed("export"))), "a sample in export: ValueError: no"),
        (replace(AFTER, of_samples=of_samples(ok())), "torch's samples are 2 runs, and with the change 1"),
        (replace(AFTER, of_samples=of_samples(differs(), ok())), "a sample in aot: differs at 0"),
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


def test_a_limit_of_aot_that_is_no_guard_is_no_doubt_but_is_told() -> None:
    result = judged(TASK, BEFORE, replace(AFTER, captured=(ok(), failed())))
    assert not result.doubts
    assert result.evidence[0] == "In aot the program fails as it does without the change: ValueError: no."


def test_what_the_graph_says_wrongly_of_a_value_is_a_doubt() -> None:
    node = NodeDifference("slice_copy.Tensor", "shape", "(4,), and is (2,)", "aten.slice_copy")
    call = Call("2", CallEnd(), CallEnd(), agreement="same", node=node)
    wrong = Observation("export", EXPLICIT, "ok", calls=(call,))
    result = judged(TASK, BEFORE, replace(AFTER, captured=(wrong, ok("aot"))))
    assert result.doubts == ("in export: the graph is wrong about slice_copy.Tensor at 2: (4,), and is (2,)",)


def test_where_the_decomposed_program_is_not_captured_is_only_told() -> None:
    task = replace(TASK, programs=(("", ("export", "decompose")),))
    result = judged(task, BEFORE, replace(AFTER, captured=(ok(), failed("decompose"))))
    assert not result.doubts
    assert "In decompose the program fails: ValueError: no." in result.evidence
    assert judged(task, BEFORE, replace(AFTER, captured=(ok(), differs()))).doubts == ("in decompose: differs at 0",)


def test_what_is_accepted_because_torch_lost_an_assertion_is_told() -> None:
    made = Constraint("assertion", "Eq(u0, 6)", "", Place("Python", "torch/x.py", 1), ())
    call = Call("1", CallEnd("ValueError: no"), CallEnd(), symbols=(("u0", 1),))
    losing = Observation("export", EXPLICIT, "ok", calls=(call,), constraints=(made,))
    result = judged(TASK, BEFORE, replace(AFTER, captured=(losing, ok("aot"))))
    assert not result.doubts
    assert "In export torch loses an assertion that the capture made: Eq(u0, 6)." in result.evidence
    never_made = replace(losing, constraints=())
    assert judged(TASK, BEFORE, replace(AFTER, captured=(never_made, ok("aot")))).doubts == ("in export: accepts at 1",)


def test_a_refused_broadcast_is_judged_with_the_program_of_the_sample() -> None:
    program = """# ddefuzz program v1
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0"], y: Float32[Tensor, "u1"]):
    return x + y
"""
    said = "AssertionError: Guard failed on the same frame it was created. args[1].size()[0] == args[0].size()[0]"
    refused = tuple(
        ("" if unknown else program, Observation("aot", EXPLICIT, "ok", calls=(Call(size, CallEnd(), CallEnd(said)),)))
        for size, unknown in (("u0=1,u1=2", False), ("u0=3,u1=2", False), ("u0=1,u1=2", True))
    )
    before = replace(BEFORE, of_samples=of_samples(failed()))
    doubts = [judged(TASK, before, replace(AFTER, of_samples=(one,))).doubts for one in refused]
    assert [bool(one) for one in doubts] == [False, True, True]


@pytest.mark.parametrize(
    ("form", "verdict", "truths", "doubt"),
    [
        ("torch._check", "torch._check here", Truths(), ""),
        ("guard_or_false", "guard_or_false here", Truths((False,), (True,)), ""),
        ("guard_or_true", "guard_or_true here", Truths((False, True)), ""),
        (DELETED, "either answer here", Truths((False,), (True,)), ""),
        (DELETED, "guard_or_false here", Truths((False,), (True,)), "not redundant"),
        ("guard_or_true", "torch._check here", Truths((True,), (False,)), "asserts nothing"),
        ("guard_or_false", "guard_or_false here", Truths((False,), (False,)), "is False each time"),
        ("guard_or_false", "guard_or_false here", Truths(), "was not evaluated"),
        ("guard_or_true", "guard_or_true here", Truths((False,), (True,)), "takes the branch of unusual sizes"),
    ],
)
def test_an_answer_has_to_be_tested_and_to_be_that_of_usual_sizes(
    form: str, verdict: str, truths: Truths, doubt: str
) -> None:
    doubts = form_doubts(form, verdict, truths)
    assert [doubt in one for one in doubts] == [True] * bool(doubt)


@pytest.mark.slow
def test_a_process_notes_the_truths_of_a_guard_at_usual_and_at_small_sizes() -> None:
    file, code = "torch/nn/functional.py", "if target.size() != input.size():"
    source = source_of(file)
    assert source is not None
    line = next(number for number, one in enumerate(source.text.splitlines(), 1) if one.strip() == code)
    frame = Frame(file, line, "", code)
    text = noting(RaisedError("Eq(u0, 1)", "guard_bool", Place("Python", file, line), (frame,)))
    functions = (one for one in source.tree.body if isinstance(one, ast.FunctionDef))
    called = next(one for one in functions if one.lineno < line < (one.end_lineno or 0))
    program = f"""# ddefuzz program v1
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "1"], y: Float32[Tensor, "u0"]):
    return torch.nn.functional.{called.name}(x, y)
"""
    (seen,) = probed([Task(((program, ()),), (), file, noting=text)], {})
    assert isinstance(seen, Sights)
    assert set(seen.truths.usual) == {True}
    assert set(seen.truths.small) == {True, False}


def test_before_the_change_the_programs_are_captured_in_aot_alone() -> None:
    assert without(TASK).programs == (("", ("aot",)),)


@pytest.mark.parametrize(
    ("code", "expression", "truths"),
    [
        ("n.numel() == 0", "Eq(u0, 0)", Truths((False,), (True,))),
        ("n.numel() != 0", "Eq(u0, 0)", Truths((True,), (False,))),
        ("n.numel() != 0", "Ne(u0, 0)", Truths((True,), (False,))),
        ("n > 3", "u0 > 3", Truths((True,), (False,))),
    ],
)
def test_the_truths_of_a_guard_follow_from_the_sizes_of_the_calls(code: str, expression: str, truths: Truths) -> None:
    frame = Frame("torch/_refs/__init__.py", 1, "roll", f"if {code}:")
    raised = RaisedError(expression, "guard_bool", Place("Python", frame.file, 1), (frame,))
    calls = tuple(Call(str(size), CallEnd(), CallEnd(), "same", symbols=(("u0", size),)) for size in (5, 0))
    assert truths_at_calls(raised, [Observation("aot", EXPLICIT, "ok", calls=calls)]) == truths


def test_an_answer_is_tested_by_calls_that_agree_of_captures_that_took_it() -> None:
    before = "if n == 0:\n    pass\nif guard_or_false(m == 0):\n    pass\n"
    after = before.replace("n == 0", "guard_or_false(n == 0)")
    patch = Patch("guard_or_false", "torch/x.py", "", before, after)

    def guard(line: int, method: str = "guard_or_false") -> Guard:
        return Guard(Place("Python", "torch/x.py", line), method, "Eq(u0, 0)", fallback=False, counterfactual="same")

    def captured(guard: Guard) -> Observation:
        agrees = Call("5", CallEnd(), CallEnd(), "same", symbols=(("u0", 5),))
        differs = Call("0", CallEnd(), CallEnd(), "differs", symbols=(("u0", 0),))
        return Observation("aot", EXPLICIT, "ok", guards=(guard,), calls=(agrees, differs))

    right = captured(guard(1))
    empty = replace(right, calls=(Call("0", CallEnd(), CallEnd(), "same", symbols=(("u0", 0),)),))
    other = Sights((captured(guard(3)), captured(guard(1, "guard_or_true")), captured(guard(9))))
    assert answered_truths(patch, after, other) == Truths()
    assert answered_truths(patch, after, Sights((right,))) == Truths((False,))
    assert answered_truths(patch, after, Sights((right,), of_samples=(("", empty),))) == Truths((False,), (True,))


@pytest.mark.parametrize(
    ("code", "expression", "form"),
    [
        ("end == size", "Eq(Min(2, u0), u0)", "guard_or_false"),
        ("end != size", "Eq(Min(2, u0), u0)", "guard_or_true"),
        ("m < n", "u0 < u1", "guard_or_true"),
        ("known(n)", "unknown(u0)", "guard_or_false"),
    ],
)
def test_a_later_guard_gets_the_answer_of_large_sizes(code: str, expression: str, form: str) -> None:
    frame = Frame("torch/_refs/__init__.py", 1, "roll", code)
    assert usual_answer(RaisedError(expression, "guard_bool", Place("Python", frame.file, 1), (frame,))) == form


@pytest.mark.slow
@pytest.mark.long
def test_what_a_process_sees_of_samples_and_of_torchscript() -> None:
    """One process does all three tasks: importing what has the samples takes most of the time of each."""
    compiled = ("torch.nn.modules.rnn:RNNBase", "torch._decomp.decompositions_for_jvp", "torch.nn.functional:nothing")
    tasks = [
        Task((), (), "torch/nn/modules/rnn.py", compiled),
        Task((), ("torch.nn.functional.pad",), "torch/nn/functional.py"),
        Task((), ("torch.topk",), "torch/_meta_registrations.py"),
    ]
    rnn, pad, topk = [seen for seen in probed(tasks, {}) if isinstance(seen, Sights)]
    assert [bool(rnn.scripted[name]) for name in compiled] == [False, False, True]
    # Samples of files that are scripted are traced, and called with numbers of numpy.
    assert {name.rpartition(" ")[2] for name in pad.samples} >= {"traced", "numpy", "fake"}
    assert "traced" in pad.samples.values()
    # Samples of other files are called with `out` of another dtype.
    assert {did for name, did in topk.samples.items() if name.endswith("out")} == {"RuntimeError"}


def test_a_change_names_the_functions_that_it_adds() -> None:
    diff = "--- a/torch/x.py\n+++ b/torch/x.py\n+def _check_rows(x) -> None:\n+    pass\n def old(x):\n"
    assert in_helpers(diff) == ", in a function of its own, which the old place calls: `_check_rows`"
    assert not in_helpers("+    def inner(x):\n def old(x):\n")
