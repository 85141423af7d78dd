"""A small dispatch cache: from the arguments of a call to what was compiled for arguments of their keys.

The last calls are compared first, by the guards that dynamo has in C++. These tell apart at least what a key tells
apart, except the alignment. Only if none of them fits are the keys made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

import torch

from ddefuzz.instrument import torch_api
from ddefuzz.keys.case import ALIGNMENT, Options
from ddefuzz.keys.key import DEFAULT, Key, paths

V = TypeVar("V")

RECENT: Final = 4  # how many of the last calls are compared before keys are made


class _Recent(NamedTuple, Generic[V]):
    """What the arguments of a call were, without the arguments."""

    number: int
    check: Callable[..., bool]
    aligned: tuple[bool, ...] | None
    value: V


class Dispatch(Generic[V]):
    """What `compile` makes for the arguments of a call, made once for each key.

    A class, because it has a state that its calls change.
    """

    def __init__(self, make: Callable[..., V], options: Options = DEFAULT) -> None:
        self._make = make
        self._options = options
        self._paths = paths(options)
        self.table: dict[tuple[Key, ...], V] = {}
        self.recent: list[_Recent[V]] = []

    def __call__(self, *tensors: torch.Tensor) -> V:
        """The value for these arguments."""
        for one in self.recent:
            if len(tensors) == one.number and one.check(*tensors) and one.aligned in (None, _alignments(tensors)):
                return one.value
        key = tuple(map(self._paths.key, tensors))
        if key not in self.table:
            self.table[key] = self._make(*tensors)
        value = self.table[key]
        if tensors and all(self._paths.fast(tensor) is not None for tensor in tensors):
            aligned = _alignments(tensors) if self._options.alignment else None
            self.recent = [_Recent(len(tensors), _guards(tensors), aligned, value), *self.recent[: RECENT - 1]]
        return value


def _alignments(tensors: tuple[torch.Tensor, ...]) -> tuple[bool, ...]:
    return tuple([tensor.data_ptr() % ALIGNMENT == 0 for tensor in tensors])


def _guards(tensors: tuple[torch.Tensor, ...]) -> Callable[..., bool]:
    made: Any = torch_api.bound(torch_api.TENSOR_GUARDS)(
        *tensors,
        dynamic_dims_sizes=[list(tensor.shape) for tensor in tensors],
        dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors],
    )
    check: Callable[..., bool] = made.check
    return check
