"""Compare two results of one program: structure, dtypes, shapes, values, strides and aliasing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ddefuzz.execute.calls import EXPANDED, Difference

TOLERANCES: Mapping[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
    torch.float32: (1e-4, 1e-5),
    torch.complex64: (1e-4, 1e-5),
    torch.float16: (1e-2, 1e-3),
    torch.bfloat16: (5e-2, 1e-2),
}
"""Relative and absolute tolerance by dtype; other dtypes must be equal. They are wider than those of
`torch.testing.assert_close`, because a decomposition may sum in another order."""


def differences(expected: Any, found: Any, where: str = "result") -> Iterator[Difference]:
    """Everything in which `found` differs from `expected`, values of one container in their order."""
    match expected, found:
        case torch.Tensor(), torch.Tensor():
            yield from _of_tensors(expected, found, where)
        case (list() | tuple(), list() | tuple()):
            if len(expected) != len(found):
                yield Difference("structure", where, f"{len(found)} items, eager has {len(expected)}")
                return
            for place, (one, other) in enumerate(zip(expected, found, strict=True)):
                yield from differences(one, other, f"{where}[{place}]")
        case dict(), dict():
            if list(expected) != list(found):
                yield Difference("structure", where, f"keys {list(found)}, eager has {list(expected)}")
                return
            for key, value in expected.items():
                yield from differences(value, found[key], f"{where}[{key!r}]")
        case (bool() | int() | float() | complex(), bool() | int() | float() | complex()):
            if not _equal_numbers(expected, found):
                yield Difference("number", where, f"{found!r}, eager has {expected!r}")
        case _ if type(expected) is not type(found):
            yield Difference("structure", where, f"{type(found).__name__}, eager has {type(expected).__name__}")
        case _ if isinstance(expected, str | torch.dtype | torch.device | torch.memory_format | torch.layout):
            if expected != found:
                yield Difference("structure", where, f"{found!r}, eager has {expected!r}")
        case _:
            return


def _of_tensors(expected: torch.Tensor, found: torch.Tensor, where: str) -> Iterator[Difference]:
    if expected.dtype != found.dtype:
        yield Difference("dtype", where, f"{found.dtype}, eager has {expected.dtype}")
        return
    if expected.shape != found.shape:
        yield Difference("shape", where, f"{tuple(found.shape)}, eager has {tuple(expected.shape)}")
        return
    if expected.layout != found.layout:
        yield Difference("structure", where, f"{found.layout}, eager has {expected.layout}")
        return
    if not lacks_values([expected, found]) and not close(expected, found):
        yield Difference("values", where, _how_much(expected, found))
    if expected.layout == torch.strided and _strides(expected) != _strides(found):
        copied = EXPANDED if 0 in _strides(expected) and 0 not in _strides(found) else ""
        yield Difference("strides", where, f"{found.stride()}, eager has {expected.stride()}{copied}")


def close(expected: torch.Tensor, found: torch.Tensor) -> bool:
    """Whether two tensors of one dtype and shape have equal values, within the tolerance of the dtype."""
    if expected.layout != torch.strided:
        expected, found = expected.to_dense(), found.to_dense()
    expected, found = expected.detach(), found.detach()
    relative, absolute = TOLERANCES.get(expected.dtype, (0.0, 0.0))
    return torch.allclose(expected, found, rtol=relative, atol=absolute, equal_nan=True)


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides that decide where elements are: none of an empty tensor, and none of dims of size 1."""
    if tensor.numel() == 0:
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)


def _how_much(expected: torch.Tensor, found: torch.Tensor) -> str:
    unequal = ~torch.isclose(expected.detach(), found.detach(), rtol=0, atol=0, equal_nan=True)
    first = tuple(int(place) for place in unequal.nonzero()[0]) if unequal.any() else ()
    at = f" at {first}" if first else ""
    return (
        f"{int(unequal.sum())} of {unequal.numel()} elements; first{at}: {found[first].item()!r}, "
        f"eager has {expected[first].item()!r}"
    )


def _equal_numbers(expected: Any, found: Any) -> bool:
    if isinstance(expected, float | complex) or isinstance(found, float | complex):
        one, other = (torch.tensor(value, dtype=torch.complex128) for value in (expected, found))
        return type(expected) is type(found) and close(one, other)
    return type(expected) is type(found) and bool(expected == found)


def aliases(result: Any, inputs: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Which tensors of a result share memory with each other or with inputs, by name."""
    named = [(f"input {name}", value) for name, value in inputs.items()] + list(tensors_in(result, "result"))
    memory = [
        (name, where)
        for name, value in named
        if isinstance(value, torch.Tensor) and value.numel() and (where := _address(value))
    ]
    return frozenset(
        (one, other)
        for place, (one, address) in enumerate(memory)
        for other, same in memory[place + 1 :]
        if address == same and other.startswith("result")
    )


def _address(tensor: torch.Tensor) -> int:
    """Where the tensor's memory is. 0 for one without memory of its own: sparse, of a subclass, of torch.func, fake."""
    try:
        return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0
    except RuntimeError:
        return 0


def lacks_values(value: Any) -> bool:
    """Whether a tensor in a result has no values: a constant may be a fake one that tracing made, an argument may be on
    the device `meta`.
    """
    return any(hasattr(tensor, "fake_mode") or tensor.is_meta for _, tensor in tensors_in(value, ""))


def tensors_in(value: Any, where: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in nested containers, each with its name."""
    match value:
        case torch.Tensor():
            yield where, value
        case list() | tuple():
            for place, item in enumerate(value):
                yield from tensors_in(item, f"{where}[{place}]")
        case dict():
            for key, item in value.items():
                yield from tensors_in(item, f"{where}[{key!r}]")
        case _:
            return
