"""The names of the sizes at which a program is run: what the data decides is set to them."""

from __future__ import annotations

import random
from typing import Final, Literal, TypeAlias, get_args

DataSize: TypeAlias = Literal["0", "1", "2", "equal", "all"]
DATA_SIZES: Final[tuple[DataSize, ...]] = ("0", "1", "2", "equal", "all")

CallSize: TypeAlias = Literal["example", "0", "1", "2", "equal", "all", "random-1", "random-2"]
CALL_SIZES: Final[tuple[CallSize, ...]] = get_args(CallSize)
"""The sizes at which a captured program is called: as written, at each data size, and at two random ones."""

LARGEST_RANDOM: Final = 9


def size_of(name: CallSize, key: str, example: int, statics: tuple[int, ...], limit: int | None) -> int:
    """The size called `name` as a number, at most `limit`.

    `example` is the size that the program has now, `statics` are the sizes of its static dims. `key` names what has
    the size: random sizes of two keys are drawn independently, and the same at every call.
    """
    match name:
        case "example":
            size = example
        case "0" | "1" | "2":
            size = int(name)
        case "equal":
            # A size of 0, 1 or 2 has its own data size, and all of them is `all`: prefer any other.
            telling = [static for static in statics if static > 2 and static != limit]
            size = next(iter([*telling, *statics]), example)
        case "all":
            size = max((example, *statics)) if limit is None else limit
        case "random-1" | "random-2":
            # A string seeds Random by its hash with SHA-512, which no PYTHONHASHSEED changes.
            size = random.Random(f"{name} {key}").randint(0, LARGEST_RANDOM if limit is None else limit)
    return size if limit is None else min(size, limit)
