"""The modules with buffers whose compilations are counted, each with the argument of a call at a size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn


class Made(NamedTuple):
    """How a module is made, and its input for a call of a size."""

    module: Callable[[], nn.Module]
    argument: Callable[[int], Tensor]


class Cache(nn.Module):
    """A cache of keys, as attention has one: each call writes its rows into the front of a buffer."""

    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(64, 4))

    def forward(self, x: Tensor) -> Tensor:
        """The rows that are kept of this call."""
        self.kept[: x.shape[0]] = x
        return self.kept[: x.shape[0]] * 2


class Concatenated(nn.Module):
    """A cache that grows: each call appends its rows to a buffer of another size."""

    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        """All rows so far."""
        self.kept = torch.cat((self.kept, x))
        return self.kept * 2


class Running(nn.Module):
    """A running sum in a buffer that is changed in place."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        """The input less the mean of all rows so far."""
        self.total.add_(x.sum(0))
        return x - self.total


MODULES: Final[dict[str, Made]] = {
    "nn.BatchNorm1d": Made(lambda: nn.BatchNorm1d(4), lambda size: torch.randn(size, 4)),
    "nn.BatchNorm2d": Made(lambda: nn.BatchNorm2d(4), lambda size: torch.randn(size, 4, 3, 3)),
    "nn.BatchNorm2d (eval)": Made(lambda: nn.BatchNorm2d(4).eval(), lambda size: torch.randn(size, 4, 3, 3)),
    "nn.InstanceNorm1d": Made(
        lambda: nn.InstanceNorm1d(4, track_running_stats=True), lambda size: torch.randn(3, 4, size)
    ),
    "cache": Made(Cache, lambda size: torch.randn(size, 4)),
    "concatenated cache": Made(Concatenated, lambda size: torch.randn(size, 4)),
    "running sum": Made(Running, lambda size: torch.randn(size, 4)),
}
"""The modules by name. Their buffers are made with the module and stay over the calls."""
