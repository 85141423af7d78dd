"""Calls that together reach more than 50 sites whose guards take their fallback: `x` is (6, 4), its first dim
unbacked.

The module has the form of user code for `ddefuzz check`: a list CASES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

MASK = torch.tensor([True, False, True, True, True, False])


def _x() -> tuple[torch.Tensor, ...]:
    return (torch.arange(24, dtype=torch.float32).reshape(6, 4),)


def _mask_and_x() -> tuple[torch.Tensor, ...]:
    return MASK.clone(), *_x()


def _two() -> tuple[torch.Tensor, ...]:
    return torch.tensor([2, 3]), *_x()


UNBACKED_INPUT: dict[str, Callable[..., Any]] = {
    "view_merge": lambda x: x.view(-1),
    "reshape_flat": lambda x: x.t().reshape(-1),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(),
    "slice_back": lambda x: x[-2:],
    "cat": lambda x: torch.cat([x, x]),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "cumsum": lambda x: x.cumsum(0),
    "group_norm": lambda x: functional.group_norm(x, 2),
    "channels_last": lambda x: x.view(-1, 1, 2, 2).contiguous(memory_format=torch.channels_last),
    "eye": lambda x: torch.eye(x.shape[0]),
    "gather": lambda x: x.gather(1, torch.zeros(x.shape[0], 1, dtype=torch.int64)),
    "scatter": lambda x: torch.zeros_like(x).scatter(1, torch.zeros(x.shape[0], 1, dtype=torch.int64), 1.0),
    "conv1d": lambda x: functional.conv1d(x.unsqueeze(1), torch.ones(1, 1, 2)),
    "interpolate": lambda x: functional.interpolate(x.unsqueeze(1), scale_factor=2.0),
    "outer": lambda x: torch.outer(x[:, 0], x[:, 1]),
    "select_scatter": lambda x: x.select_scatter(torch.ones_like(x[:, 0]), 1, 0),
}

OTHER: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "kept_add": (lambda mask, x: x[mask] + 1, _mask_and_x),
    "slice_items": (lambda n, x: x[n[0].item() : n[1].item()], _two),
    "narrow_item": (lambda n, x: x.narrow(0, n[0].item(), 1), _two),
    "view_items": (lambda n, x: x[:, 0].view(n[0].item(), n[1].item()), _two),
    "expand_item": (lambda n, x: x[:1].expand(n[0].item(), 4), _two),
    "select_item": (lambda n, x: x.select(0, n[0].item()), _two),
}

CASES: list[dict[str, Any]] = [
    *({"id": name, "fn": fn, "args": _x, "unbacked": {0: [0]}} for name, fn in UNBACKED_INPUT.items()),
    *({"id": name, "fn": fn, "args": args, "unbacked": None} for name, (fn, args) in OTHER.items()),
]
