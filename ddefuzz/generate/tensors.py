"""Tensors for the slots of an op: an existing one, one converted from it, or a new one made by a step or an input."""

from __future__ import annotations

import math
from typing import Final

import torch

from ddefuzz.generate.choices import Choices
from ddefuzz.generate.extents import (
    NothingFitsError,
    broadcasts,
    draw_size,
    elements,
    extents,
    fill,
    literal,
    same_shape,
    shape,
)
from ddefuzz.generate.lockstep import Handle, Lockstep
from ddefuzz.ops import conversions
from ddefuzz.ops.spec import Data, Kind, Leaf, Tensor
from ddefuzz.program.model import Dim, Name, Recipe
from ddefuzz.program.recipes import LAYOUTS

CONVERSIONS: Final = 6
NEWEST: Final = 3
DTYPE_OF_KIND: Final[dict[Kind, str]] = {
    "float": "float32",
    "number": "float32",
    "any": "float32",
    "int": "int64",
    "bool": "bool",
    "complex": "complex64",
}


def kind_of(tensor: torch.Tensor) -> Kind:
    """The family of a tensor's dtype."""
    if tensor.dtype.is_floating_point:
        return "float"
    if tensor.dtype.is_complex:
        return "complex"
    return "bool" if tensor.dtype == torch.bool else "int"


def is_of_kind(tensor: torch.Tensor, kind: Kind) -> bool:
    """Whether a slot of `kind` accepts the tensor."""
    found = kind_of(tensor)
    return kind in {"any", found} or (kind == "number" and found in {"float", "int"})


def draw_tensor(lockstep: Lockstep, choices: Choices, slot: Tensor) -> Handle:
    """A tensor of a rank and kind, preferably one with a data-dependent shape."""
    small = [tensor for tensor in lockstep.tensors if elements(tensor) <= slot.max_numel]
    if not small or choices.one_in(24):
        return draw_unbacked_input(lockstep, choices, slot)
    fitting = [
        tensor
        for tensor in small
        if slot.min_rank <= tensor.left.dim() <= slot.max_rank and is_of_kind(tensor.left, slot.kind)
    ]
    if any(tensor.varies for tensor in fitting) or (fitting and choices.one_in(8)):
        return _preferred(choices, fitting)
    return _converted(lockstep, choices, _preferred(choices, small), slot)


def _preferred(choices: Choices, tensors: list[Handle]) -> Handle:
    """One of `tensors`: usually one with a data-dependent shape, and a new one, so that steps build on each other."""
    varying = [tensor for tensor in tensors if tensor.varies]
    pool = varying if varying and not choices.one_in(16) else tensors
    return choices.pick(pool if choices.one_in(4) else pool[-NEWEST:])


def _converted(lockstep: Lockstep, choices: Choices, tensor: Handle, slot: Tensor) -> Handle:
    """`tensor` converted to the slot's kind and rank by further steps."""
    for _ in range(CONVERSIONS):
        options = _conversions(tensor.left, slot)
        if not options:
            return tensor
        tensor = add_template(lockstep, choices.pick(options), x=tensor)
    raise NothingFitsError


def _conversions(tensor: torch.Tensor, slot: Tensor) -> tuple[str, ...]:
    """The conversions that bring a tensor one step nearer to a slot. Empty if it fits."""
    if not is_of_kind(tensor, slot.kind):
        return conversions.FROM_COMPLEX if tensor.dtype.is_complex else conversions.TO_KIND[slot.kind]
    if tensor.dim() < slot.min_rank:
        return conversions.RAISE_RANK
    if tensor.dim() > slot.max_rank:
        return conversions.LOWER_RANK if tensor.dim() > 1 else conversions.TO_SCALAR
    return ()


def add_template(lockstep: Lockstep, text: str, **names: Handle) -> Handle:
    """The tensor that a template makes, added as a step."""
    expr = fill(text, {name: handle.expr for name, handle in names.items()})
    made = lockstep.add_step(expr)
    if not made:
        raise NothingFitsError
    return made[0]


def draw_shaped(lockstep: Lockstep, choices: Choices, sizes: list[Handle], kind: Kind) -> Handle:
    """A tensor of exactly these sizes."""
    wanted = shape(sizes)
    fitting = [
        tensor
        for tensor in lockstep.tensors
        if is_of_kind(tensor.left, kind) and same_shape(tensor, wanted.left, wanted.right)
    ]
    if fitting and not choices.one_in(4):
        return choices.pick(fitting)
    if not wanted.varies:
        return add_static_input(lockstep, choices, wanted.left, kind)
    first, *others = sizes
    if not any(size.varies for size in others) and max(first.left, first.right) <= 8 and choices.one_in(5):
        whole = add_static_input(lockstep, choices, (8, *(size.left for size in others)), kind)
        return add_template(lockstep, "x[:n]", x=whole, n=first)
    return add_template(lockstep, choices.pick(conversions.FRESH[_concrete(kind)]), s=wanted)


def draw_alike(lockstep: Lockstep, choices: Choices, tensor: Handle, kind: Kind) -> Handle:
    """A tensor of the same shape as another."""
    left, right = tuple(tensor.left.shape), tuple(tensor.right.shape)
    fitting = [other for other in lockstep.tensors if is_of_kind(other.left, kind) and same_shape(other, left, right)]
    if fitting and choices.one_in(2):
        return choices.pick(fitting)
    text = choices.pick(conversions.ALIKE[_concrete(kind)])
    return lockstep.evaluate(fill(text, {"x": tensor.expr}))


def draw_broadcastable(lockstep: Lockstep, choices: Choices, tensor: Handle, kind: Kind) -> Handle:
    """A tensor that broadcasts with another."""
    rank = tensor.left.dim()
    match choices.below(6):
        case 0 | 1:
            fitting = [
                other
                for other in lockstep.tensors
                if other.expr != tensor.expr and is_of_kind(other.left, kind) and broadcasts(other, tensor)
            ]
            if fitting:
                return choices.pick(fitting)
        case 2 if rank:
            return draw_shaped(lockstep, choices, extents(tensor)[choices.below(rank) :], kind)
        case 3 if rank and kind == "float" and kind_of(tensor.left) == "float":
            text = choices.pick(conversions.BROADCASTABLE)
            return lockstep.evaluate(fill(text, {"x": tensor.expr}))
        case 4 if rank and extents(tensor)[0].left == 1:
            leading = draw_size(lockstep, choices, literal(1), literal(8))
            return draw_shaped(lockstep, choices, [leading, *extents(tensor)[1:]], kind)
        case _:
            pass
    return draw_alike(lockstep, choices, tensor, kind)


def _concrete(kind: Kind) -> Kind:
    return "float" if kind in {"any", "number"} else kind


def add_static_input(lockstep: Lockstep, choices: Choices, sizes: tuple[int, ...], kind: Kind) -> Handle:
    """An input with a static shape, such as a weight."""
    dims = tuple(map(Dim, sizes))
    return lockstep.add_input(DTYPE_OF_KIND[kind], dims, Recipe("normal"), _layout(choices, len(dims)))


def draw_unbacked_input(lockstep: Lockstep, choices: Choices, slot: Tensor) -> Handle:
    """A new input with an unbacked dim, or two of one size."""
    rank = choices.between(max(slot.min_rank, 1), max(min(slot.max_rank, 3), slot.min_rank, 1))
    size, symbol = choices.between(3, 6), next(lockstep.fresh_symbols())
    position = choices.below(rank)
    twin = choices.below(rank) if choices.one_in(8) else position
    dims = tuple(Dim(size, symbol) if dim in {position, twin} else Dim(choices.between(1, 4)) for dim in range(rank))
    layout = _layout(choices, rank)
    handle = lockstep.add_input(DTYPE_OF_KIND[slot.kind], dims, Recipe("normal"), layout)
    if handle.left.dim() > slot.max_rank:
        raise NothingFitsError
    return handle


def _layout(choices: Choices, rank: int) -> str:
    """The layout of a new input: usually contiguous."""
    if not rank or not choices.one_in(5):
        return "contiguous"
    return choices.pick([name for name, layout in LAYOUTS.items() if layout.min_rank <= rank <= layout.max_rank])


def draw_data(lockstep: Lockstep, choices: Choices, slot: Data) -> Handle:
    """An input whose values decide sizes. It never has the value 2, which is what the other run has."""
    count = math.prod(slot.shape)
    match slot.recipe:
        case "mask":
            dtype, recipe = "bool", Recipe("trues", (choices.between(3, count - 1),))
        case "sizes":
            dtype, recipe = "int64", Recipe("sizes", tuple(choices.between(3, 5) for _ in range(count)))
        case "distinct":
            dtype, recipe = "int64", Recipe("distinct", (choices.between(3, count - 1),))
    dims = tuple(map(Dim, slot.shape))
    for item in lockstep.inputs:
        if (item.recipe, item.shape) == (recipe, dims) and choices.one_in(2):
            return next(tensor for tensor in lockstep.tensors if tensor.expr == Name(item.name))
    return lockstep.add_input(dtype, dims, recipe)


def add_leaf(lockstep: Lockstep, slot: Leaf) -> Handle:
    """A new input that requires a gradient."""
    symbols = dict(zip(slot.unbacked, lockstep.fresh_symbols(), strict=False))
    dims = tuple(Dim(size, symbols.get(dim)) for dim, size in enumerate(slot.shape))
    return lockstep.add_input("float32", dims, Recipe("normal"), slot.layout, requires_grad=True)
