"""Wrong key functions. Each breaks one property, and `ddefuzz check-key` must name it."""

from __future__ import annotations

from collections.abc import Hashable

import torch

from ddefuzz.keys.key import Key, key


def forgets_strides(tensor: torch.Tensor) -> Key:
    """Equal for a tensor and its transpose of the same sizes."""
    return (type(tensor), tensor.dtype, tensor.device, tensor.requires_grad, str(tensor.layout), _sizes(tensor))


def asks_sizes(tensor: torch.Tensor) -> Key:
    """Compares sizes with 1, which is a guard if the size is symbolic."""
    kept: list[Hashable] = ["one" if size == 1 else "more" for size in _sizes(tensor)]
    return (*key(tensor), *kept)


def keeps_tensor(tensor: torch.Tensor) -> Key:
    """Keeps every tensor alive that was ever passed: a bound method holds its tensor."""
    return (key(tensor), tensor.size)


def returns_list(tensor: torch.Tensor) -> Hashable:
    """Returns a key that cannot be hashed."""
    return list(key(tensor))  # type: ignore[return-value]


def tells_offset(tensor: torch.Tensor) -> Hashable:
    """Distinguishes tensors that no kernel has to: by the offset in their storage."""
    return (*key(tensor), tensor.storage_offset() if tensor.layout is torch.strided and not tensor.is_nested else 0)


def hashes_text(tensor: torch.Tensor) -> Hashable:
    """Has the hash of a text in it, which each process makes anew."""
    return (*key(tensor), hash(str(tensor.dtype)))


def _sizes(tensor: torch.Tensor) -> tuple[Hashable, ...]:
    return (tensor.dim(),) if tensor.is_nested else tuple(tensor.shape)
