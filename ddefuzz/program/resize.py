"""Programs with other data sizes."""

from __future__ import annotations

from dataclasses import replace

from ddefuzz.program.model import Dim, Input, Program, Recipe
from ddefuzz.program.recipes import elements
from ddefuzz.program.sizes import CallSize, size_of


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
