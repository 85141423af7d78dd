"""Sizes and shapes made from the sizes that a program has, with a strong preference for data-dependent ones."""

from __future__ import annotations

import math
from functools import cache, reduce
from typing import Final

import torch

from ddefuzz.generate.choices import Choices
from ddefuzz.generate.lockstep import Handle, Lockstep
from ddefuzz.ops.conversions import ADJUST
from ddefuzz.program.evaluate import evaluate
from ddefuzz.program.expressions import parse_expression
from ddefuzz.program.model import Attribute, Binary, Expr, Index, Literal, Sequence, substitute

MAX_SIZE: Final = 24
MAX_ELEMENTS: Final = 512
ATTEMPTS: Final = 4
RECENT: Final = 6


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
    """A shape with as many elements as `sizes`: merged, split or swapped, perhaps with one -1."""
    changed = list(sizes)
    for _ in range(choices.between(1, 2)):
        changed = _rearranged(choices, changed)
    if changed and choices.one_in(3):
        changed[choices.below(len(changed))] = literal(-1)
    return shape(changed)


def _rearranged(choices: Choices, sizes: list[Handle]) -> list[Handle]:
    position = choices.below(max(len(sizes), 1))
    before, after = sizes[:position], sizes[position + 1 :]
    match choices.below(6):
        case 0 | 1 if after:
            return [*before, arithmetic("*", sizes[position], after[0]), *after[1:]]
        case 2 if after:
            return [*before, after[0], sizes[position], *after[1:]]
        case 3 | 4 if sizes:
            return [*before, *_halved(choices, sizes[position]), *after]
        case 5:
            return [product(sizes)]
        case _:
            return [*before, literal(1), *sizes[position:]]


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
