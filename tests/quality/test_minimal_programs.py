"""Which program minimizing ends at, exactly, and in how many attempts; each attempt is a capture in earnest.

The predicates stand for signatures: a plain question about the program, so nothing is captured here.
"""

from __future__ import annotations

import pytest

from ddefuzz.program.model import Binary, Conditional, Literal, Program
from tests.minimize.reduction import CHAIN, assert_reduces_to, calls, calls_on_unbacked, nodes, one_way


def test_a_call_on_an_unbacked_size_is_that_call_alone() -> None:
    assert_reduces_to(
        CHAIN,
        """
        # inputs: x = normal
        def program(x: Float32[Tensor, "u0"]):
            return torch.chunk(x, 1)
        """,
        calls_on_unbacked("torch.chunk"),
        within=20,
    )


def test_the_failing_function_is_tried_first() -> None:
    hinted = one_way(CHAIN, calls_on_unbacked("torch.cat"), failing_functions=("torch.cat",))
    assert hinted.attempts <= one_way(CHAIN, calls_on_unbacked("torch.cat")).attempts


def test_a_call_that_needs_nothing_of_the_data_has_a_plain_input() -> None:
    assert_reduces_to(
        CHAIN,
        """
        # inputs: x = normal
        def program(x: Float32[Tensor, ""]):
            return torch.relu(x)
        """,
        calls("torch.relu"),
        within=20,
    )


def test_a_size_is_that_of_an_input() -> None:
    assert_reduces_to(
        CHAIN,
        """
        # inputs: x = normal
        def program(x: Float32[Tensor, "u0"]):
            return torch.zeros(x.shape)
        """,
        calls_on_unbacked("torch.zeros"),
        within=25,
    )


def test_a_statement_stays_one() -> None:
    assert_reduces_to(
        """
        # inputs: n = sizes(3); x = normal
        def program(n: Int64[Tensor, ""], x: Float32[Tensor, "3 4"]):
            size = n.item()
            torch._check(size <= 6)
            y = torch.zeros(size, 4)
            return y + x
        """,
        """
        # inputs: x = normal
        def program(x: Float32[Tensor, ""]):
            torch._check(True)
            return x
        """,
        lambda one: any(not step.targets for step in one.steps),
        within=60,
    )


def test_a_pair_that_fails_only_together_stays_together() -> None:
    def both(one: Program) -> bool:
        return calls("torch.roll")(one) and calls("torch.diff")(one)

    assert_reduces_to(
        """
        # inputs: x = normal; where = index(5)
        def program(x: Float32[Tensor, "5 4"], where: Int64[Tensor, "7"]):
            found = torch.nonzero(x)
            distinct = torch.unique(where)
            rows = x[distinct]
            sums = torch.sum(rows, dim=1)
            rolled = torch.roll(sums, 1)
            steps = torch.diff(rolled)
            total = torch.cumsum(steps, 0)
            return total, found
        """,
        """
        # inputs: x = normal
        def program(x: Float32[Tensor, "2"]):
            a = torch.roll(x, 0)
            return torch.diff(a)
        """,
        both,
        within=60,
    )


def test_a_branch_is_as_plain_as_a_branch_can_be() -> None:
    found = one_way(
        """
        # inputs: keep = trues(4); x = normal
        def program(keep: Bool[Tensor, "6"], x: Float32[Tensor, "6"]):
            kept = x[keep]
            n = kept.shape[0]
            twice = n * 2
            y = torch.zeros(n) if twice > 3 else torch.ones(5)
            return y * 2, kept
        """,
        lambda one: any(isinstance(node, Conditional) for node in nodes(one)),
    )
    assert len(found.program.inputs) <= 1
    assert not any(isinstance(node, Binary) and node.op == "*" for node in nodes(found.program))
    numbers = [n.value for n in nodes(found.program) if isinstance(n, Literal) and isinstance(n.value, int)]
    assert all(abs(n) <= 2 for n in numbers)


@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded"])
def test_a_layout_stays_where_it_is_needed(layout: str) -> None:
    assert_reduces_to(
        f"""
        # inputs: x = normal, {layout}
        def program(x: Float64[Tensor, "5 7 3"]):
            y = torch.relu(x) + 1
            return y.flatten()
        """,
        f"""
        # inputs: x = normal, {layout}
        def program(x: Float32[Tensor, "{"2 2" if layout == "transposed" else "2"}"]):
            return x
        """,
        lambda one: any(item.layout == layout for item in one.inputs),
        within=40,
    )


def test_a_dtype_stays_where_it_is_needed() -> None:
    assert_reduces_to(
        CHAIN,
        """
        # inputs: x = normal
        def program(x: Float64[Tensor, ""]):
            return x
        """,
        lambda one: any(item.dtype == "float64" for item in one.inputs),
        within=40,
    )


def test_rank_stays_where_it_is_needed() -> None:
    assert_reduces_to(
        """
        # inputs: x = normal
        def program(x: Float32[Tensor, "u0=3 5 7 4"]):
            y = torch.softmax(x, dim=3)
            return torch.nn.functional.pad(y, (1, 2))
        """,
        """
        # inputs: x = normal
        def program(x: Float32[Tensor, "2 2 2"]):
            return torch.softmax(x, dim=0)
        """,
        lambda one: calls("torch.softmax")(one) and any(len(item.shape) > 2 for item in one.inputs),
        within=40,
    )
