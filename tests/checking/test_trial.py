"""Changes that are tried with the real torch: one for each kind, next to eager on other inputs."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from ddefuzz.checking import check as task
from ddefuzz.checking.patch import Advice, Candidate, ChangedFile, Comparison, TrialResult, wrapper
from ddefuzz.checking.search import advise
from ddefuzz.checking.trial import UNDETERMINED, describe, is_rounding, note_lines, try_change
from ddefuzz.checking.variants import held_out_of, variants_of
from ddefuzz.execute.observe import exchanged
from ddefuzz.execute.pool import LostTask, Pool
from ddefuzz.execute.preparation import leaf_names, leaves_of
from ddefuzz.execute.protocol import CallableSubject, Run
from ddefuzz.execute.subject import prepare
from ddefuzz.oracles.capture import classify, judge

MODELS = """
import torch


def saves_work(x, keep):
    kept = x[keep]
    if kept.shape[0] == 0:
        return x.sum()
    return x.sum() + kept.sum()


saves_work_args = (torch.arange(4.0), torch.tensor([True, False, True, True]))


class Inner(torch.nn.Module):
    def forward(self, ids, mask):
        if ids.shape[1] > 1:
            ids = ids * 2
        return ids * mask


Inner_args = (torch.ones(2, 5), torch.ones(2, 5))
Inner_unbacked = {0: [1], 1: [1]}


def two_sided(x, keep):
    kept = x[keep]
    return kept * 2 if kept.shape[0] > 1 else kept.sum(0)


two_sided_args = (torch.arange(4.0) + 5, torch.tensor([True, False, True, True]))


def nested(batch, *, scale):
    return batch["ids"] * scale


nested_args = ({"ids": torch.ones(3)},)
nested_kwargs = {"scale": 2}


def variadic(*ids):
    return ids[0]


variadic_args = (torch.ones(3),)


def needs_a_number(x):
    n = int((x > 0).sum())
    return x.sum() * len([0] * n)


needs_a_number_args = (torch.tensor([1.0, -1.0, 2.0]),)


def two_branches(x, keep):
    total = x.sum()
    kept = x[keep]
    if kept.shape[0] != 0:
        total = total + kept.sum()
    more = x[x > 1]
    if more.numel() > 0:
        total = total + more.sum()
    return total


two_branches_args = (torch.arange(4.0), torch.tensor([True, False, True, True]))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return path


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1) as pool:
        yield pool


def advice_for(file: Path, name: str, pool: Pool) -> Advice:
    subject = CallableSubject(str(file), name=name)
    failures = judge([pool.observe(Run(subject, "export"), 120.0)])
    described = pool.submit(task.describe, subject, 120.0).result()
    assert not isinstance(described, LostTask)

    def trial(candidate: Candidate) -> TrialResult:
        found = pool.submit(task.try_change, candidate, 120.0).result()
        assert not isinstance(found, LostTask)
        return found

    return advise([classify(failures[0])], subject, described, ("export", "compile"), trial, 250.0)


def exports(file: Path, name: str, files: tuple[ChangedFile, ...], pool: Pool) -> bool:
    """Whether the changed file, loaded as a file, exports."""
    (changed,) = files
    copy = file.with_name(f"changed_{name}.py")
    copy.write_text(changed.after)
    return pool.observe(Run(CallableSubject(str(copy), name=name), "export"), 120.0).outcome == "ok"


@pytest.mark.slow
def test_a_branch_that_saves_work_is_dropped(file: Path, pool: Pool) -> None:
    best = advice_for(file, "saves_work", pool).changes[0]
    assert (best.kind, best.refuses) == ("rewrite", ())
    assert best.does == "drop the branch `if kept.shape[0] == 0`"
    assert exports(file, "saves_work", best.files, pool)
    assert file.read_text() == MODELS


@pytest.mark.slow
def test_a_promise_about_the_inputs_says_what_it_refuses(file: Path, pool: Pool) -> None:
    best = advice_for(file, "Inner", pool).changes[0]
    assert best.kind == "input-promise"
    assert "+        torch._check(ids.shape[1] > 1)\n         if ids" in best.diff
    assert best.refuses == (
        "refuses inputs for which ids.shape[1] <= 1, which eager takes, such as ids.shape[1] = 1",
        "the captured program refuses inputs that eager takes, such as mask.shape[1] = 1",
    )
    assert exports(file, "Inner", best.files, pool)


@pytest.mark.slow
def test_a_branch_with_two_results_gets_a_promise_inside(file: Path, pool: Pool) -> None:
    advice = advice_for(file, "two_sided", pool)
    assert {change.kind for change in advice.changes} == {"inside-promise"}
    best = advice.changes[0]
    assert "torch._check(kept.shape[0] > 1)" in best.diff
    assert "which eager takes, such as keep all false" in best.refuses[0]


@pytest.mark.slow
def test_a_number_that_python_needs_is_not_fixed_to_that_of_the_example(file: Path, pool: Pool) -> None:
    assert advice_for(file, "needs_a_number", pool).changes == ()


@pytest.mark.slow
def test_two_problems_are_one_diff(file: Path, pool: Pool) -> None:
    best = advice_for(file, "two_branches", pool).changes[0]
    assert best.kind == "rewrite"
    assert len(best.where) == 2
    assert exports(file, "two_branches", best.files, pool)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("swapped_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_functions_run_other_source_only_inside(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    before = "class M:\n    def f(self):\n        return 1\n\n\ndef g(n):\n    return [M().f() for _ in range(n)]\n"
    path.write_text(before)
    module = load(path)
    after = "import math\n" + before.replace("return 1", "return math.floor(2.5)")
    with exchanged(str(path), before, after) as count:
        assert module.g(2) == [2, 2]
        assert count == 2
    assert module.g(2) == [1, 1]


def test_held_out_inputs_have_small_sizes_and_both_masks(file: Path) -> None:
    prepared = prepare(CallableSubject(str(file), name="Inner"))
    variants = held_out_of(prepared, leaf_names(prepared))
    assert {leaves_of(one.resized(prepared))[0].shape[1] for one in variants} == {0, 1, 2, 4, 5}
    prepared = prepare(CallableSubject(str(file), name="saves_work"))
    kept = [int(leaves_of(one.resized(prepared))[1].sum()) for one in held_out_of(prepared, leaf_names(prepared))]
    assert {0, leaves_of(prepared)[1].numel()} <= set(kept)


def test_results_that_nothing_wrote_are_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("import torch\n\n\ndef f(x):\n    return torch.empty_like(x)\n\n\nf_args = (torch.ones(5),)\n")
    tried = try_change(Candidate(CallableSubject(str(path), name="f"), ()))
    assert {one.original for one in tried.compared} == {UNDETERMINED}


def test_other_inputs_reach_both_sides(file: Path) -> None:
    prepared = prepare(CallableSubject(str(file), name="Inner"))
    variants = variants_of(prepared, leaf_names(prepared))
    sizes = {tuple(leaf.shape[1] for leaf in leaves_of(one.resized(prepared))) for one in variants}
    assert sizes >= {(5, 5), (0, 0), (1, 1), (2, 2), (1, 5), (5, 1)}
    prepared = prepare(CallableSubject(str(file), name="saves_work"))
    kept = [int(leaves_of(one.resized(prepared))[1].sum()) for one in variants_of(prepared, leaf_names(prepared))]
    assert {0, 1, 3, 4} <= set(kept)


@pytest.mark.parametrize(("name", "parameters"), [("nested", (("batch",), ("scale",))), ("variadic", ((), ()))])
def test_a_wrapper_gets_the_parameters_and_not_the_tensors_in_them(
    file: Path, name: str, parameters: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    described = describe(CallableSubject(str(file), name=name))
    assert (described.positional, described.keywords) == parameters
    compile(wrapper(described, ("True",)), "wrapper", "exec")


def test_a_change_with_other_results_is_rejected_before_any_capture(file: Path) -> None:
    changed = ChangedFile(str(file), MODELS, MODELS.replace("        return x.sum()\n", "        return x.sum() + 1\n"))
    subject = CallableSubject(str(file), name="saves_work")
    tried = try_change(Candidate(subject, ("export",), (changed,)))
    assert tried.observations == ()
    (wrong,) = (one for one in tried.compared if one.differs)
    assert wrong.inputs == "keep all false"


def test_notes_name_what_is_wrong_refused_or_accepted_once_each() -> None:
    compared = (
        Comparison("the example"),
        Comparison("x all 0", differs="aot: result: 1 of 5 elements"),
        Comparison("n all 5", captured=(("export", "RuntimeError: u0 <= 4"),)),
        Comparison("n all 6", original="ValueError: too many", accepted=("export", "compile")),
        Comparison("n all 7", original="ValueError: too many", accepted=("export",)),
        Comparison("n all 8", original="ValueError: too many"),
    )
    assert list(note_lines(compared)) == [
        "what aot captured computes something else than eager with x all 0: result: 1 of 5 elements",
        "what export captured refuses inputs that eager takes, such as n all 5: RuntimeError: u0 <= 4",
        "what export captured takes inputs that eager refuses, such as n all 6: ValueError: too many",
    ]


@pytest.mark.parametrize(
    ("left", "right", "differs"),
    [
        ([1.0, 100.0], [1.0, 100.05], False),
        ([1.0, 100.0], [1.0, 101.0], True),
        ([1e-9, 1.0], [9e-5, 1.0], False),
        ([float("nan"), float("inf")], [float("nan"), float("inf")], False),
        ([float("nan"), 1.0], [0.0, 1.0], True),
        ([True, False], [True, True], True),
        ([1, 2], [1, 3], True),
    ],
)
def test_in_notes_what_rounding_may_explain_is_no_difference(left: Any, right: Any, differs: bool) -> None:
    assert is_rounding(torch.tensor(left), torch.tensor(right)) is not differs
    assert is_rounding([torch.tensor(left), torch.tensor(1)], [torch.tensor(right), torch.tensor(2)]) is False


def test_a_fake_tensor_is_no_rounding() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 the other tests need none

    left = torch.ones(2)
    assert is_rounding(left, FakeTensorMode().from_tensor(left)) is False
