"""What `ddefuzz.check_op` finds: a right op has no problem, and each defect is found by the check that is for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ddefuzz
from ddefuzz.custom_ops.model import CHECKS, OpReport
from ddefuzz.errors import InputError
from tests.custom_ops import example_ops

DEFECTS = {
    "branches": ("runs", ""),
    "two_at_least": ("accepts", "a dynamic size"),
    "pairs": ("sizes", "result"),
    "keeps_rank": ("structure", "result"),
    "strides": ("layout", "result"),
    "dtype_of_half": ("dtype", "result"),
    "returns_view": ("aliasing", "result"),
    "returns_itself": ("aliasing", "result"),
    "writes": ("mutation", "x"),
    "raw_memory": ("values", "result"),
    "half_gradient": ("gradient", "x"),
    "flat_gradient": ("gradient", ""),
    "guarding_backward": ("runs", "backward"),
    "batch_last": ("vmap", "x"),
    "negated": ("out", "zoo::negated.out"),
    "remembers": ("sizes", "result"),
    "one_more": ("sizes", "result"),
    "magnitude": ("dtype", "result"),
    "share": ("sizes", "result"),
    "resizes": ("mutation", "buffer"),
    "is_sparse": ("structure", "result"),
}


def report_of(name: str, **options: Any) -> OpReport:
    return ddefuzz.check_op(f"zoo::{name}", example_ops.EXAMPLES[f"zoo::{name}"], raise_exception=False, **options)


def found_in(report: OpReport) -> set[tuple[str, str]]:
    return {(problem.check, problem.place) for problem in report.problems}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found_by_its_check(name: str) -> None:
    assert DEFECTS[name] in found_in(report_of(name))


@pytest.mark.slow
def test_right_ops_have_no_problem_and_every_check_is_tried() -> None:
    reports = [report_of("double_rows"), report_of("positive")]
    assert [report.problems for report in reports] == [(), ()]
    tried = {result.name for result in reports[0].checks if result.tried}
    assert tried == {*CHECKS} - {"out"}
    skipped = {result.name: result.skipped for result in reports[1].checks if not result.tried}
    assert skipped == {
        "gradient": "the op has no autograd formula",
        "vmap": "the op has no vmap rule",
        "out": "the op has no out= overload",
    }


def test_a_problem_says_the_call_the_sizes_and_the_line() -> None:
    (problem,) = report_of("two_at_least").problems
    assert problem.why == "the fake kernel says u1 >= 2; in this call of the real kernel, u1 = 0"
    assert problem.call == "zoo::two_at_least(float32[4])"
    assert problem.frames[0].function == "_"
    line = Path(example_ops.__file__).read_text().splitlines()[problem.frames[0].line - 1]
    assert line.strip() == "return x.new_empty(torch.library.get_ctx().new_dynamic_size(min=2))"


def test_the_exception_is_the_report() -> None:
    with pytest.raises(AssertionError) as caught:
        ddefuzz.check_op(example_ops.branches, [(torch.zeros(4),)], budget=5)
    text = " ".join(str(caught.value).split())  # lines are as wide as the terminal
    assert text.startswith("zoo::branches: wrong: runs schema ")
    assert "Could not guard on data-dependent expression Eq(x.shape[0], 0)" in text
    assert "return x.new_empty(0) if x.shape[0] == 0 else torch.empty_like(x)" in text


def test_a_check_that_is_left_out_finds_nothing() -> None:
    report = report_of("branches", without=["runs"])
    assert report.ok
    assert next(result.skipped for result in report.checks if result.name == "runs") == "not asked for"


def test_a_small_budget_is_shared_by_all_parts_and_said() -> None:
    report = report_of("half_gradient", budget=0.01)
    assert report.is_cut
    tried = {result.name: result.tried for result in report.checks}
    assert all(tried[name] for name in ("runs", "accepts", "sizes", "mutation", "aliasing", "gradient"))
    assert {result.skipped for result in report.checks if not result.tried} >= {"the budget was used up before"}
    assert not report.ok


@pytest.mark.parametrize("op", ["zoo::pairs", example_ops.pairs, torch.ops.zoo.pairs, torch.ops.zoo.pairs.default])
def test_an_op_is_given_as_opcheck_takes_it(op: Any) -> None:
    assert ddefuzz.check_op(op, [(torch.zeros(4),)], budget=5, raise_exception=False).op == "zoo::pairs"


def test_without_examples_arguments_are_drawn_from_the_schema() -> None:
    report = ddefuzz.check_op("zoo::pairs", budget=5, raise_exception=False)
    assert "no example is given: the arguments are drawn from the schema" in report.notes
    assert ("sizes", "result") in found_in(report)


def test_an_out_overload_is_checked_alone() -> None:
    example = ((example_ops.ROWS,), {"out": torch.empty(3, 4)})
    report = ddefuzz.check_op("zoo::negated.out", [example], raise_exception=False)
    assert {(check.name, bool(check.tried)) for check in report.checks if check.tried} == {("out", True)}
    assert found_in(report) == {("out", "zoo::negated.out")}
    assert "with out = float32[0]" in report.problems[0].why


@pytest.mark.parametrize(
    ("op", "examples", "reason"),
    [
        ("zoo::gone", (), "zoo::gone: found no such op, expected one of zoo's"),
        ("nowhere::op", (), "nowhere::op: found no library 'nowhere', expected one that is imported"),
        ("pairs", (), "'pairs': found no name of an op, expected LIB::OP or LIB::OP.OVERLOAD"),
        (3, (), "op: found int, expected a custom op, torch.ops.mylib.op or its name"),
        ("zoo::without_fake", [(example_ops.ROWS,)], "found an op without a fake kernel, expected one"),
        ("zoo::pairs", [3], "example 0 of zoo::pairs: found int, expected a tuple of arguments"),
        (
            "zoo::pairs",
            [("text",)],
            "example 0 of zoo::pairs: found the arguments 'text', with which the op raises RuntimeError",
        ),
        ("zoo::pairs", [lambda n: 1 // 0], "example 0 of zoo::pairs: found an example that at n=3"),
        (
            "zoo::without_fake",
            [(3,)],
            "zoo::without_fake: found the arguments 3, with which the op raises",
        ),
        ("zoo::pairs", 3, "examples: found an argument of type int, expected list or tuple"),
    ],
)
def test_bad_input_is_one_line(op: Any, examples: Any, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        ddefuzz.check_op(op, examples)
    assert str(caught.value).startswith(reason) or reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_torch_does_without_a_formula_is_kept() -> None:
    before = torch._C._get_autograd_fallback_mode()
    report_of("pairs", budget=5)
    assert torch._C._get_autograd_fallback_mode() == before


def test_a_problem_says_that_sizes_differ_which_are_equal_in_the_example() -> None:
    with torch.library._scoped_library("zoo_apart", "DEF") as library:
        library.define("add(Tensor x, Tensor y) -> Tensor")
        library.impl("add", lambda x, y: x + y[: x.shape[0]].sum(0), "CPU")
        library.impl("add", lambda x, y: torch.empty_like(y), "Meta")
        example = (torch.zeros(3, 4), torch.zeros(3, 4))
        report = ddefuzz.check_op("zoo_apart::add", [example], budget=5, raise_exception=False)
    by_check = {problem.check: problem for problem in report.problems}
    assert by_check["sizes"].apart == "x.shape[0] and y.shape[0]"
