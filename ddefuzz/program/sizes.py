"""The data sizes at which a program is run, by name. Dims and numbers that depend on data get these sizes."""

from __future__ import annotations

import random
from typing import Final, Literal, TypeAlias, get_args

DataSize: TypeAlias = Literal["0", "1", "2", "equal", "all"]
DATA_SIZES: Final[tuple[DataSize, ...]] = ("0", "1", "2", "equal", "all")

CallSize: TypeAlias = Literal["example", "0", "1", "2", "equal", "all", "random-1", "random-2", "5", "7", "9", "11"]
REPEATED_SIZES: Final[tuple[CallSize, ...]] = ("5", "7", "9", "11")
"""The sizes at which a program is called in turn, to count how often it is compiled."""

CALL_SIZES: Final[tuple[CallSize, ...]] = tuple(size for size in get_args(CallSize) if size not in REPEATED_SIZES)
"""The sizes at which a captured program is called: the example sizes, each data size, and two random ones."""

LARGEST_RANDOM: Final = 9


def size_of(name: CallSize, key: str, example: int, statics: tuple[int, ...], limit: int | None) -> int:
    """The size called `name` as a number, at most `limit`.

    `example` is the program's present size, and `statics` are the sizes of its static dims. `key` identifies
    what has the size. Random sizes of two keys are independent, and the same at every call.
    """
    match name:
        case "example":
            size = example
        case "0" | "1" | "2" | "5" | "7" | "9" | "11":
            size = int(name)
        case "equal":
            # The sizes 0, 1 and 2 and the whole size have data sizes of their own, so prefer another.
            telling = [static for static in statics if static > 2 and static != limit]
            size = next(iter([*telling, *statics]), example)
        case "all":
            size = max((example, *statics)) if limit is None else limit
        case "random-1" | "random-2":
            # Random hashes a string seed with SHA-512, so it does not depend on PYTHONHASHSEED.
            size = random.Random(f"{name} {key}").randint(0, LARGEST_RANDOM if limit is None else limit)
    return size if limit is None else min(size, limit)
