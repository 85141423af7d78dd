"""What a right key distinguishes, and the systematic tensors: families, in each of which every pair is judged.

A family has few tensors and many pairs, so a key is made once for each tensor.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache
from itertools import permutations, product
from typing import Final, NamedTuple, TypeAlias

import torch
from msgspec.structs import replace

from ddefuzz.keys.case import (
    ALIGNMENT,
    ALL_DTYPES,
    CARRIERS,
    CHANNELS_LAST,
    KINDS,
    STRIDED,
    Kind,
    Options,
    Tensors,
    TensorSpec,
    contiguous,
    expanded,
)
from ddefuzz.keys.key import Geometry, geometry
from ddefuzz.keys.tensors import exists

Sizes: TypeAlias = tuple[int, ...]


@cache
def _geometry(options: Options) -> Geometry:
    return geometry(options)


def facts(spec: TensorSpec, options: Options, *, least: bool) -> tuple[Hashable, ...]:
    """What a kernel may depend on: the parts of the options, read from the description and not from the tensor.

    Tensors whose `least` facts differ need different keys. Those whose other facts are equal need equal keys. Between
    them is what a right key may have or not: the stride of a dim of one element or of an empty tensor, the alignment of
    what has no memory of its own, how far from aligned an address is, and whether a tensor is a Parameter.
    """
    batched = spec.kind == "batched"
    sizes = spec.sizes[1:] if batched else spec.sizes
    strides: tuple[int | None, ...] = spec.strides[1:] if batched else spec.strides
    if spec.kind == "zeros":  # it is laid out without gaps, whatever was drawn
        strides = contiguous(sizes)
    if least and options.strides == "all":
        strides = tuple(
            stride if size > 1 and 0 not in sizes else None for size, stride in zip(sizes, strides, strict=True)
        )
    has_strides = spec.kind in STRIDED or spec.kind == "zeros"
    strided = replace(options, strides=options.strides if has_strides else "none")
    has_offset = spec.kind in STRIDED and spec.kind != "meta"
    if least:
        has_offset = spec.kind in ("tensor", "parameter", "subclass") and 0 not in sizes
    itemsize = getattr(torch, spec.dtype).itemsize
    rest = spec.offset * itemsize % ALIGNMENT if options.alignment and has_offset else 0
    kind = spec.kind
    if least and kind in ("parameter" * (not options.parameter), "meta" * (not options.device)):
        kind = "tensor"
    return (
        kind,
        spec.bits,
        _geometry(strided)(sizes, strides),
        spec.dtype if options.dtype else None,
        spec.requires_grad if options.requires_grad else None,
        rest == 0 if least else rest,
    )


def parts(tensors: Tensors) -> str:
    """In which parts two tensors differ."""
    first, second = tensors
    if len(first.sizes) != len(second.sizes):
        return "rank"
    differing = [name for name in TensorSpec.__struct_fields__ if getattr(first, name) != getattr(second, name)]
    return ", ".join(name for name in differing if name != "strides" or "sizes" not in differing)


class Family(NamedTuple):
    """Tensors of one kind of pairs."""

    kind: str
    tensors: Tensors


NUMBERS: Final = tuple(
    sorted(
        {
            *range(140),
            *(2**power + more for power in range(7, 62) for more in (-1, 0, 1, 2)),
            *(10**power + more for power in (2, 3, 4, 5, 6, 9) for more in (0, 1, 2)),
        }
    )
)
"""Sizes and strides: small ones, those around powers of two (up to the widths of indices), and decimal ones."""

_MOST_STRIDE: Final = (1 << 16) + 2  # of tensors that have memory for it
_PAIRED: Final = (2, 3, 1, 0, 4, 5, 6, 8, 9, 11, 12, 16, 21, 64, 65, 112)
_LONG: Final = tuple(
    (*(3,) * before, size, *(3,) * after)
    for before in range(8)
    for after in range(8 - before)
    for size in (2, 3, 4, 5, 16, 17, 64, 65, 1000, 1001)
)

_FORMATS: Final[tuple[tuple[Sizes, Sizes], ...]] = (
    *(
        (sizes, strides)
        for sizes in ((2, 3, 4, 5), (2, 3, 4, 5, 6))
        for strides in (
            contiguous(sizes),
            contiguous(sizes, CHANNELS_LAST[len(sizes)]),
            contiguous(sizes, tuple(range(len(sizes)))),
            expanded(sizes),
            (0, *contiguous(sizes)[1:]),
            (*contiguous(sizes)[:-1], 0),
            tuple(2 * stride for stride in contiguous(sizes)),
            (1,) * len(sizes),
        )
    ),
    *(((3, 4), strides) for strides in ((4, 1), (1, 3), (0, 1), (1, 0), (5, 1), (8, 2), (1, 1), (2, 1), (0, 0))),
)

_GEOMETRIES: Final[dict[str, tuple[tuple[Sizes, Sizes], ...]]] = {
    "memory formats, broadcast, gaps, overlap": _FORMATS,
    "ranks": tuple(((size,) * rank, expanded((size,) * rank)) for rank in range(9) for size in (1, 2, 0)),
    "sizes of one dim": tuple((one, expanded(one)) for one in ((number,) for number in NUMBERS)),
    "sizes of one dim, contiguous": tuple(((number,), (1,)) for number in NUMBERS if number <= _MOST_STRIDE),
    "equal numel, sum or digits": tuple((one, expanded(one)) for one in product(_PAIRED, repeat=2)),
    "equal numel, sum or digits, contiguous": tuple((one, contiguous(one)) for one in product(_PAIRED, repeat=2)),
    "three sizes": tuple((one, (0, 0, 0)) for one in product((2, 3, 4, 6, 12), repeat=3)),
    "permuted sizes at equal strides": tuple(
        (one, (stride,) * 4) for stride in (0, 1) for one in permutations((2, 3, 5, 7))
    ),
    "each size, one larger or smaller": tuple(dict.fromkeys((one, (0,) * len(one)) for one in _LONG)),
    "sizes 0, 1 and 2 in each dim": tuple(
        (sizes, make(sizes))
        for make in (contiguous, expanded)
        for rank in range(1, 5)
        for sizes in product((2, 1, 0), repeat=rank)
    ),
    "strides of one dim": tuple(((2,), (number,)) for number in NUMBERS),
    "two strides": tuple(((2, 2), strides) for strides in product((0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 32), repeat=2)),
    "permuted strides": tuple(
        ((2, 2, 2, 2), one) for strides in ((1, 2, 4, 8), (0, 1, 3, 9)) for one in permutations(strides)
    ),
    "sizes and strides": tuple(
        (sizes, strides) for sizes in product((2, 3, 4), repeat=2) for strides in product((1, 2, 3, 4, 6), repeat=2)
    ),
}
"""Sizes and strides of float32 tensors, for each of `CARRIERS`."""

_VIEWED: Final = TensorSpec((4,), (1,))

_CHANGED: Final[dict[str, tuple[Tensors, ...]]] = {
    "dtypes": (tuple(replace(_VIEWED, dtype=name) for name in ALL_DTYPES),),
    "storage offset and alignment": tuple(
        tuple(replace(_VIEWED, dtype=name, offset=offset) for offset in range(36))
        for name in ("float32", "int8", "bfloat16", "float64", "complex128")
    ),
    "requires_grad": tuple(
        tuple(replace(_VIEWED, dtype=name, requires_grad=one) for one in (False, True))
        for name in ("float32", "bfloat16", "complex64")
    ),
    "conj and neg bits of one dtype": (
        (replace(_VIEWED, dtype="complex64"), replace(_VIEWED, dtype="complex64", bits="conj")),
        (_VIEWED, replace(_VIEWED, bits="neg")),
    ),
}
"""Families of tensors that differ in something else, for each of `CARRIERS`."""


def families(kinds: tuple[Kind, ...] = KINDS) -> Iterator[Family]:
    """All families of tensors of these kinds."""
    carriers = [kind for kind in CARRIERS if kind in kinds]
    for name, shapes in _GEOMETRIES.items():
        for kind in carriers:
            made = [TensorSpec(sizes, strides, kind=kind) for sizes, strides in shapes]
            yield Family(name, tuple(one for one in made if kind == "meta" or one.elements <= 2 * _MOST_STRIDE))
    for name, changed in _CHANGED.items():
        for tensors in changed:
            for kind in carriers:
                specs = [replace(one, kind=kind) for one in tensors]
                yield Family(name, tuple(one for one in specs if not (one.bits or one.requires_grad) or exists(one)))
    # Within vmap, a tensor of sizes (2, 3) has the size 3.
    bases = (_VIEWED, TensorSpec((3,), (1,)), TensorSpec((2, 3), (3, 1)), TensorSpec((), ()))
    specs = [replace(one, kind=kind, requires_grad=grad) for one in bases for kind in kinds for grad in (False, True)]
    yield Family("kinds of tensors, also within vmap and grad", tuple(filter(exists, specs)))
