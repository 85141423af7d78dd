"""Control flow in plain Python computes what torch's own functions compute, and is used in eager only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ddefuzz.program.evaluate import resolve
from ddefuzz.program.plain import PLAIN, ControlFlowInPython

X = torch.arange(12.0).reshape(4, 3)

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
}


def test_each_has_a_call_here() -> None:
    assert CALLS.keys() == PLAIN.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_plain_python_computes_what_torch_computes(name: str) -> None:
    owner, _, function = name.removeprefix("torch.").rpartition(".")
    own = getattr(getattr(torch, owner) if owner else torch, function)
    torch.testing.assert_close(CALLS[name](PLAIN[name]), CALLS[name](own), rtol=0, atol=0)


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


def test_a_loop_without_end_is_ended() -> None:
    with pytest.raises(RuntimeError, match="a loop of more than"):
        PLAIN["torch.while_loop"](lambda i: True, lambda i: (i,), (X,))


def test_torch_has_its_own_functions_again_after_a_call_of_eager() -> None:
    own = torch.cond
    with pytest.raises(ZeroDivisionError), ControlFlowInPython():
        assert torch.cond is PLAIN["torch.cond"] is resolve("torch.cond")
        raise ZeroDivisionError
    assert torch.cond is own
