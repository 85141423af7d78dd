"""Control flow in plain Python computes what torch's own functions compute, and is used in eager only."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from ddefuzz.program.evaluate import evaluate, resolve
from ddefuzz.program.expressions import SELF_COMPILING, parse_expression
from ddefuzz.program.plain import PLAIN, ControlFlowInPython

X = torch.arange(12.0).reshape(4, 3)

Q = torch.randn((2, 2, 4, 4), generator=torch.Generator().manual_seed(1))
K = torch.randn((2, 2, 5, 4), generator=torch.Generator().manual_seed(2))

CALLS: dict[str, Callable[[Any], Any]] = {
    "torch.cond": lambda f: (
        f(X.sum() > 0, lambda a: a + 1, lambda a: a - 1, (X,)),
        f(X.sum() < 0, lambda a: a + 1, lambda a: a - 1, (X,)),
        f(True, lambda: X + 1, lambda: X - 1),
    ),
    "torch.while_loop": lambda f: f(
        lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.zeros((), dtype=torch.int64), X)
    ),
    "torch._higher_order_ops.scan": lambda f: (
        f(lambda c, v: (c + v, c * v), torch.zeros(3), X),
        f(lambda c, v: (c + v, c * v), torch.zeros(3), X, reverse=True),
        f(lambda c, v: (c + v.sum(), v + c), torch.zeros(4), X, dim=1),
        f(lambda c, v: (c + v[0], {"kept": v[1] * 2}), torch.zeros(3), (X, X + 1)),
    ),
    "torch._higher_order_ops.map": lambda f: (
        f(lambda a: a.sum(), X),
        f(lambda a, b: (a + b, a * b), X, torch.ones(3)),
    ),
    "torch.nn.attention.flex_attention.flex_attention": lambda f: (
        f(Q, K, K),
        f(Q, K, K, score_mod=lambda s, b, h, i, j: s * 2 + (i - j)),
        f(Q, K, K, block_mask=create_block_mask(lambda b, h, i, j: i + 1 < j, None, None, 4, 5, device="cpu"), scale=1),
    ),
}


def test_each_has_a_call_here() -> None:
    assert CALLS.keys() == PLAIN.keys() == SELF_COMPILING


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("name", CALLS)
def test_plain_python_computes_what_torch_computes(name: str) -> None:
    owner, _, function = name.rpartition(".")
    own = getattr(importlib.import_module(owner), function)
    rtol, atol = (1e-5, 1e-6) if "attention" in name else (0, 0)
    torch.testing.assert_close(CALLS[name](PLAIN[name]), CALLS[name](own), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", ["torch._higher_order_ops.scan", "torch._higher_order_ops.map"])
def test_nothing_to_go_through_is_refused_as_torch_does(name: str) -> None:
    arguments = (X[0], X[:0]) if name.endswith("scan") else (X[:0],)
    for function in (PLAIN[name], getattr(torch._higher_order_ops, name.rpartition(".")[2])):
        with pytest.raises(RuntimeError):
            function(lambda *values: (values[0], values[0]), *arguments)


@pytest.mark.parametrize("condition", [X, X[0, 0], X[:1, :1] > 0, (X > 0)])
def test_a_condition_is_one_bool(condition: torch.Tensor) -> None:
    if condition.dtype == torch.bool and condition.numel() == 1:
        assert PLAIN["torch.cond"](condition, lambda: 1, lambda: 2) == 2
        return
    with pytest.raises(RuntimeError, match="expected one bool"):
        PLAIN["torch.cond"](condition, lambda: 1, lambda: 2)


@pytest.mark.parametrize("branch", [lambda a: a, lambda a: a[0]])
def test_a_result_that_shares_memory_is_refused_as_torch_does(branch: Callable[..., Any]) -> None:
    for function in (resolve("torch.cond"), torch.cond):
        with pytest.raises(RuntimeError):
            function(X.sum() > 0, branch, branch, (X + 1,))


def test_names_around_a_function_of_a_program_are_outside() -> None:
    def branch(value: str) -> Any:
        return evaluate(parse_expression(f"torch.cond(x.sum() > 0, lambda a: {value}, lambda a: a * 2, (x,))"), given)

    given = {"x": X, "y": X + 1}
    with pytest.raises(RuntimeError, match="shares memory"):
        branch("y")
    assert torch.equal(branch("y + 1"), X + 2)


@pytest.mark.parametrize("other", [lambda a: 0, lambda a: a.long(), lambda a: (a + 1, a + 2), lambda a: a[99]])
def test_both_branches_of_a_new_program_run_and_return_the_same_kinds(other: Callable[..., Any]) -> None:
    for function in (resolve("torch.cond"), torch.cond):
        with pytest.raises((RuntimeError, IndexError)):
            function(X.sum() > 0, lambda a: a + 1, other, (X,))


@pytest.mark.parametrize(
    "combine",
    [lambda c, v: v.clone(), lambda c, v: (c.sum(), v + 1), lambda c, v: (c.long(), v + 1), lambda c, v: (c,)],
)
def test_a_carry_keeps_its_form_and_comes_with_an_output(combine: Callable[..., Any]) -> None:
    for function in (PLAIN["torch._higher_order_ops.scan"], torch._higher_order_ops.scan):
        with pytest.raises(Exception):  # noqa: B017 of several kinds
            function(combine, torch.ones(3), X)


def test_a_branch_that_is_not_taken_need_not_run_in_eager() -> None:
    result = PLAIN["torch.cond"](X.sum() < 0, lambda a: a[99], lambda a: a + 1, (X,))
    assert torch.equal(result, X + 1)


def test_a_loop_without_end_is_ended() -> None:
    with pytest.raises(RuntimeError, match="a loop of more than"):
        PLAIN["torch.while_loop"](lambda i: True, lambda i: (i + 1,), (X,))


def test_torch_has_its_own_functions_again_after_a_call_of_eager() -> None:
    own = torch.cond
    with pytest.raises(ZeroDivisionError), ControlFlowInPython():
        assert torch.cond is PLAIN["torch.cond"] is not resolve("torch.cond")
        raise ZeroDivisionError
    assert torch.cond is own
