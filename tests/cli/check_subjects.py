"""User code for the tests of `ddefuzz check`."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor


def branch(x: Tensor, keep: Tensor) -> Tensor:
    kept = x[keep]
    if kept.shape[0] > 2:
        return kept + 1
    return kept


branch_args = (torch.ones(6, 2), torch.tensor([True, True, False, True, True, False]))


def fine(x: Tensor) -> Tensor:
    return x + 1


def fine_args() -> tuple[Tensor, ...]:
    return (torch.ones(3),)


class Roll(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(x, 1, 0)


Roll_args = (torch.ones(4),)
Roll_unbacked = {0: [0]}


def factory() -> tuple[Any, tuple[Tensor, ...]]:
    return fine, (torch.ones(2),)


def dies(x: Tensor) -> Tensor:
    os.kill(os.getpid(), 11)
    return x


dies_args = (torch.ones(3),)

CASES = [
    {"id": "one", "fn": fine, "args": fine_args},
    {"id": "two", "fn": branch, "args": lambda: branch_args},
]
