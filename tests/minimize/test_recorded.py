"""The calls of a user's model that lead to its failure, as a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddefuzz.execute.protocol import CallableSubject
from ddefuzz.execute.recording import recorded
from ddefuzz.ops import catalogue

MODEL = """\
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x, keep):
        x = self.linear(x) * 2
        kept = x[keep]
        unused = torch.sin(x)
        return torch.roll(kept, 1, 0) + unused.sum()

def make():
    return Block(), (torch.ones(6, 4), torch.tensor([True] * 3 + [False] * 3))

def branch(x, keep):
    return x if x[keep].shape[0] > 2 else x + 1
branch_args = (torch.ones(6), torch.tensor([True] * 3 + [False] * 3))

def sized(x):
    n = x.nonzero().shape[0]
    return torch.roll(torch.zeros(n, 6), 1, 0)
sized_args = (torch.ones(12),)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "recorded_model.py"
    path.write_text(MODEL)
    return str(path)


def test_only_what_the_failing_call_needs_is_kept(model: str) -> None:
    text = recorded(CallableSubject(model, "make"))
    lines = [line.strip() for line in text.splitlines()[3:]]
    assert [line.partition(" = ")[2] or line for line in lines] == [
        "torch.nn.functional.linear(x0, x1, x2)",
        "v0 * 2",
        "v1[x3]",
        "return torch.roll(v2, 1, 0)",
    ]
    catalogue.parse(text, "recorded")


def test_sizes_are_written_as_sizes_of_values(model: str) -> None:
    text = recorded(CallableSubject(model, "sized"))
    assert "torch.zeros(v0.shape[0], 6)" in text
    assert text.endswith("return torch.roll(v1, 1, 0)\n")
    catalogue.parse(text, "recorded")


def test_a_branch_of_the_users_own_code_is_no_call(model: str) -> None:
    assert recorded(CallableSubject(model, "branch")) == ""
