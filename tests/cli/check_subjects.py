"""User code for the tests of `ddefuzz check`."""

from __future__ import annotations

import ctypes
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


def counted(x: Tensor, n: Tensor) -> Tensor:
    k = n.item()
    torch._check(k >= 1, lambda: "at least one row")  # type: ignore[no-untyped-call]
    torch._check(k <= x.shape[0])  # type: ignore[no-untyped-call]
    return x.narrow(0, 0, k).mean(0)  # type: ignore[arg-type]


counted_args = (torch.ones(5, 3), torch.tensor(3))


class Roll(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(x, 1, 0)


Roll_args = (torch.ones(4),)
Roll_unbacked = {0: [0]}


class Layer(torch.nn.Module):
    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        if x.shape[1] > 3:
            x = x + 1
        kept = x[keep]
        if kept.shape[0] == 0:
            return x
        return x + torch.roll(kept, 1, 0).sum()


class Deep(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer()])

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, keep)
        return x


Deep_args = (torch.ones(4, 6), torch.tensor([True, False, True, True]))
Deep_unbacked = {"x": [1]}


class Odd:
    def __init__(self, value: Tensor) -> None:
        self.value = value


def odd_output(x: Tensor) -> Odd:
    return Odd(x + 1)


odd_output_args = (torch.ones(4),)
odd_output_unbacked = {"x": [0]}


def factory() -> tuple[Any, tuple[Tensor, ...]]:
    return fine, (torch.ones(2),)


def loop(boxes: Tensor) -> Tensor:
    order = boxes[:, 3].argsort(descending=True)
    order = order[boxes[order, 3] > 0]
    kept = [boxes[0]]
    while order.numel() > 0:
        kept.append(boxes[order[0]])
        rest = order[1:]
        order = rest[(boxes[rest] - boxes[order[0]]).abs().sum(1) > 1]
    return torch.stack(kept)


loop_args = (torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.1, 0.0, 2.0, 2.0], [5.0, 5.0, 7.0, 8.0]]),)


def lengthy(x: Tensor) -> Tensor:
    return x * len(range(x.shape[0])[1:])


lengthy_args = (torch.ones(5, 3),)
lengthy_unbacked = {"x": [0]}


def dies(x: Tensor) -> Tensor:
    ctypes.string_at(0)
    return x


dies_args = (torch.ones(3),)

CASES = [
    {"id": "one", "fn": fine, "args": fine_args},
    {"id": "two", "fn": branch, "args": lambda: branch_args},
]
