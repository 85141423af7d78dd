"""The data sizes at which a program is run, by name, and the program at each of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final, Literal, TypeAlias, get_args

from ddefuzz.program.model import Dim, Input, Program, Recipe
from ddefuzz.program.recipes import elements

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


def static(program: Program) -> Program:
    """The program with each dim static, at its example size."""
    inputs = (replace(item, shape=tuple(Dim(dim.size) for dim in item.shape)) for item in program.inputs)
    return replace(program, inputs=tuple(inputs))


def at_data_size(program: Program, data_size: CallSize) -> Program:
    """The program with every data-dependent size set to `data_size`, as far as possible.

    Data-dependent sizes are the k of `trues(k)` and `distinct(k)`, each entry of `sizes(...)`, and the dims
    with a symbol. All dims of one symbol change together. `equal` is the size of a static dim of another input,
    or of the same input if no other has one. `all` is every element for `trues` and `distinct`, else the
    largest of the example size and the static dims. `random-1` and `random-2` draw each size independently.
    """
    if data_size == "example":
        return program
    symbols = {
        dim.symbol: size_of(data_size, dim.symbol, dim.size, _statics(program, item), None)
        for item in program.inputs
        for dim in item.shape
        if dim.symbol is not None
    }
    return replace(
        program, inputs=tuple(_input_at(item, data_size, symbols, _statics(program, item)) for item in program.inputs)
    )


def _input_at(item: Input, data_size: CallSize, symbols: dict[str, int], statics: tuple[int, ...]) -> Input:
    shape = tuple(dim if dim.symbol is None else Dim(symbols[dim.symbol], dim.symbol) for dim in item.shape)
    resized = replace(item, shape=shape)
    return replace(resized, recipe=_recipe_at(resized, data_size, statics))


def _recipe_at(item: Input, data_size: CallSize, statics: tuple[int, ...]) -> Recipe:
    recipe, count = item.recipe, elements(item)
    match recipe.kind:
        case "trues":
            return Recipe("trues", (size_of(data_size, item.name, count, statics, count),))
        case "distinct":
            most = min(count, 2) if item.dtype == "bool" else min(count, 100)
            k = size_of(data_size, item.name, most, statics, most)
            return Recipe("distinct", (max(k, min(most, 1)),))
        case "sizes":
            listed = _cycle(recipe.args, count)
            sizes = (
                size_of(data_size, f"{item.name}[{place}]", int(entry), statics, None)
                for place, entry in enumerate(listed)
            )
            return Recipe("sizes", tuple(sizes))
        case "values":
            return Recipe("values", _cycle(recipe.args, count))
        case "spd":
            return Recipe("spd", (item.shape[-1].size,))
        case _:
            return recipe


def _statics(program: Program, item: Input) -> tuple[int, ...]:
    """The sizes of the dims without a symbol, those of other inputs first."""
    ordered = [*(other for other in program.inputs if other is not item), item]
    return tuple(dim.size for other in ordered for dim in other.shape if dim.symbol is None)


def _cycle(listed: tuple[int | float | bool, ...], count: int) -> tuple[int | float | bool, ...]:
    """`listed` repeated or cut to `count` entries."""
    return tuple(listed[position % len(listed)] if listed else 0 for position in range(count))
