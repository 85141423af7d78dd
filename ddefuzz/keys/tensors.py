"""Tensors to try key functions on: how each is made, how they are drawn, and what is simpler."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from hypothesis import strategies as st
from msgspec.structs import replace

from ddefuzz.instrument import torch_api
from ddefuzz.keys.case import KINDS, Kind, Tensors, TensorSpec
from ddefuzz.program.recipes import DTYPES

SIZES: Final = (0, 1, 2, 3, 5, 16, 17, 32)
MOST_DIMS: Final = 5
MOST_ELEMENTS: Final = 4_096


class OwnTensor(torch.Tensor):
    """A subclass without anything of its own."""


def exists(spec: TensorSpec) -> bool:
    """Whether torch has such a tensor."""
    dtype = getattr(torch, spec.dtype)
    differentiable = dtype.is_floating_point or dtype.is_complex
    if spec.requires_grad and not (differentiable and spec.kind in {"tensor", "parameter", "subclass", "fake", "meta"}):
        return False
    if spec.bits and (spec.kind not in {"tensor", "parameter"} or dtype.is_complex != (spec.bits == "conj")):
        return False
    if spec.bits == "neg" and not dtype.is_floating_point:
        return False
    match spec.kind:
        case "mkldnn":
            return spec.dtype == "float32" and bool(spec.sizes) and 0 not in spec.sizes
        case "csr":
            return len(spec.sizes) == 2
        case "grad":
            return bool(dtype.is_floating_point)
        case "batched":
            return bool(spec.sizes) and spec.sizes[0] > 0
        case "nested":
            return bool(spec.sizes)
        case _:
            return math.prod(spec.sizes) <= MOST_ELEMENTS


def with_tensor(spec: TensorSpec, use: Callable[[torch.Tensor], Any]) -> Any:
    """What `use` gives for the tensor. Functorch's wrappers live only within a call."""
    dtype = getattr(torch, spec.dtype)
    if spec.kind == "meta":
        made = torch.empty_strided(spec.sizes, spec.strides, dtype=dtype, device="meta")
    else:
        made = torch.zeros(spec.elements, dtype=dtype).as_strided(spec.sizes, spec.strides, spec.offset)
    if spec.bits:
        made = made.conj() if spec.bits == "conj" else torch_api.bound(torch_api.NEGATED_VIEW)(made)
    if spec.requires_grad and spec.kind != "parameter":
        made.requires_grad_()
    match spec.kind:
        case "batched" | "grad":
            return _within(spec.kind, made, use)
        case "parameter":
            made = torch.nn.Parameter(made, requires_grad=spec.requires_grad)
        case "subclass":
            made = made.as_subclass(OwnTensor)
        case "fake":
            made = torch_api.bound(torch_api.FAKE_MODE)().from_tensor(made)
        case "zeros":
            made = torch_api.bound(torch_api.LAZY_ZEROS)(spec.sizes, dtype=made.dtype)
        case "nested":
            made = torch.nested.nested_tensor([made])
        case "sparse" | "csr" | "mkldnn":
            made = getattr(made, {"sparse": "to_sparse", "csr": "to_sparse_csr", "mkldnn": "to_mkldnn"}[spec.kind])()
    return use(made)


def _within(kind: Kind, made: torch.Tensor, use: Callable[[torch.Tensor], Any]) -> Any:
    results: list[Any] = []

    def inner(tensor: torch.Tensor) -> torch.Tensor:
        results.append(use(tensor))
        return tensor.sum() if kind == "grad" else tensor

    (torch.func.grad if kind == "grad" else torch.vmap)(inner)(made)
    return results[0]


@st.composite
def drawn(draw: st.DrawFn, kinds: tuple[Kind, ...] = KINDS) -> TensorSpec:
    """A tensor. It shrinks towards few dims, contiguous, float32."""
    sizes = tuple(draw(st.lists(st.sampled_from(SIZES), max_size=MOST_DIMS)))
    while math.prod(max(size, 1) for size in sizes) > MOST_ELEMENTS:
        sizes = sizes[:-1]
    base = TensorSpec(
        sizes,
        draw(strides_of(sizes)),
        draw(st.sampled_from((0, 0, 1, 4, 16))),
        draw(st.sampled_from(("float32", *sorted(set(DTYPES.values()) - {"float32"})))),
        draw(st.sampled_from(kinds)),
        draw(st.booleans()),
        draw(st.sampled_from(("", "", "conj", "neg"))),
    )
    # What does not exist is made to, so that no draw is thrown away.
    for changed in ({}, {"bits": ""}, {"bits": "", "requires_grad": False}, {"bits": "", "dtype": "float32"}):
        made = replace(base, **changed)
        if exists(made):
            return made
    return TensorSpec(sizes, base.strides, base.offset, kind=kinds[0])


@st.composite
def strides_of(draw: st.DrawFn, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of every layout: contiguous, permuted (channels-last among them), expanded, and with gaps."""
    order = draw(st.one_of(st.just(list(reversed(range(len(sizes))))), st.permutations(range(len(sizes)))))
    gaps = draw(st.one_of(st.just([1] * len(sizes)), st.lists(st.sampled_from((0, 1, 2)), min_size=5, max_size=5)))
    strides, extent = [0] * len(sizes), 1
    for dim in order:
        strides[dim] = extent * gaps[dim]
        extent = max(extent * gaps[dim] * max(sizes[dim], 1), extent)
    return tuple(strides)


def singles(kinds: tuple[Kind, ...] = KINDS) -> st.SearchStrategy[Tensors]:
    """One tensor."""
    return drawn(kinds).map(lambda one: (one,))


@st.composite
def unbacked(draw: st.DrawFn, kinds: tuple[Kind, ...] = KINDS) -> Tensors:
    """A tensor whose sizes are all to be unbacked, by an example: a FakeTensor, or one whose type is torch.Tensor."""
    del kinds
    sizes = tuple(draw(st.lists(st.sampled_from((2, 1, 3, 5)), min_size=1, max_size=4)))
    strides = tuple(math.prod(sizes[at + 1 :]) for at in range(len(sizes)))
    return (TensorSpec(sizes, strides, kind=draw(st.sampled_from(("fake", "meta")))),)


@st.composite
def pairs(draw: st.DrawFn, kinds: tuple[Kind, ...] = KINDS) -> Tensors:
    """Two tensors. Most pairs differ in one thing only, where a key function is most easily wrong."""
    first, other = draw(drawn(kinds)), draw(drawn(kinds))
    part = draw(st.sampled_from(("all", *TensorSpec.__struct_fields__, "size", "size")))
    if part == "all":
        return first, other
    if part == "size" and first.sizes:
        at = draw(st.integers(0, len(first.sizes) - 1))
        sizes = (*first.sizes[:at], draw(st.sampled_from(SIZES)), *first.sizes[at + 1 :])
        changed = {"sizes": sizes, "strides": draw(strides_of(sizes))}
    elif part in ("size", "sizes", "strides"):
        changed = {"strides": draw(strides_of(first.sizes))}
    else:
        changed = {part: getattr(other, part)}
    second = replace(first, **changed)
    small = math.prod(max(size, 1) for size in second.sizes) <= MOST_ELEMENTS
    return (first, second) if small and exists(second) else (first, other)


def simpler(tensors: Tensors) -> Iterator[Tensors]:
    """Tensors that are simpler in one thing: in all of them, or in one."""
    yield from _simpler(tensors)
    for at in range(len(tensors) if len(tensors) > 1 else 0):
        for (simpler_spec,) in _simpler(tensors[at : at + 1]):
            yield (*tensors[:at], simpler_spec, *tensors[at + 1 :])


def _simpler(tensors: Tensors) -> Iterator[Tensors]:
    for change in _changes(max(len(one.sizes) for one in tensors)):
        made = tuple(change(one) for one in tensors)
        is_kept = all(new.is_ordinary or not old.is_ordinary for new, old in zip(made, tensors, strict=True))
        if made != tensors and is_kept and all(map(exists, made)):
            yield made


def _changes(rank: int) -> Iterator[Callable[[TensorSpec], TensorSpec]]:
    plain: tuple[tuple[str, Any], ...] = (
        ("kind", "tensor"),
        ("bits", ""),
        ("requires_grad", False),
        ("dtype", "float32"),
        ("offset", 0),
    )
    for name, value in plain:
        yield lambda one, name=name, value=value: replace(one, **{name: value})  # type: ignore[misc]
    for at in range(rank):
        yield (
            lambda one, at=at: replace(  # type: ignore[misc]
                one, sizes=one.sizes[:at] + one.sizes[at + 1 :], strides=one.strides[:at] + one.strides[at + 1 :]
            )
        )
    for at in range(rank):
        yield lambda one, at=at: _with(one, "sizes", at, 2)  # type: ignore[misc]
        for most in (0, 1, 2):
            yield lambda one, at=at, most=most: _with(one, "strides", at, most)  # type: ignore[misc]


def _with(spec: TensorSpec, name: str, at: int, number: int) -> TensorSpec:
    """With another size or stride. The simplest size is 2, because 0 and 1 are special."""
    numbers: tuple[int, ...] = getattr(spec, name)
    if at >= len(numbers) or (name == "strides" and numbers[at] < number):
        return spec
    return replace(spec, **{name: (*numbers[:at], number, *numbers[at + 1 :])})
