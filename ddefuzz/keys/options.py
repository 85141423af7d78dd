"""The options of a specialization key: what it distinguishes. Nothing here imports torch."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

ALIGNMENT: Final = 16
"""The alignment in bytes, and the divisor of sizes, that vectorized kernels need."""

SizeParts: TypeAlias = Literal["all", "01"]
"""all: every size. 01: only 0, 1, and 2 or more, as kernels for dynamic shapes do."""

StrideParts: TypeAlias = Literal["all", "pattern", "none"]
"""all: every stride. pattern: for each dim of size 2 or more whether its stride is 0 or 1, where it comes in the order
of strides, and whether it is dense. none: strides are not distinguished.
"""


class Options(msgspec.Struct, frozen=True):
    """The parts of a key. The rank, the layout and the conj and neg bits are always in it."""

    sizes: SizeParts = "all"
    strides: StrideParts = "all"
    divisible: bool = False
    alignment: bool = True
    device: bool = True
    dtype: bool = True
    requires_grad: bool = True
