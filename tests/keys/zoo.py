"""Key functions that are right, and wrong ones, each with one fault that is often made."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, TypeAlias

import torch

from ddefuzz.instrument import torch_api

Part: TypeAlias = Callable[[Any], Hashable]


def _number(number: Any) -> Hashable:
    return number if type(number) is int else (id(number.node.shape_env), str(number.node.expr))


def _sizes(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(torch_api.bound(torch_api.NESTED_SIZES)(tensor).tolist()[0] if tensor.is_nested else tensor.shape)


def _strides(tensor: torch.Tensor) -> tuple[Any, ...]:
    return () if tensor.is_nested or tensor.layout != torch.strided else tuple(tensor.stride())


def _numbers(numbers: Sequence[Any]) -> Hashable:
    return tuple(map(_number, numbers))


def _aligned(tensor: torch.Tensor) -> Hashable:
    try:
        return tensor.data_ptr() % 16 == 0
    except RuntimeError:
        return None


def _fake_offset(tensor: torch.Tensor) -> Hashable:
    offset = tensor.storage_offset() if type(tensor).__name__ == "FakeTensor" else 0
    return offset * tensor.itemsize % 16 == 0 if type(offset) is int else str(offset)


PARTS: Final[dict[str, Part | None]] = {
    "type": type,
    "sizes": lambda tensor: _numbers(_sizes(tensor)),
    "strides": lambda tensor: _numbers(_strides(tensor)),
    "dtype": lambda tensor: tensor.dtype,
    "device": lambda tensor: tensor.device,
    "layout": lambda tensor: tensor.layout,
    "requires_grad": lambda tensor: tensor.requires_grad,
    "conj": lambda tensor: tensor.is_conj(),
    "neg": lambda tensor: tensor.is_neg(),
    "dispatch": lambda tensor: (
        str(torch_api.bound(torch_api.DISPATCH_KEYS)(tensor)) if type(tensor) is torch.Tensor else None
    ),
    "aligned": _aligned,
    "offset": _fake_offset,
}


def made(**changed: Part | None) -> Part:
    """A right key with other parts: with one that is changed, added, or left out."""
    parts = {name: part for name, part in (PARTS | changed).items() if part is not None}
    return lambda tensor: tuple(part(tensor) for part in parts.values())


def sizes(change: Callable[[tuple[int, ...]], Hashable]) -> Part:
    """A right key of other sizes, where these are ints; the rank is kept."""

    def part(tensor: torch.Tensor) -> Hashable:
        found = _sizes(tensor)
        return (len(found), change(found)) if all(type(one) is int for one in found) else _numbers(found)

    return made(sizes=part)


def each(change: Callable[[int], Hashable]) -> Part:
    """A right key of other sizes, each changed alone."""
    return sizes(lambda found: tuple(map(change, found)))


def symbols(change: Callable[[Any], Hashable]) -> Part:
    """A right key with something else for symbolic sizes and strides."""

    def changed(numbers: Sequence[Any]) -> Hashable:
        return tuple(one if type(one) is int else change(one) for one in numbers)

    return made(sizes=lambda tensor: changed(_sizes(tensor)), strides=lambda tensor: changed(_strides(tensor)))


def _renamed(tensor: torch.Tensor) -> Hashable:
    names: dict[str, str] = {}
    text = str(_numbers(_sizes(tensor))).replace("_", " ")
    return re.sub(r"\b[us]\d+", lambda found: names.setdefault(found[0], f"v{len(names)}"), text)


def _hint(number: Any) -> Hashable:
    return number.node.hint if number.node.has_hint() else _number(number)


def _usual_strides(tensor: torch.Tensor) -> Hashable:
    strides = _strides(tensor)
    pairs = zip(strides, _sizes(tensor), strict=False)
    return tuple(None if type(size) is int and size < 2 else _number(stride) for stride, size in pairs)


def _format(tensor: torch.Tensor) -> Hashable:
    return tensor.is_contiguous() if _strides(tensor) and all(type(one) is int for one in _sizes(tensor)) else None


RIGHT: Final[Mapping[str, Part]] = {
    "all parts": made(),
    "with the alignment of each power of two": made(strides=_usual_strides),
    "sizes and strides in one text": made(sizes=lambda tensor: str((_numbers(_sizes(tensor)), _strides(tensor)))),
    "with the rank and numel": made(
        numel=lambda tensor: math.prod(_sizes(tensor)) if all(type(one) is int for one in _sizes(tensor)) else None
    ),
    "with the rest of an address": made(
        aligned=lambda tensor: tensor.data_ptr() % 16 if _aligned(tensor) is not None else None
    ),
    "dtype and device as texts": made(dtype=lambda tensor: str(tensor.dtype), device=lambda tensor: str(tensor.device)),
}

SPLITTING: Final[Mapping[str, Part]] = {
    "has the storage offset": made(
        at=lambda tensor: tensor.storage_offset() if _strides(tensor) and type(tensor) is torch.Tensor else 0
    ),
    "has the alignment to 64 bytes": made(
        at=lambda tensor: tensor.data_ptr() % 64 if type(tensor) is torch.Tensor and tensor.device.type == "cpu" else 0
    ),
    "has the version": made(at=lambda tensor: getattr(tensor, "_version", 0)),
    "has the size of the storage": made(
        at=lambda tensor: tensor.untyped_storage().nbytes() if type(tensor) is torch.Tensor else 0
    ),
}
"""Wrong because they distinguish too much."""

WRONG: Final[Mapping[str, tuple[str, Part]]] = {
    "dtype by item size": ("dtype", made(dtype=lambda tensor: tensor.dtype.itemsize)),
    "dtype by kind": ("dtype", made(dtype=lambda tensor: tensor.dtype.is_floating_point)),
    "0 and 1 are one": ("sizes", each(lambda size: max(size, 1))),
    "1 and 2 are one": ("sizes", each(lambda size: 2 if size == 1 else size)),
    "at most 64": ("sizes", each(lambda size: min(size, 64))),
    "at most 4096": ("sizes", each(lambda size: min(size, 4096))),
    "32 bits": ("sizes", each(lambda size: size & 0xFFFF_FFFF)),
    "float32": ("sizes", each(lambda size: struct.pack("f", size))),
    "next power of two": ("sizes", each(lambda size: (size - 1).bit_length())),
    "multiples of 8": ("sizes", each(lambda size: (size + 7) // 8)),
    "modulo 1000": ("sizes", each(lambda size: size % 1000)),
    "numel": ("sizes", sizes(math.prod)),
    "sum": ("sizes", sizes(sum)),
    "sorted": ("sizes", sizes(lambda found: tuple(sorted(found)))),
    "set": ("sizes", sizes(frozenset)),
    "digits": ("sizes", sizes(lambda found: "".join(map(str, found)))),
    "four dims": ("sizes", sizes(lambda found: found[:4])),
    "largest": ("sizes", sizes(lambda found: max(found, default=0))),
    "no strides": ("strides", made(strides=None)),
    "is contiguous": ("strides", made(strides=_format)),
    "strides without order": ("strides", made(strides=lambda tensor: tuple(sorted(_strides(tensor), key=str)))),
    "is broadcast": ("strides", made(strides=lambda tensor: tuple(str(one) == "0" for one in _strides(tensor)))),
    "no requires_grad": ("requires_grad", made(requires_grad=None)),
    "no conj": ("bits", made(conj=None, dispatch=None)),
    "no neg": ("bits", made(neg=None, dispatch=None)),
    "no alignment": ("offset", made(aligned=None)),
    "alignment to 4": ("offset", made(aligned=lambda tensor: _aligned(tensor) is not None)),
}
"""Wrong because they confuse tensors of one kind; what each confuses."""

OTHER: Final[Mapping[str, tuple[str, Part]]] = {
    "by hint": ("symbols", symbols(_hint)),
    "modulo renaming": ("symbols", made(sizes=_renamed, strides=None)),
    "no ShapeEnv": ("symbols", symbols(lambda number: str(number.node.expr))),
    "all symbols are one": ("symbols", symbols(lambda _number: "?")),
    "backed or not": ("symbols", symbols(lambda number: number.node.has_hint())),
    "by the identity of its node": ("symbols", symbols(lambda number: (_number(number), id(number)))),
    "type of device": ("device", made(device=lambda tensor: tensor.device.type)),
    "name of type": ("kind", made(type=lambda tensor: type(tensor).__name__)),
    "is a subclass": ("kind", made(type=lambda tensor: type(tensor) in (torch.Tensor, torch.nn.Parameter))),
    "is sparse": (
        "layout",
        made(
            layout=lambda tensor: tensor.layout == torch.strided,
            dispatch=None,
            aligned=lambda tensor: tensor.layout != torch.strided or _aligned(tensor),
        ),
    ),
}
"""Wrong about what rows of code show."""


def _overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    def span(tensor: torch.Tensor) -> tuple[int, int]:
        start = tensor.data_ptr()
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        return start, start + (last + 1) * tensor.itemsize if tensor.numel() else start

    (start, end), (other_start, other_end) = span(first), span(second)
    return start < other_end and other_start < end


def _aliases(arguments: Sequence[Any]) -> Hashable:
    tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
    if any(type(one) is not torch.Tensor for one in tensors):
        return None
    return tuple(_overlap(first, second) for first, second in combinations(tensors, 2))


_KEY: Final = made()


def _one(argument: Any) -> Hashable:
    return _KEY(argument) if isinstance(argument, torch.Tensor) else (type(argument), argument)


def right_of_several(*arguments: Any) -> Hashable:
    """A right key of several arguments."""
    return *map(_one, arguments), _aliases(arguments)


WRONG_OF_SEVERAL: Final[Mapping[str, tuple[str, Callable[..., Hashable]]]] = {
    "no aliases": ("aliasing", lambda *arguments: tuple(map(_one, arguments))),
    "number of aliases": (
        "aliasing",
        lambda *arguments: (*map(_one, arguments), str(_aliases(arguments)).count("True")),
    ),
    "aliases by address": (
        "aliasing",
        lambda *arguments: (
            *map(_one, arguments),
            *(one.data_ptr() == other.data_ptr() for one, other in combinations(arguments, 2)),
        ),
    ),
    "a shared storage counts as overlap": (
        "aliasing",
        lambda *arguments: (
            *map(_one, arguments),
            *(one.untyped_storage().data_ptr() for one in arguments if isinstance(one, torch.Tensor)),
        ),
    ),
    "any requires_grad": (
        "requires_grad",
        lambda *arguments: (
            *(made(requires_grad=None)(one) for one in arguments),
            any(one.requires_grad for one in arguments),
        ),
    ),
    "all aligned": (
        "offset",
        lambda *arguments: (
            *(made(aligned=None)(one) for one in arguments),
            all(one.data_ptr() % 16 == 0 for one in arguments),
        ),
    ),
    "text of a value": (
        "values",
        lambda *arguments: tuple(_KEY(one) if isinstance(one, torch.Tensor) else str(one) for one in arguments),
    ),
    "tuple like list": (
        "values",
        lambda *arguments: right_of_several(*(tuple(one) if isinstance(one, list) else one for one in arguments)),
    ),
    "without None at the end": (
        "number",
        lambda *arguments: right_of_several(*arguments[: len(arguments) - (arguments[-1] is None)]),
    ),
    "a set of keys": ("order", lambda *arguments: (frozenset(map(_one, arguments)), len(arguments))),
    "first two arguments": ("number", lambda *arguments: right_of_several(*arguments[:2])),
    "value without type": (
        "values",
        lambda *arguments: tuple(_KEY(one) if isinstance(one, torch.Tensor) else one for one in arguments),
    ),
    "type without value": (
        "values",
        lambda *arguments: tuple(_KEY(one) if isinstance(one, torch.Tensor) else type(one) for one in arguments),
    ),
    "sizes run together": (
        "sizes",
        lambda *arguments: (len(arguments), tuple(size for one in arguments for size in one.shape)),
    ),
}
