"""Tensors for the slots of an op: an existing one, one converted from it, or a new one made by a step or an input."""

from __future__ import annotations

import math
from functools import cache, reduce
from itertools import islice
from typing import Final

import torch

from ddefuzz.generate.lockstep import Choices, Handle, Lockstep
from ddefuzz.ops import conversions
from ddefuzz.ops.conversions import ADJUST
from ddefuzz.ops.spec import Data, Kind, Leaf, Tensor
from ddefuzz.program.evaluate import evaluate
from ddefuzz.program.expressions import parse_expression
from ddefuzz.program.model import Attribute, Binary, Dim, Expr, Index, Literal, Name, Recipe, Sequence, substitute
from ddefuzz.program.recipes import LAYOUTS

MAX_SIZE: Final = 24
MAX_ELEMENTS: Final = 512
ATTEMPTS: Final = 4
RECENT: Final = 6
RARE: Final = (0, 7, 64, 65)
"""Static sizes that code may treat apart: an empty dim, and widths of vectors with a neighbour."""
USUAL: Final = (1, 2, 3, 5)
"""Other static sizes. None is 4, which torch takes where a hint is missing."""


class NothingFitsError(Exception):
    """No argument can be made for a slot. The step is dropped."""


@cache
def template(text: str) -> Expr:
    """The expression of a template of the catalogue."""
    return parse_expression(text)


def fill(text: str, values: dict[str, Expr]) -> Expr:
    """A template with its names replaced."""
    return substitute(template(text), values)


def literal(number: int) -> Handle:
    """A size as a literal."""
    return Handle(Literal(number), number, number, False)


def extent(tensor: Handle, dim: int) -> Handle:
    """The size of one dim: read from the tensor if data-dependent, else a literal."""
    left, right = tensor.left.shape[dim], tensor.right.shape[dim]
    if left == right:
        return literal(left)
    return Handle(Index(Attribute(tensor.expr, "shape"), Literal(dim)), left, right, True)


def extents(tensor: Handle) -> list[Handle]:
    """The sizes of all dims."""
    return [extent(tensor, dim) for dim in range(tensor.left.dim())]


def arithmetic(op: str, a: Handle, b: Handle) -> Handle:
    """`a op b` for `+ - * //`; a literal if neither is data-dependent."""
    compute = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "//": int.__floordiv__}[op]
    left, right = compute(a.left, b.left), compute(a.right, b.right)
    if isinstance(a.expr, Literal) and isinstance(b.expr, Literal):
        return literal(left)
    return Handle(Binary(op, a.expr, b.expr), left, right, left != right)


def product(sizes: list[Handle]) -> Handle:
    """The product of sizes, without factors of 1."""
    factors = [size for size in sizes if not (isinstance(size.expr, Literal) and size.left == 1)]
    return reduce(lambda a, b: arithmetic("*", a, b), factors) if factors else literal(1)


def shape(sizes: list[Handle]) -> Handle:
    """A tuple of sizes."""
    left, right = tuple(size.left for size in sizes), tuple(size.right for size in sizes)
    return Handle(Sequence(tuple(size.expr for size in sizes)), left, right, left != right)


def draw_size(lockstep: Lockstep, choices: Choices, low: Handle, high: Handle) -> Handle:
    """A size in [low, high] in both runs."""
    known = _varying(lockstep)
    if high.varies:
        known += [high, high]
    if known and not choices.one_in(8):
        for _ in range(ATTEMPTS):
            size = choices.pick(known)
            text = choices.pick(ADJUST)
            left, right = (evaluate(template(text), {"n": value}) for value in (size.left, size.right))
            if low.left <= left <= high.left and low.right <= right <= high.right:
                return Handle(fill(text, {"n": size.expr}), left, right, left != right)
    least, most = max(low.left, low.right), min(high.left, high.right)
    if least <= most:
        return literal(choices.between(least, min(most, least + 4)))
    if low.left <= high.left and low.right <= high.right:
        return high
    raise NothingFitsError


def _varying(lockstep: Lockstep) -> list[Handle]:
    """The data-dependent sizes that the program has, newest last."""
    read = [size for tensor in lockstep.tensors[-RECENT:] if tensor.varies for size in extents(tensor) if size.varies]
    return [*(number for number in lockstep.ints if number.varies), *read]


def draw_shape(lockstep: Lockstep, choices: Choices, rank: int) -> Handle:
    """A shape of that rank with few elements and at least one data-dependent size."""
    sizes: list[Handle] = []
    telling = choices.below(rank)
    remaining = MAX_ELEMENTS
    for position in range(rank):
        if position == telling or choices.one_in(4):
            size = draw_size(lockstep, choices, literal(0), literal(min(MAX_SIZE, remaining)))
        else:
            size = literal(choices.between(1, min(4, remaining)))
        remaining //= max(size.left, size.right, 1)
        sizes.append(size)
    return shape(sizes)


def draw_reshape(choices: Choices, sizes: list[Handle]) -> Handle:
    """A shape with as many elements as `sizes`: merged, split, swapped or factored otherwise, perhaps with one -1."""
    changed = list(sizes)
    for _ in range(choices.between(1, 2)):
        changed = _rearranged(choices, changed)
    if changed and choices.one_in(3):
        changed[choices.below(len(changed))] = literal(-1)
    return shape(changed)


def _rearranged(choices: Choices, sizes: list[Handle]) -> list[Handle]:
    position = choices.below(max(len(sizes), 1))
    before, after = sizes[:position], sizes[position + 1 :]
    match choices.below(7):
        case 0 | 1 if after:
            return [*before, arithmetic("*", sizes[position], after[0]), *after[1:]]
        case 2 if after:
            return [*before, after[0], sizes[position], *after[1:]]
        case 3 | 4 if sizes:
            return [*before, *_halved(choices, sizes[position]), *after]
        case 5:
            return [product(sizes)]
        case 6 if len(sizes) > 1:
            return _refactored(choices, sizes, position)
        case _:
            return [*before, literal(1), *sizes[position:]]


def _refactored(choices: Choices, sizes: list[Handle], taken: int) -> list[Handle]:
    """Move a factor from one dim to another, as when heads of attention join the batch."""
    rest, factor = _halved(choices, sizes[taken])
    to = (taken + choices.between(1, len(sizes) - 1)) % len(sizes)
    changed = list(sizes)
    changed[taken], changed[to] = rest, arithmetic("*", sizes[to], factor)
    return changed


def _halved(choices: Choices, size: Handle) -> list[Handle]:
    """`size` as the product of two sizes."""
    divisors = [k for k in (2, 3, 4) if size.left % k == size.right % k == 0]
    if not divisors:
        return [size, literal(1)]
    divisor = literal(choices.pick(divisors))
    pair = [arithmetic("//", size, divisor), divisor]
    return pair[::-1] if choices.one_in(2) else pair


def draw_split(choices: Choices, size: Handle) -> Handle:
    """A shape with as many elements as one dim of that size."""
    pair = _halved(choices, size)
    if choices.one_in(2):
        pair[choices.below(2)] = literal(-1)
    return shape(pair)


def draw_expansion(lockstep: Lockstep, choices: Choices, tensor: Handle) -> Handle:
    """A shape that `tensor` can be expanded to."""
    sizes = []
    for size in extents(tensor):
        if size.left == size.right == 1:
            sizes.append(draw_size(lockstep, choices, literal(1), literal(8)))
        else:
            sizes.append(literal(-1) if choices.one_in(3) else size)
    if len(sizes) < 2 or choices.one_in(3):
        sizes.insert(0, draw_size(lockstep, choices, literal(1), literal(8)))
    return shape(sizes)


def draw_sections(lockstep: Lockstep, choices: Choices, total: Handle, bounds: bool) -> Handle:
    """Sizes that add up to `total`, as a list. With `bounds`, positions in it."""
    first = draw_size(lockstep, choices, literal(0), total)
    rest = arithmetic("-", total, first)
    if bounds:
        sizes = [first] if choices.one_in(2) else [first, total]
    elif choices.one_in(2):
        second = draw_size(lockstep, choices, literal(0), rest)
        sizes = [first, second, arithmetic("-", rest, second)]
    else:
        sizes = [first, rest]
    listed = shape(sizes)
    assert isinstance(listed.expr, Sequence)
    return Handle(Sequence(listed.expr.items, is_list=True), listed.left, listed.right, listed.varies)


def elements(tensor: Handle) -> int:
    """The number of elements, in the run where it is larger."""
    return max(int(tensor.left.numel()), int(tensor.right.numel()))


def same_shape(tensor: Handle, left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Whether a tensor has these shapes in the two runs."""
    return tuple(tensor.left.shape) == left and tuple(tensor.right.shape) == right


def broadcasts(tensor: Handle, other: Handle) -> bool:
    """Whether two tensors broadcast, to few elements, in both runs."""
    return all(_broadcasts(a.shape, b.shape) for a, b in ((tensor.left, other.left), (tensor.right, other.right)))


def _broadcasts(a: torch.Size, b: torch.Size) -> bool:
    result: list[int] = []
    rank = max(len(a), len(b))
    padded_a, padded_b = ((1,) * (rank - len(sizes)) + tuple(sizes) for sizes in (a, b))
    for x, y in zip(padded_a, padded_b, strict=True):
        if x != y and 1 not in {x, y}:
            return False
        result.append(x if y == 1 else y)
    return math.prod(result) <= MAX_ELEMENTS


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
    own = kind_of(tensor)
    return kind in {"any", own} or (kind == "number" and own in {"float", "int"})


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
    dims = _as_dims(lockstep, sizes)
    if dims is not None and not choices.one_in(4):
        return _add_input(lockstep, choices, _apart(lockstep, dims) if choices.one_in(4) else dims, kind)
    first, *others = sizes
    if not any(size.varies for size in others) and max(first.left, first.right) <= 8 and choices.one_in(5):
        whole = add_static_input(lockstep, choices, (8, *(size.left for size in others)), kind)
        return add_template(lockstep, "x[:n]", x=whole, n=first)
    made = add_template(lockstep, choices.pick(conversions.FRESH[_concrete(kind)]), s=wanted)
    layouts = conversions.LAID_OUT.get(len(sizes), ())
    return add_template(lockstep, choices.pick(layouts), x=made) if layouts and choices.one_in(4) else made


def _as_dims(lockstep: Lockstep, sizes: list[Handle]) -> tuple[Dim, ...] | None:
    """Dims of a new input that has these sizes, because each is static or that of an unbacked dim of another input."""
    inputs = {item.name: item for item in lockstep.inputs}
    dims: list[Dim] = []
    for size in sizes:
        match size.expr:
            case Literal(int(number)):
                dims.append(Dim(number))
            case Index(Attribute(Name(name), "shape"), Literal(int(place))) if name in inputs:
                dims.append(inputs[name].shape[place])
            case _:
                return None
    return tuple(dims)


def _add_input(lockstep: Lockstep, choices: Choices, dims: tuple[Dim, ...], kind: Kind) -> Handle:
    return lockstep.add_input(DTYPE_OF_KIND[kind], dims, Recipe("normal"), _layout(choices, len(dims)))


def _apart(lockstep: Lockstep, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The dims with sizes of their own, which calls may make unequal to those of other inputs: eager refuses that, and
    what is captured has to.
    """
    fresh = lockstep.fresh_symbols()
    return tuple(dim if dim.symbol is None else Dim(dim.size, next(fresh)) for dim in dims)


def draw_alike(lockstep: Lockstep, choices: Choices, tensor: Handle, kind: Kind) -> Handle:
    """A tensor of the same shape as another."""
    left, right = tuple(tensor.left.shape), tuple(tensor.right.shape)
    dims = _as_dims(lockstep, extents(tensor)) if tensor.varies and choices.one_in(8) else None
    if dims is not None:
        return _add_input(lockstep, choices, _apart(lockstep, dims), kind)
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
    dims = tuple(Dim(size, symbol) if dim in {position, twin} else _static_dim(choices) for dim in range(rank))
    layout = _layout(choices, rank)
    handle = lockstep.add_input(DTYPE_OF_KIND[slot.kind], dims, Recipe("normal"), layout)
    if handle.left.dim() > slot.max_rank:
        raise NothingFitsError
    return handle


def _static_dim(choices: Choices) -> Dim:
    return Dim(choices.pick(RARE if choices.one_in(8) else USUAL))


def draw_producer(lockstep: Lockstep, choices: Choices) -> Handle:
    """A new input with two to four unbacked dims, each of a size of its own."""
    rank = choices.between(2, 4)
    symbols = islice(lockstep.fresh_symbols(), rank)
    dims = tuple(Dim(choices.between(3, 4), symbol) for symbol in symbols)
    return lockstep.add_input("float32", dims, Recipe("normal"), _layout(choices, rank))


def _layout(choices: Choices, rank: int) -> str:
    """The layout of a new input: usually contiguous. That of images and volumes is more often another one."""
    if not rank or not choices.one_in(5 if rank < 4 else 2):
        return "contiguous"
    return choices.pick([name for name, layout in LAYOUTS.items() if layout.fits(rank)])


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
    known = {tensor.expr: tensor for tensor in lockstep.tensors}
    for item in lockstep.inputs:
        if (item.recipe, item.shape) == (recipe, dims) and Name(item.name) in known and choices.one_in(2):
            return known[Name(item.name)]
    return lockstep.add_input(dtype, dims, recipe)


def add_leaf(lockstep: Lockstep, slot: Leaf) -> Handle:
    """A new input."""
    symbols = dict(zip(slot.unbacked, lockstep.fresh_symbols(), strict=False))
    dims = tuple(Dim(size, symbols.get(dim)) for dim, size in enumerate(slot.shape))
    return lockstep.add_input("float32", dims, Recipe("normal"), slot.layout, slot.gradient)
