"""Inputs that stand for given tensors: same dtype, shape and layout, values by the nearest recipe."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import torch

from ddefuzz.program.model import Dim, Input, Recipe
from ddefuzz.program.recipes import ANNOTATIONS, FLOATS, INTEGERS, fault_of

MAX_EXACT: Final = 64
"""Values that are spelled out; of more, whole numbers are random in the same range."""


class DroppedError(Exception):
    """Why a sample cannot become a program."""


def inputs_like(tensors: list[torch.Tensor]) -> Iterator[tuple[Input, ...]]:
    """Candidates for inputs `x0`, `x1` … in place of tensors, the plainest first. DroppedError if there is none."""
    seen = set()
    for floats in (_normal, _uniform, _definite, _exact):
        made = tuple(_input(f"x{number}", tensor, floats) for number, tensor in enumerate(tensors))
        if made not in seen:
            seen.add(made)
            yield made


def _input(name: str, tensor: torch.Tensor, floats: Callable[[torch.Tensor], Recipe]) -> Input:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in ANNOTATIONS:
        raise DroppedError(f"an input of {dtype}")
    shape = tuple(Dim(size) for size in tensor.shape)
    recipe = floats(tensor) if dtype in FLOATS else _whole(tensor, dtype)
    item = Input(name, dtype, shape, recipe, _layout(tensor))
    if (fault := fault_of(item)) is not None:
        raise DroppedError(fault[0])
    return item


def _whole(tensor: torch.Tensor, dtype: str) -> Recipe:
    if dtype not in INTEGERS and dtype != "bool":
        return Recipe("normal")
    if tensor.numel() <= MAX_EXACT:
        return Recipe("values", tuple(tensor.flatten().tolist()))
    if dtype == "bool":
        return Recipe("trues", (int(tensor.sum()),))
    low, high = int(tensor.min()), int(tensor.max())
    return Recipe("index", (high + 1,)) if low >= 0 else Recipe("normal")


def _normal(tensor: torch.Tensor) -> Recipe:
    return Recipe("normal") if tensor.dim() else _exact(tensor)


def _uniform(tensor: torch.Tensor) -> Recipe:
    return Recipe("uniform") if tensor.dim() else _exact(tensor)


def _definite(tensor: torch.Tensor) -> Recipe:
    is_square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] > 0
    return Recipe("spd", (int(tensor.shape[-1]),)) if is_square else _uniform(tensor)


def _exact(tensor: torch.Tensor) -> Recipe:
    values = [round(float(value), 4) for value in tensor.flatten().tolist()] if tensor.numel() <= MAX_EXACT else []
    finite = len(values) == tensor.numel() and all(map(math.isfinite, values))
    return Recipe("values", tuple(values)) if finite else Recipe("uniform")


def _layout(tensor: torch.Tensor) -> str:
    """The layout of `recipes.LAYOUTS` that the tensor has, or contiguous."""
    strides = tensor.stride()
    if tensor.is_contiguous() or not tensor.numel():
        return "contiguous"
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return "channels_last"
    if tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d):
        return "channels_last_3d"
    if tensor.dim() >= 2 and tensor.permute(*reversed(range(tensor.dim()))).is_contiguous():
        return "transposed"
    if strides[0] == 0:
        return "expanded"
    return "sliced" if strides[-1] == 2 else "contiguous"
