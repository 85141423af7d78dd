"""The search for changes, with trials that are plain functions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import msgspec
import pytest

from ddefuzz.checking import problems
from ddefuzz.checking.edits import Edit
from ddefuzz.checking.patch import Advice, Candidate, Comparison, InputDim, Interface, TrialResult
from ddefuzz.checking.problems import summary
from ddefuzz.checking.search import BROKEN, MOST_TRIES, advise, restrictions
from ddefuzz.classify.cause import FRAMEWORK_CAUSES, MEANINGS, Classification
from ddefuzz.classify.signature import Cause
from ddefuzz.execute.protocol import EXPLICIT, CallableSubject, ExceptionInfo, Observation, Stage
from ddefuzz.instrument.events import Frame, Place, RaisedError, SymbolOrigin
from ddefuzz.oracles.capture import classify, judge
from tests.classify.test_golden import cases, reclassified

SOURCE = """def f(x, keep):
    kept = x[keep]
    if kept.shape[0] > 2:
        return kept
    y = x[keep[1:]]
    if y.shape[0] == 0:
        return x
    return kept
"""
GUARD = ExceptionInfo("torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode", "Could not guard")
EXAMPLE = Comparison("the example")
OTHER = Comparison("keep all false")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    return path


def failing(path: Path, line: int = 3, code: str = "kept.shape[0] > 2", expression: str = "u0 > 2") -> Observation:
    frame = Frame(str(path), line, "f", code, True)
    made = SymbolOrigin("u0", "nonzero", Frame(str(path), 2, "f", "x[keep]", True))
    raised = RaisedError(expression, "guard_bool", Place("Python", str(path), line), (frame,), symbols=(made,))
    return Observation("export", EXPLICIT, "fail", exceptions=(GUARD,), raised=raised)


def captured(stages: tuple[Stage, ...]) -> tuple[Observation, ...]:
    return tuple(Observation(stage, EXPLICIT, "ok") for stage in stages)


def classified(observation: Observation) -> Classification:
    (failure,) = judge([observation])
    return classify(failure)


def search(
    path: Path,
    trial: Callable[[Candidate], TrialResult],
    described: Interface | None = None,
    observation: Observation | None = None,
    stages: tuple[Stage, ...] = ("export", "compile"),
) -> Advice:
    described = described or Interface(("x", "keep"), file=str(path), line=1)
    subject = CallableSubject(str(path), name="f")
    return advise([classified(observation or failing(path))], subject, described, stages, trial, 60.0)


def text_of(candidate: Candidate) -> str:
    return candidate.files[0].after if candidate.files else ""


def test_a_change_that_keeps_all_results_comes_first(model: Path) -> None:
    def trial(candidate: Candidate) -> TrialResult:
        text = text_of(candidate)
        if "if kept.shape[0] > 2" in text and "_check" not in text:
            return TrialResult((failing(model),), (EXAMPLE, OTHER))
        return TrialResult(captured(candidate.stages), (EXAMPLE, OTHER), sides=(False, True))

    advice = search(model, trial)
    best = advice.changes[0]
    assert (best.kind, best.harm, best.passes) == ("rewrite", 1, ("export", "compile"))
    assert best.does == "drop the branch `if kept.shape[0] > 2`"
    assert "-    if kept.shape[0] > 2:\n-        return kept\n" in best.diff
    assert [where.line for where in best.where] == [3]
    assert best.agrees == 2
    assert model.read_text() == SOURCE


def test_a_change_with_other_results_is_not_offered(model: Path) -> None:
    def trial(candidate: Candidate) -> TrialResult:
        if "_check(kept.shape[0] <= 2)" in text_of(candidate):
            refused = Comparison("keep all true", changed="RuntimeError: Expected cond to be True")
            return TrialResult(captured(candidate.stages), (EXAMPLE, refused))
        return TrialResult((), (EXAMPLE, Comparison("keep all true", differs="result: other")))

    advice = search(model, trial)
    (change,) = advice.changes
    assert (change.kind, change.harm) == ("inside-promise", 3)
    assert change.refuses == ("refuses inputs for which kept.shape[0] > 2, which eager takes, such as keep all true",)


def test_each_part_of_a_change_fixes_the_failure_that_it_was_tried_for(model: Path) -> None:
    second = failing(model, 6, "y.shape[0] == 0", "Eq(u1, 0)")

    def trial(candidate: Candidate) -> TrialResult:
        text = text_of(candidate)
        if "if kept.shape[0] > 2" in text:
            return TrialResult((failing(model),), (EXAMPLE, OTHER))
        if "if y.shape[0] == 0" in text:
            return TrialResult((second,), (EXAMPLE, OTHER))
        return TrialResult(captured(candidate.stages), (EXAMPLE, OTHER), sides=(False, True))

    best = search(model, trial, stages=("export",)).changes[0]
    first, other = (classified(one).signature.key for one in (failing(model), second))
    assert [(("kept" in one.does, "y.shape" in one.does), one.keys) for one in best.fixes] == [
        ((True, False), (first,)),
        ((False, True), (other,)),
    ]


def test_a_size_that_several_dims_share_is_named_by_the_first(model: Path) -> None:
    shared = SymbolOrigin("u0", "input", source="dim 2 of cache.keys[0], dim 2 of cache.values[0]")
    frame = Frame("torch/_refs/__init__.py", 1, "roll", "a.numel() == 0", True)
    raised = RaisedError("Eq(u0, 0)", "guard_bool", Place("Python", frame.file, 1), (frame,), symbols=(shared,))
    described = Interface(("ids", "cache"), dims=(InputDim("cache.keys[0]", 2, 6, "cached"),))

    def trial(candidate: Candidate) -> TrialResult:
        refused = Comparison("cache.keys[0].shape[2] = cache.values[0].shape[2] = 0", changed=f"RuntimeError: {BROKEN}")
        return TrialResult(captured(candidate.stages) if candidate.wrapper else (failing(model),), (EXAMPLE, refused))

    observation = Observation("export", EXPLICIT, "fail", exceptions=(GUARD,), raised=raised)
    best = search(model, trial, described, observation).changes[0]
    assert best.does == "promise that cache.keys[0].shape[2] > 0"


def test_of_two_promises_each_has_an_example_of_its_own_size() -> None:
    edits = [Edit("", "input-promise", "", f"{name}.shape[0] > 1") for name in ("ids", "mask")]
    refused = [Comparison("mask.shape[0] = 1", changed="RuntimeError")]
    assert restrictions(edits, refused, 3) == [
        "refuses inputs for which ids.shape[0] <= 1",
        "refuses inputs for which mask.shape[0] <= 1, which eager takes, such as mask.shape[0] = 1",
    ]
    empty = Edit("", "input-promise", "", "ids.shape[0] > 0")
    assert restrictions([empty], [], 3)[0].startswith("refuses inputs for which ids.shape[0] == 0; none of")
    assert restrictions(edits[:1], refused, 3) == ["refuses inputs for which ids.shape[0] <= 1"]
    broken = [msgspec.structs.replace(one, changed="RuntimeError: Expected cond to be True") for one in refused]
    assert restrictions(edits[:1], broken, 3)[0].endswith(", such as mask.shape[0] = 1")
    assert restrictions(edits, [], 3) == [
        "refuses inputs for which ids.shape[0] <= 1, or mask.shape[0] <= 1; "
        "none of the 3 sets of inputs that eager takes is refused"
    ]


def test_an_example_breaks_the_promise_that_refuses_it() -> None:
    edits = [Edit("", "input-promise", "", one) for one in ("3 * x.shape[0] != 1", "x.shape[0] > 0", "x.shape[0] != 2")]
    refused = [
        Comparison("x.shape[0] = y.shape[0] = 0", changed="RuntimeError"),
        Comparison("x all 0", changed="Error"),
    ]
    assert restrictions(edits, refused, 3) == [
        "refuses inputs for which x.shape[0] == 0, which eager takes, such as x.shape[0] = y.shape[0] = 0",
        "refuses inputs for which x.shape[0] == 2",
    ]
    assert restrictions(edits[:1], [], 3) == []
    long = Edit("", "input-promise", "", "x.shape[0] <= 4096")
    assert restrictions([long], refused[:1], 3) == ["refuses inputs for which x.shape[0] > 4096"]


@pytest.mark.parametrize("promise_helps", [True, False])
def test_a_packages_code_is_changed_only_if_no_promise_about_inputs_helps(
    promise_helps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "_INSTALLED", (tmp_path,))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "m.py").write_text(SOURCE)
    own = tmp_path.parent / f"{tmp_path.name}_own.py"
    own.write_text("import lib.m\n\nf = lib.m.f\n")
    source = SymbolOrigin("u0", "input", source="dim 0 of x")
    frame = Frame("lib/m.py", 3, "f", "kept.shape[0] > 2", True)
    raised = RaisedError("u0 > 2", "guard_bool", Place("Python", frame.file, 3), (frame,), symbols=(source,))
    observation = Observation("export", EXPLICIT, "fail", exceptions=(GUARD,), raised=raised)
    described = Interface(("x", "keep"), dims=(InputDim("x", 0, 5, "u0"),))

    def trial(candidate: Candidate) -> TrialResult:
        helps = [one for one in candidate.files if (one.path == str(own)) == promise_helps]
        seen = captured(candidate.stages) if helps else (observation,)
        return TrialResult(seen, (EXAMPLE, OTHER), sides=(False, True))

    changes = search(own, trial, described, observation).changes
    assert {one.kind for one in changes} == {"input-promise" if promise_helps else "rewrite"}
    assert promise_helps or "lib.m.f = scope['f']" in changes[0].paste
    assert all(where.owner == ("" if promise_helps else "lib") for one in changes for where in one.where)


def test_a_promise_that_the_example_breaks_is_not_tried(model: Path) -> None:
    symbols = tuple(SymbolOrigin(f"u{at}", "input", source=f"dim {at} of batch['x']") for at in (0, 1))
    frame = Frame("torch/_refs/__init__.py", 1, "roll", "a.numel() == 0", True)
    raised = RaisedError("Eq(u0, u1)", "guard_bool", Place("Python", frame.file, 1), (frame,), symbols=symbols)
    dims = (InputDim("batch['x']", 0, 5, "u0"), InputDim("batch['x']", 1, 1, "u1"))
    tried = []

    def trial(candidate: Candidate) -> TrialResult:
        tried.append(candidate.wrapper)
        return TrialResult((observation,), (EXAMPLE,))

    observation = Observation("export", EXPLICIT, "fail", exceptions=(GUARD,), raised=raised)
    search(model, trial, Interface(("batch",), dims=dims), observation)
    promises = [line.strip() for text in tried for line in text.splitlines() if "_check" in line]
    assert "torch._check(batch['x'].shape[0] != batch['x'].shape[1])" in promises
    assert "torch._check(batch['x'].shape[0] > 1)" in promises
    assert not any("==" in line or "shape[1] > 1" in line for line in promises)


def test_a_change_of_one_part_fixes_what_fails_in_all_stages(model: Path) -> None:
    def trial(candidate: Candidate) -> TrialResult:
        done = "torch._check" in text_of(candidate) and "if kept.shape[0] > 2" in text_of(candidate)
        seen = captured(candidate.stages) if done else (failing(model),)
        return TrialResult(seen, (EXAMPLE, OTHER))

    (fixed,) = search(model, trial).changes[0].fixes
    assert (fixed.keys, fixed.continued) == ((classified(failing(model)).signature.key,), True)


def test_a_removed_decision_of_which_one_side_was_seen_is_no_rewrite(model: Path) -> None:
    def trial(candidate: Candidate) -> TrialResult:
        return TrialResult(captured(candidate.stages), (EXAMPLE, OTHER), sides=(False,))

    change = next(one for one in search(model, trial).changes if one.does.startswith("drop"))
    assert (change.kind, change.harm) == ("inside-promise", 3)
    side = "it was false for all inputs tried that eager takes"
    said = f"results may be others where `kept.shape[0] > 2` has the other outcome ({side})"
    assert change.refuses == (said,)


def test_what_only_the_captured_program_refuses_is_no_rewrite(model: Path) -> None:
    def trial(candidate: Candidate) -> TrialResult:
        refused = Comparison("keep all false", captured=(("export", "RuntimeError: Runtime assertion failed"),))
        return TrialResult(captured(candidate.stages), (EXAMPLE, refused), sides=(False, True))

    assert {change.harm for change in search(model, trial).changes} == {3}


def test_several_problems_get_the_smallest_set_of_changes(model: Path) -> None:
    def trial(candidate: Candidate) -> TrialResult:
        text = text_of(candidate)
        if "guard_or_" in text or "torch." in text:
            return TrialResult((), (EXAMPLE, Comparison("keep all true", differs="result: other")))
        if "if kept.shape[0] > 2" in text:
            return TrialResult((failing(model),), (EXAMPLE,))
        if "if y.shape[0] == 0" in text:
            line = text.splitlines().index("    if y.shape[0] == 0:") + 1
            return TrialResult((failing(model, line, "y.shape[0] == 0", "Eq(u1, 0)"),), (EXAMPLE,))
        return TrialResult(captured(candidate.stages), (EXAMPLE,), sides=(False, True))

    best = search(model, trial).changes[0]
    assert best.diff.count("\n-    if ") == 2
    assert best.diff.count("@@") == 2
    assert best.does == "drop the branch `if kept.shape[0] > 2`; drop the branch `if y.shape[0] == 0`"


def test_a_part_that_is_not_needed_is_left_out(model: Path) -> None:
    def trial(candidate: Candidate) -> TrialResult:
        text = text_of(candidate)
        if "if y.shape[0] == 0" not in text and "_check" not in text:
            return TrialResult(captured(candidate.stages), (EXAMPLE,), sides=(False, True))
        if "if kept.shape[0] > 2" in text:
            return TrialResult((failing(model),), (EXAMPLE,))
        line = text.splitlines().index("    if y.shape[0] == 0:") + 1
        return TrialResult((failing(model, line, "y.shape[0] == 0", "Eq(u1, 0)"),), (EXAMPLE,))

    best = search(model, trial).changes[0]
    assert "-    if y.shape[0] == 0:" in best.diff
    assert "-    if kept" not in best.diff


def input_guard(path: Path) -> Observation:
    frame = Frame(str(path), 8, "f", "kept", True)
    made = SymbolOrigin("u1", "input", None)
    raised = RaisedError("Eq(u1, 1)", "guard_bool", Place("Python", "torch/x.py", 1), (frame,), symbols=(made,))
    return Observation("export", EXPLICIT, "fail", exceptions=(GUARD,), raised=raised)


DIMS = (InputDim("ids", 0, 2, "u0"), InputDim("ids", 1, 5, "u1"), InputDim("mask", 1, 5, "u2"))


def promised(condition: str) -> Callable[[Candidate], TrialResult]:
    def trial(candidate: Candidate) -> TrialResult:
        text = text_of(candidate) + candidate.wrapper
        if f"torch._check({condition})" in text:
            return TrialResult(captured(candidate.stages), (EXAMPLE,))
        return TrialResult((input_guard(Path(candidate.subject.path)),), (EXAMPLE,))  # type: ignore[union-attr]

    return trial


@pytest.mark.parametrize("condition", ["ids.shape[1] != 1", "ids.shape[1] > 1", "ids.shape[1] == mask.shape[1]"])
def test_a_promise_about_any_dim_of_any_input_is_in_the_users_function(model: Path, condition: str) -> None:
    model.write_text(SOURCE.replace("f(x, keep)", "f(ids, mask, x=0, keep=0)"))
    described = Interface(("ids", "mask"), (), DIMS, str(model), 1)
    (change,) = search(model, promised(condition), described, input_guard(model)).changes
    assert (change.kind, change.harm, change.paste) == ("input-promise", 2, "")
    assert f"+    torch._check({condition})\n     kept = x[keep]" in change.diff


def test_a_promise_about_a_library_is_a_wrapper(model: Path) -> None:
    model.write_text("import library\n\nf = library.Model()\n")
    described = Interface(("ids", "mask"), (), DIMS)
    (change,) = search(model, promised("ids.shape[1] > 1"), described, input_guard(model)).changes
    assert "+        torch._check(ids.shape[1] > 1)\n" in change.diff
    assert "+f = Promised(library.Model())\n" in change.diff


def test_without_help_it_says_what_was_tried_and_what_is_next(model: Path) -> None:
    def trial(candidate: Candidate) -> TrialResult:
        if "if kept.shape[0] > 2" in text_of(candidate):
            return TrialResult((failing(model),), (EXAMPLE,))
        return TrialResult((failing(model, 6, "y.shape[0] == 0", "Eq(u1, 0)"),), (EXAMPLE,))

    advice = search(model, trial)
    assert advice.changes == ()
    assert advice.tried[0].does == "drop the branch `if kept.shape[0] > 2`"
    assert advice.tried[0].ended.startswith("still fails in export: `Eq(u1, 0)`")
    assert "the next failure is `Eq(u1, 0)`" in advice.remaining


def test_the_search_ends(model: Path) -> None:
    numbers = count()

    def trial(candidate: Candidate) -> TrialResult:
        return TrialResult((failing(model, expression=f"u0 > {next(numbers)}"),), (EXAMPLE,))

    assert search(model, trial).changes == ()
    assert next(numbers) <= MOST_TRIES


def test_no_promise_is_that_of_the_example_only(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(SOURCE.replace("kept.shape[0] > 2", "kept.shape[0] == 12"))
    tried = []

    def trial(candidate: Candidate) -> TrialResult:
        tried.append(text_of(candidate))
        return TrialResult((failing(path),), (EXAMPLE,))

    search(path, trial, observation=failing(path, 3, "kept.shape[0] == 12", "Eq(u0, 12)"))
    assert any("torch._check(kept.shape[0] != 12)" in text for text in tried)
    assert not any("torch._check(kept.shape[0] == 12)" in text for text in tried)


def test_a_change_that_passes_some_stages_is_offered_if_none_passes_all(model: Path) -> None:
    def trial(candidate: Candidate) -> TrialResult:
        done = captured(("export",)) if "torch._check(kept.shape[0] <= 2)" in text_of(candidate) else ()
        return TrialResult((*done, msgspec.structs.replace(failing(model), stage="compile")), (EXAMPLE,))

    (change,) = search(model, trial).changes
    assert (change.passes, change.does) == (("export",), "assert kept.shape[0] <= 2")
    assert change.fails.startswith("still fails in compile: `u0 > 2` at ")


def test_what_raises_otherwise_than_its_check_is_no_promise(model: Path) -> None:
    def trial(candidate: Candidate) -> TrialResult:
        without = Comparison("weights = None", changed="AttributeError: 'NoneType' object has no attribute 'shape'")
        return TrialResult(captured(candidate.stages), (EXAMPLE, without))

    advice = search(model, trial)
    assert advice.changes == ()
    assert "raises where the original returns, for weights = None" in advice.tried[0].ended


def test_the_search_ends_with_its_budget(model: Path) -> None:
    tried = []

    def trial(candidate: Candidate) -> TrialResult:
        tried.append(candidate)
        return TrialResult((failing(model),), (EXAMPLE,), cpu_seconds=30.0)

    assert search(model, trial).stopped
    assert len(tried) == 2


@pytest.mark.parametrize("cause", sorted(MEANINGS.keys() - {"wrong-capture", "wrong-key", "symbolic-form"}))
def test_the_summary_says_whether_the_cause_is_in_pytorch(cause: Cause) -> None:
    """Of real failures: PyTorch's own, unless an op lacks a kernel, which may be anybody's."""
    shown = next(case.expected.observation for case in cases() if case.expected.cause == cause)
    failure = reclassified(shown)
    assert ("PyTorch's" in summary(failure)) == (cause in FRAMEWORK_CAUSES)


def test_what_a_negated_promise_refuses_is_said_without_not(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text("def f(x, keep):\n    c = keep.sum()\n    if c.max() > 2:\n        return x\n    return x + 1\n")

    def trial(candidate: Candidate) -> TrialResult:
        if "torch.sym_not" in text_of(candidate):
            refused = Comparison("keep all true", changed="RuntimeError: Expected cond to be True")
            return TrialResult(captured(candidate.stages), (EXAMPLE, refused))
        return TrialResult((), (EXAMPLE, Comparison("keep all true", differs="result: other")))

    advice = search(model, trial, observation=failing(model, 3, "c.max() > 2", "Eq(u0, 1)"), stages=("export",))
    assert "refuses inputs for which c.max() > 2, which eager takes, such as keep all true" in advice.changes[0].refuses
