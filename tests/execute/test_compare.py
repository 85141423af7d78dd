"""What counts as a difference between two results."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ddefuzz.execute import comparison
from ddefuzz.execute.comparison import CallResult, differences
from ddefuzz.execute.exercise import aliases
from ddefuzz.execute.protocol import Difference, What, is_accepted
from ddefuzz.program.evaluate import materialize_input
from ddefuzz.program.model import Dim, Input, Recipe

ONE = torch.ones(2, 3)


def seen(expected: Any, found: Any) -> list[tuple[What, str]]:
    return [(one.what, one.where) for one in differences(expected, found)]


@pytest.mark.parametrize(
    "value",
    [
        ONE,
        [ONE, (ONE.to(torch.int64), {"a": torch.tensor(True)})],
        3,
        2.5,
        math.nan,
        1 + 2j,
        None,
        "text",
        torch.float32,
        torch.tensor([math.nan, math.inf]),
        torch.zeros(0, 3),
        torch.eye(2).to_sparse(),
        {ONE: ONE},
    ],
    ids=str,
)
def test_a_result_agrees_with_itself(value: Any) -> None:
    assert seen(value, value) == []


@pytest.mark.parametrize("dtype", [torch.bits8, torch.float4_e2m1fn_x2], ids=str)
def test_dtypes_that_torch_does_not_compare_are_compared_as_bytes(dtype: torch.dtype) -> None:
    one, other = (torch.tensor([7, byte], dtype=torch.uint8).view(dtype) for byte in (8, 9))
    assert seen(one, one.clone()) == []
    (found,) = differences(one, other)
    assert (found.what, found.how) == ("values", "1 of 2 elements; first at (1,): 9, eager has 8")


def test_an_expanded_tensor_is_compared_without_its_memory() -> None:
    one, other = (torch.tensor([[1.0], [last]]).expand(2, 2**40) for last in (2.0, 3.0))
    assert seen(one, one) == []
    assert seen(one, other) == [("values", "result")]


@pytest.mark.parametrize(
    ("expected", "found", "what", "where"),
    [
        (ONE, ONE + 1, "values", "result"),
        (ONE, ONE.double(), "dtype", "result"),
        (ONE, ONE[:1], "shape", "result"),
        (ONE, ONE.t().contiguous().t(), "strides", "result"),
        (ONE, ONE.to_sparse(), "structure", "result"),
        ([ONE], [ONE, ONE], "structure", "result"),
        ([1, ONE], [1, ONE * 2], "values", "result[1]"),
        ({"a": 1}, {"b": 1}, "structure", "result"),
        ({"a": 1}, {"a": 2}, "number", "result['a']"),
        (2, 2.0, "number", "result"),
        (True, 1, "number", "result"),
        (None, ONE, "structure", "result"),
        (torch.float32, torch.float64, "structure", "result"),
        (torch.tensor([math.nan]), torch.tensor([0.0]), "values", "result"),
        ({ONE: 1}, {ONE + 1: 1}, "structure", "result"),
    ],
)
def test_a_difference_is_named(expected: Any, found: Any, what: What, where: str) -> None:
    assert seen(expected, found) == [(what, where)]


def test_rounding_is_no_difference() -> None:
    assert seen(ONE, ONE * (1 + 1e-6)) == []
    assert seen(ONE.double(), ONE.double() * (1 + 1e-6)) == [("values", "result")]


def test_strides_of_what_has_no_elements_or_one_element_in_a_dim_do_not_count() -> None:
    assert seen(torch.empty_strided((0, 3), (3, 1)), torch.empty_strided((0, 3), (1, 7))) == []
    assert seen(torch.empty_strided((1, 3), (3, 1)).zero_(), torch.empty_strided((1, 3), (9, 1)).zero_()) == []


def test_a_difference_says_how_much() -> None:
    (one,) = differences(torch.tensor([1, 2, 3]), torch.tensor([1, 5, 3]))
    assert one.how == "1 of 3 elements; first at (1,): 5, eager has 2"


def test_aliases_are_of_results_among_themselves_and_with_inputs() -> None:
    base = torch.arange(6)
    found = aliases((base[1:], torch.ones(2), base.view(2, 3)), {"x": base, "y": base})
    assert found == {
        ("input x", "result[0]"),
        ("input y", "result[0]"),
        ("input x", "result[2]"),
        ("input y", "result[2]"),
        ("result[0]", "result[2]"),
    }


def test_a_copy_of_an_expanded_tensor_may_have_its_own_strides() -> None:
    one, copied = torch.ones(1).expand(3), torch.ones(3)
    (found,) = differences(one, copied)
    assert (found.what, is_accepted(Difference(*found), ())) == ("strides", True)
    (reverse,) = differences(copied, one)
    assert (reverse.what, is_accepted(Difference(*reverse), ())) == ("strides", False)
    flat = torch.ones(6).as_strided((1, 3), (0, 2))  # the stride of a dim of size 1 decides nothing
    (other,) = differences(flat, torch.ones(1, 3))
    assert not is_accepted(Difference(*other), ())


def test_a_tensor_without_values_differs_in_a_script() -> None:
    real, meta = torch.ones(2), torch.ones(2, device="meta")
    told = comparison.seen(CallResult(result=real), CallResult(result=(meta,)), CallResult)
    assert told == {"eager": "returns", "captured": "returns", "differs": "values"}


def placed(layout: str, dtype: str = "float32") -> Any:
    return materialize_input(Input("x", dtype, (Dim(5), Dim(3)), Recipe("normal"), layout), 0)


@pytest.mark.parametrize(
    ("expected", "found", "differences"),
    [
        (placed("shard0"), placed("shard0"), []),
        (placed("shard0"), placed("shard1"), [("placement", "result")]),
        (placed("replicate"), placed("contiguous"), [("structure", "result")]),
        (placed("shard0"), placed("shard0", "float64"), [("dtype", "result")]),
        (placed("shard0"), placed("shard0") + 1, [("values", "result")]),
    ],
)
def test_dtensors_differ_in_their_placements_and_their_own_shard(
    expected: Any, found: Any, differences: list[tuple[What, str]]
) -> None:
    assert seen(expected, found) == differences


def test_no_values_are_compared_where_an_input_is_on_several_processes() -> None:
    eager, captured = (
        CallResult(None, (ONE, 3), (placed("shard0"),)),
        CallResult(None, (ONE + 1, 4), (placed("shard0"),)),
    )
    assert comparison.compared(eager, captured) == []
    assert comparison.compared(eager, captured._replace(result=(ONE[:1], 3)))[0].what == "shape"
