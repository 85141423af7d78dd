"""Tests that evaluating a program's steps gives the same as running its text in Python."""

from __future__ import annotations
import __future__

from typing import Any

import pytest
import torch

from ddefuzz.errors import UnsupportedError
from ddefuzz.program.evaluate import evaluate, materialize, resolve, run_step, run_steps
from ddefuzz.program.expressions import BUILTINS, CONSTANTS, parse_expression
from ddefuzz.program.model import Program
from ddefuzz.program.text import parse

PROGRAMS = [
    "    a = x[mask]\n    return torch.chunk(a, 2)",
    "    a, b = x.shape\n    return (a, b, [a // 4, -a ** 2, (-a) ** 2, a % 3 == 0])",
    "    (a,) = mask.nonzero(as_tuple=True)\n    return x[a, ..., 1:-1:2]",
    "    a = mask.sum().item()\n    return x[:a] if a > 3 else x[a:]",
    "    torch._check(mask.shape[0] >= 2)\n    return torch.ops.aten.t.default(x).mT.to(torch.float64)",
    "    return torch.nn.functional.pad(x, (0, 1), value=torch.inf)",
    "    return torch.vmap(torch.cat)((x, x + 1), dim=0)",
    "    return (not True, ~mask, len(x), max(1, min(3, 2)), 'a', None, (1.5 + 2.0j), 1 - (2 - 3))",
    "    return (x.shape[0] > 9 and 1 or 2, x.shape[0] > 3 and x, x.shape[0] > 3 or mask and x)",
    "    a = x * 2\n    return torch.vmap(lambda row: row.sum() + a.sum())(x)",
    "    return torch.vmap(torch.func.grad(lambda row: (row * row).sum()))(x)",
    "    return torch.func.grad(lambda a, b: torch.vmap(lambda row: row * b.sum())(a).sum())(x, x)",
    "    a = torch.topk(x, k=2)\n    return (a.values, a[1], int(2.5), x[[0, 1]], x[None, :, ()])",
]


def python(program_text: str) -> Any:
    code = compile(program_text, "<test>", "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
    namespace: dict[str, Any] = {"torch": torch}
    exec(code, namespace)
    return namespace["program"]


def read(body: str) -> tuple[str, Program]:
    text = f"""\
# ddefuzz program v1
# inputs: mask = trues(4); x = normal
def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "6 4"]):
{body}
"""
    return text, parse(text, "<test>").program


@pytest.mark.parametrize("body", PROGRAMS)
def test_evaluation_agrees_with_python(body: str) -> None:
    text, program = read(body)
    expected = python(text)(**materialize(program))
    assert plain(run_steps(program, materialize(program))) == plain(expected)


def plain(value: Any) -> Any:
    """`value` with its tensors as lists, so that `==` compares all of it."""
    if isinstance(value, list | tuple):
        return type(value), [plain(item) for item in value]
    return (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value


def test_unpacking_must_fit() -> None:
    _, program = read("    a, b = x.shape\n    return a")
    assert run_step(program.steps[0], materialize(program)) == {"a": 6, "b": 4}
    _, short = read("    a, b = mask.shape\n    return a")
    with pytest.raises(ValueError, match="shorter than"):
        run_steps(short, materialize(short))


def test_names_resolve_to_functions_and_constants_of_torch() -> None:
    assert resolve("torch.nn.functional.pad") is torch.nn.functional.pad
    assert resolve("Tensor.view") is torch.Tensor.view
    assert resolve("int") is int
    assert all(callable(resolve(name)) for name in BUILTINS)
    with pytest.raises(UnsupportedError, match=r"torch\.chunk_of_tomorrow is not in torch 2"):
        resolve("torch.chunk_of_tomorrow")


@pytest.mark.parametrize("path", sorted(CONSTANTS))
def test_every_constant_is_in_this_torch(path: str) -> None:
    assert isinstance(resolve(path), torch.dtype | torch.layout | torch.memory_format | float)


def test_only_the_taken_branch_is_evaluated() -> None:
    assert evaluate(parse_expression("1 if n > 0 else n // 0"), {"n": 2}) == 1
