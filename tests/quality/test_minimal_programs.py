"""Which program minimizing ends at, exactly, and in how many attempts; each attempt is a capture in earnest.

The predicates stand for signatures: a plain condition on the program, so nothing is captured here.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ddefuzz.minimize.eager import deprecated, inspector
from ddefuzz.minimize.minimizer import minimize
from ddefuzz.program.model import Binary, Conditional, Literal, Program
from ddefuzz.program.text import print_program
from tests.minimize.reduction import CHAIN, assert_reduces_to, calls, calls_on_unbacked, nodes, one_way, program


def test_a_call_on_an_unbacked_size_is_that_call_alone() -> None:
    assert_reduces_to(
        CHAIN,
        """
        # inputs: x = normal
        def program(x: Float32[Tensor, "u0"]):
            return torch.chunk(x, 2)
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


IN_BRANCHES = """
# inputs: keep = trues(4); x = normal
def program(keep: Bool[Tensor, "6"], x: Float32[Tensor, "6 4"]):
    kept = x[keep]
    scaled = kept * 2
    chosen = torch.cond(
        scaled.sum() > 0, lambda a: torch.softmax(a + scaled, 0).sum(1), lambda a: torch.roll(a[:, 0], 1), (kept,)
    )
    return chosen, torch.flip(kept, (0,))
"""


def test_what_fails_in_a_branch_by_itself_is_that_call_alone() -> None:
    assert_reduces_to(
        IN_BRANCHES,
        """
        # inputs: x = normal
        def program(x: Float32[Tensor, ""]):
            return torch.roll(x, 1)
        """,
        calls("torch.roll"),
        within=40,
    )


def test_a_call_with_functions_has_the_smallest_functions() -> None:
    assert_reduces_to(
        IN_BRANCHES,
        """
        # inputs: mask = ones; x = normal
        def program(mask: Bool[Tensor, ""], x: Float32[Tensor, ""]):
            return torch.cond(mask, lambda p: p.clone(), lambda p: p.clone(), (x,))
        """,
        calls("torch.cond"),
        within=60,
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
            a = torch.roll(x, 1)
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


def test_sizes_that_must_be_equal_change_together() -> None:
    assert_reduces_to(
        """
        # inputs: x = normal; w = normal
        def program(x: Float32[Tensor, "u0=2 u1=100"], w: Float32[Tensor, "u2=16"]):
            return torch.stft(x, n_fft=16, window=w, return_complex=True, center=True)
        """,
        """
        # inputs: x = normal
        def program(x: Float32[Tensor, "4"]):
            return torch.stft(x, n_fft=4, window=x, return_complex=True)
        """,
        lambda one: calls("torch.stft")(one) and "window=" in print_program(one),
        within=40,
    )


def test_multiples_of_a_size_change_with_it() -> None:
    assert_reduces_to(
        """
        # inputs: q = normal; w = normal; b = normal
        def program(q: Float32[Tensor, "3 10"], w: Float32[Tensor, "30 10"], b: Float32[Tensor, "30"]):
            y = torch.nn.functional.linear(q, w, b)
            return y
        """,
        """
        # inputs: x = normal; y = normal; z = normal
        def program(x: Float32[Tensor, "2"], y: Float32[Tensor, "6 2"], z: Float32[Tensor, "6"]):
            return torch.nn.functional.linear(x, y, z)
        """,
        lambda one: (
            calls("torch.nn.functional.linear")(one)
            and [len(item.shape) for item in one.inputs][1:] == [2, 1]
            and one.inputs[1].shape[0].size == 3 * one.inputs[1].shape[1].size
        ),
        within=40,
    )


def test_a_program_that_runs_at_one_size_only_is_minimized_all_the_same() -> None:
    start = program("""
        # inputs: x0 = normal; x1 = normal
        def program(x0: Float32[Tensor, "u0=5 u1=3"], x1: Float32[Tensor, "u2=5 u3=3"]):
            return torch.cross(x0, x1)
    """)
    found = minimize(start, calls_on_unbacked("torch.cross"), inspect=inspector(start), deprecated=deprecated)
    assert found.program == program("""
        # inputs: x = normal
        def program(x: Float32[Tensor, "u0=3"]):
            return torch.cross(x, x)
    """)


def test_all_inputs_are_one_where_one_will_do() -> None:
    assert_reduces_to(
        """
        # inputs: x = normal; y = normal; z = normal
        def program(x: Float32[Tensor, "3 7"], y: Float32[Tensor, "3 7"], z: Float32[Tensor, "3 7"]):
            return torch.stack((x, y, z), 1)
        """,
        """
        # inputs: x = normal
        def program(x: Float32[Tensor, ""]):
            return torch.stack((x, x, x))
        """,
        lambda one: calls("torch.stack")(one) and print_program(one).rpartition("return")[2].count(", ") >= 2,
        within=20,
    )


def test_an_output_that_torch_would_resize_has_its_size() -> None:
    start = program("""
        # inputs: x = normal; y = normal
        def program(x: Float32[Tensor, "u0"], y: Float32[Tensor, ""]):
            return torch.outer(x, x, out=y)
    """)
    found = minimize(start, _with_out("torch.outer"), inspect=inspector(start), deprecated=deprecated)
    assert found.program == program("""
        # inputs: x = normal; y = normal
        def program(x: Float32[Tensor, "2"], y: Float32[Tensor, "2 2"]):
            return torch.outer(x, x, out=y)
    """)


def _with_out(function: str) -> Callable[[Program], bool]:
    return lambda one: calls(function)(one) and "out=" in print_program(one)


@pytest.mark.parametrize(
    ("call", "expected", "kept"),
    [
        ("torch._refs.roll(x, 0)", "torch.roll(x, 1)", "roll(x"),
        ("torch.chunk(x, 1)", "torch.chunk(x, 2)", "chunk(x"),
        ("torch.topk(x, 0)", "torch.topk(x, 1)", "topk(x"),
    ],
)
def test_what_a_maintainer_would_dismiss_becomes_sensible(call: str, expected: str, kept: str) -> None:
    text = f"""
        # inputs: x = normal
        def program(x: Float32[Tensor, "4 6"]):
            return {call}
    """
    found = one_way(text, lambda one: kept in print_program(one))
    assert f"return {expected}" in print_program(found.program)
