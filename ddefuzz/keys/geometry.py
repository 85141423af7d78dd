"""The part of a key that is made of sizes and strides."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from ddefuzz.keys.options import ALIGNMENT, Options

Geometry: TypeAlias = Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
"""Makes the part from the sizes and the strides."""

REMEMBERED: Final = 65_536
"""How many pairs of sizes and strides are remembered with their part."""


def geometry(options: Options) -> Geometry:
    """The function that makes the part. It works for ints only; see `symbolic` for others."""

    @lru_cache(maxsize=REMEMBERED)
    def part(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Any, ...]:
        parts: list[Any] = [tuple(sizes) if options.sizes == "all" else tuple(min(size, 2) for size in sizes)]
        if options.divisible:
            parts.append(tuple(size % ALIGNMENT == 0 for size in sizes))
        if options.strides != "none":
            parts.append(tuple(strides) if options.strides == "all" else pattern(sizes, strides))
        return tuple(parts)

    return part


def pattern(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Any, ...]:
    """For each dim None if its size is 0 or 1. Else its stride if that is 0 or 1; else its place in the order of the
    strides from the smallest, negative if it is not the extent of the dims before it. Empty if the layout has no
    strides.
    """
    if 0 in sizes or not strides:
        return (None,) * len(strides)
    places: list[Any] = [None] * len(sizes)
    extent = 1
    moving = [dim for dim, size in enumerate(sizes) if size > 1]
    for place, dim in enumerate(sorted(moving, key=lambda dim: (strides[dim], dim)), 2):
        stride = strides[dim]
        if stride in (0, 1):
            places[dim] = stride
        else:
            places[dim] = place if stride == extent else -place
        extent = max(stride * sizes[dim], extent)
    return tuple(places)


def symbolic(options: Options, sizes: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, ...]:
    """The part where some size or stride is an expression, or a row of sizes of a nested tensor. Expressions are
    compared as they are: what they are at run time is not known.
    """
    parts: list[Any] = [tuple(map(_capped, sizes)) if options.sizes == "01" else sizes]
    if options.divisible:
        parts.append(tuple(map(_divisible, sizes)))
    if options.strides != "none":
        parts.append(strides)
    return tuple(parts)


def _capped(size: Any) -> Any:
    """0, 1, or 2 for more. An expression as it is; a row of a nested tensor's sizes each."""
    if type(size) is tuple and all(type(one) is int for one in size):
        return tuple(map(_capped, size))
    return min(size, 2) if type(size) is int else size


def _divisible(size: Any) -> Any:
    if type(size) is tuple and all(type(one) is int for one in size):
        return tuple(map(_divisible, size))
    return size % ALIGNMENT == 0 if type(size) is int else None
