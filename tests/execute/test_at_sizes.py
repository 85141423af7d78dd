"""A subject at several sizes: the user's own code by its dynamic dims."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ddefuzz.execute.preparation import PreparedSubject, UnbackedDim
from ddefuzz.execute.protocol import CallableSubject, ProgramSubject
from ddefuzz.execute.subject import prepare
from ddefuzz.oracles.recompilation_run import at_sizes, refusal

CODE = """\
import torch


def both(x, n, y):
    return x + y.sum() * n


both_args = (torch.arange(6.0).reshape(2, 3), 2, torch.tensor([1.0, 2.0, 3.0], requires_grad=True))
both_unbacked = {0: {1: "s"}, 2: {0: "s"}}
"""


def test_the_unbacked_dims_get_the_size_and_the_values_repeat(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(CODE)
    subject = CallableSubject(str(path), name="both")
    assert refusal(prepare(subject)) == ""
    made = {size: make() for size, make in at_sizes(subject, ("5", "7"))}
    assert {size: [tuple(made[size].args[at].shape) for at in (0, 2)] for size in made} == {
        "5": [(2, 5), (5,)],
        "7": [(2, 7), (7,)],
    }
    assert made["5"].args[0].tolist() == [[0, 1, 2, 0, 1], [3, 4, 5, 3, 4]]
    assert (made["5"].args[1], made["5"].args[2].requires_grad, made["5"].args[2].is_leaf) == (2, True, True)


def test_a_program_gets_the_sizes_by_its_recipes() -> None:
    text = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=3 2"]):
    return torch.abs(x)
"""
    assert [tuple(make().args[0].shape) for _, make in at_sizes(ProgramSubject(text), ("5", "7"))] == [(5, 2), (7, 2)]


@pytest.mark.parametrize(
    ("prepared", "reason"),
    [
        (PreparedSubject(torch.abs, (torch.ones(2),)), "no dim of its arguments is said to be unbacked"),
        (PreparedSubject(torch.abs, (torch.ones(0),), (UnbackedDim(0, 0, "u0"),)), "has the size 0"),
        (
            PreparedSubject(torch.cat, ([torch.ones(2)],), (UnbackedDim(0, 0, "u0"),)),
            "only tensors that are positional",
        ),
        (PreparedSubject(torch.abs, (), kwargs={"input": torch.ones(2)}), "only tensors that are positional"),
    ],
)
def test_what_cannot_get_other_sizes_says_why(prepared: PreparedSubject, reason: str) -> None:
    assert reason in refusal(prepared)
