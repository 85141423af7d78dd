"""The data sizes at which a program is run, by name, and the program at each of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec

from ddefuzz.errors import InputError
from ddefuzz.program.model import Dim, Input, Program, Recipe, expressions, walk
from ddefuzz.program.model import Literal as Value
from ddefuzz.program.options import range_of
from ddefuzz.program.recipes import FLOATS, elements

DataSize: TypeAlias = Literal["0", "1", "2", "equal", "all"]
DATA_SIZES: Final[tuple[DataSize, ...]] = ("0", "1", "2", "equal", "all")

CallSize: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(example|all|equal|\d+|(drawn|random)-\d|values-[a-z]+|\w+(\[\d+\])?=\d+(,\w+(\[\d+\])?=\d+)*)\Z",
        max_length=1_000,
    ),
]
"""The name of data sizes: `example`, that of a `DataSize`, a number, or each size by its key (`u0=5,mask=1`).

Keys are the symbols of dims, the inputs made by `trues` and `distinct`, and the entries of those made by `sizes`
(`lengths[0]`). `values-NAME` has the sizes of the example, with values of that kind (`VALUE_KINDS`). `drawn-1` and
`drawn-2` stand for sizes that `with_drawn` chooses. Findings of versions up to 0.9 have `random-1` and `random-2`.
"""

REPEATED_SIZES: Final[tuple[CallSize, ...]] = ("5", "7", "9", "11")
"""The sizes at which a program is called in turn, to count how often it is compiled."""

CALL_SIZES: Final[tuple[CallSize, ...]] = ("example", *DATA_SIZES, "drawn-1", "drawn-2")
"""The sizes at which a captured program is called: the example sizes, each data size, and two drawn for the program."""

SIZE_KINDS: Final = ("example", *DATA_SIZES, "drawn")  # what counts as one size in tables

DRAWN: Final = ("drawn-1", "drawn-2")

TELLING: Final = tuple(sorted({*range(7), *(2**power + step for power in range(3, 8) for step in (-1, 0, 1))}))
"""Sizes that code may treat apart: small ones, and the widths of vectors with their neighbours."""

VALUE_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {"zero": "zeros", "equal": "ones", "ties": "ties", "special": "special"}
)
"""Kinds of values that code may treat apart, each with the recipe that makes them: of inputs that have random ones."""

NUMBERS: Final = "values-numbers"
"""The call at which floats without dims are 0 and the first others special: a factor of 0 may stand for "not read"."""

VALUE_CALLS: Final[tuple[CallSize, ...]] = (*(f"values-{kind}" for kind in VALUE_KINDS), NUMBERS)
"""The calls at the example sizes with each kind of values."""

LARGE: Final = 1_000  # the least size of a large dim
MOST_ELEMENTS: Final = 1_000_000  # no input with a drawn size has more

LARGEST_RANDOM: Final = 9


def order_of(size: CallSize, *, backward: bool) -> int:
    """The order up to which gradients are computed in a call. A stage that captures gradients (`backward`) refuses
    those of its gradients; elsewhere they are compared in two of the calls.
    """
    return 1 if backward else 2 if size in ("example", "0") else 0


def kind_of_size(size: CallSize) -> str:
    """Which of `SIZE_KINDS` a size is."""
    return size if size in SIZE_KINDS else "drawn"


def size_of(name: CallSize, key: str, example: int, statics: tuple[int, ...], limit: int | None) -> int:
    """The size called `name` as a number, at most `limit`. `key` identifies what has the size.

    `example` is the program's present size, and `statics` are the sizes of its static dims.
    """
    match name:
        case "example":
            size = example
        case "equal":
            # The sizes 0, 1 and 2 and the whole size have data sizes of their own, so prefer another.
            telling = [static for static in statics if static > 2 and static != limit]
            size = next(iter([*telling, *statics]), example)
        case "all":
            size = max((example, *statics)) if limit is None else limit
        case "random-1" | "random-2":
            # Random hashes a string seed with SHA-512, so it does not depend on PYTHONHASHSEED.
            size = random.Random(f"{name} {key}").randint(0, LARGEST_RANDOM if limit is None else limit)
        case _ if "=" in name:
            size = int(dict(one.split("=") for one in name.split(",")).get(key, example))
        case _:
            size = int(name)
    return size if limit is None else min(size, limit)


class _Slot(NamedTuple):
    """A data-dependent size: its key, its value in the example, and the elements that one more of it adds."""

    key: str
    example: int
    each: int


def with_drawn(program: Program, sizes: Iterable[CallSize], seed: int) -> tuple[CallSize, ...]:
    """The sizes, with those drawn for this program and seed in place of `drawn-1` and `drawn-2`.

    What is drawn does not depend on names in the program.
    """
    chosen = (_drawn(program, f"{name} {seed}") if name in DRAWN else name for name in sizes)
    return tuple(dict.fromkeys(chosen))


def check_sizes(program: Program, sizes: Iterable[CallSize]) -> None:
    """Raises InputError for sizes that are not named as `u0=5,mask=1`, or that name what the program does not have."""
    keys = sorted({slot.key for slot in _slots(program)})
    for size in sizes:
        named = [part.partition("=") for part in size.split(",")]
        if not all(key and number.isascii() and number.isdecimal() and len(number) < 7 for key, _, number in named):
            raise InputError(f"--sizes: found {size[:40]!r}, expected sizes such as u0=5,u1=1")
        if wrong := [key for key, _, _ in named if key not in keys]:
            raise InputError(f"--sizes: found {wrong[0][:40]!r}, expected some of {', '.join(keys) or 'none'}")


def _drawn(program: Program, seed: str) -> CallSize:
    """Sizes for all slots: all equal, one of them 1 or large and the others not, or each by itself."""
    slots, constants = tuple(_slots(program)), _constants(program)
    if not slots:
        return "example"
    shape = [(slot.example, slot.each) for slot in slots]
    rng = random.Random(f"{seed} {shape} {sorted(constants)}")
    near = sorted({*TELLING, *(number + step for number in constants for step in (-1, 0, 1) if number + step >= 0)})
    values = [rng.choice(near) for _ in slots]
    match rng.randrange(5) if len(slots) > 1 else 4:
        case 0:
            values = [rng.choice([size for size in near if size > 2])] * len(slots)
        case 1:
            values = [max(value, 2) for value in values]
            values[rng.randrange(len(slots))] = 1
    if not rng.randrange(6):
        values = [min(value, 9) for value in values]
        values[rng.randrange(len(slots))] = LARGE + rng.randrange(100)
    for place, slot in enumerate(slots):
        values[place] = min(values[place], max(2, MOST_ELEMENTS // max(slot.each, 1)))
        values[place] = _allowed(program, slot.key, values[place])
    return ",".join(f"{slot.key}={value}" for slot, value in zip(slots, values, strict=True))


def _slots(program: Program) -> Iterator[_Slot]:
    known: set[str] = set()
    for item in program.inputs:
        count = elements(item)
        for dim in item.shape:
            if dim.symbol is not None and dim.symbol not in known:
                known.add(dim.symbol)
                yield _Slot(dim.symbol, dim.size, _beside(program, dim.symbol))
        match item.recipe.kind:
            case "trues" | "distinct":
                yield _Slot(item.name, int(item.recipe.args[0]) if item.recipe.args else count, 1)
            case "sizes":
                for place, entry in enumerate(_cycle(item.recipe.args, count)):
                    yield _Slot(f"{item.name}[{place}]", int(entry), 1)


def _beside(program: Program, symbol: str) -> int:
    """The most elements of an input for a size of 1 of this symbol."""
    inputs = (item for item in program.inputs if any(dim.symbol == symbol for dim in item.shape))
    return max(
        prod(1 if dim.symbol == symbol else max(dim.size, 9 * (dim.symbol is not None)) for dim in item.shape)
        for item in inputs
    )


def _constants(program: Program) -> frozenset[int]:
    """The integers in a program and its options, and its static sizes, up to 200."""
    dims = {dim.size for item in program.inputs for dim in item.shape if dim.symbol is None}
    literals = {
        part.value
        for whole in expressions(program)
        for part in walk(whole)
        if isinstance(part, Value) and type(part.value) is int
    }
    numbers = {option.number for option in program.options if option.number is not None}
    return frozenset(number for number in dims | literals | numbers if 0 <= number <= 200)


def static(program: Program) -> Program:
    """The program with each dim static, at its example size."""
    inputs = (replace(item, shape=tuple(Dim(dim.size) for dim in item.shape)) for item in program.inputs)
    return replace(program, inputs=tuple(inputs))


def at_data_size(program: Program, data_size: CallSize) -> Program:
    """The program with every data-dependent size set to `data_size`, as far as possible.

    Data-dependent sizes are the k of `trues(k)` and `distinct(k)`, each entry of `sizes(...)`, and the dims
    with a symbol. All dims of one symbol change together. `equal` is the size of a static dim of another input,
    or of the same input if no other has one. `all` is every element for `trues` and `distinct`, else the
    largest of the example size and the static dims. No size is outside of the bounds `min` and `max` of its options.
    """
    if data_size == "example":
        return program
    if data_size == NUMBERS:
        return _with_numbers_zero(program)
    if data_size in VALUE_CALLS:
        return replace(program, inputs=tuple(_with_values(item, data_size) for item in program.inputs))
    symbols = {
        dim.symbol: _allowed(
            program, dim.symbol, size_of(data_size, dim.symbol, dim.size, _statics(program, item), None)
        )
        for item in program.inputs
        for dim in item.shape
        if dim.symbol is not None
    }
    return replace(
        program, inputs=tuple(_input_at(item, data_size, symbols, _statics(program, item)) for item in program.inputs)
    )


def _allowed(program: Program, symbol: str, size: int) -> int:
    """The size, or the nearest one within the bounds of the program's options."""
    least, most = range_of(program, symbol)
    return max(least, size if most is None else min(size, most))


def _with_numbers_zero(program: Program) -> Program:
    """The others keep their values: NaN in two factors would hide what a branch does."""
    drawn = {"normal", "uniform", "values"}
    floats = [item for item in program.inputs if item.dtype in FLOATS and item.recipe.kind in drawn]
    special = next((item.name for item in floats if item.shape and item.recipe.kind != "values"), "")
    zero = {item.name for item in floats if not item.shape}
    made = (
        replace(item, recipe=Recipe("zeros" if item.name in zero else "special"))
        if item.name in {*zero, special}
        else item
        for item in program.inputs
    )
    return replace(program, inputs=tuple(made))


def _with_values(item: Input, call: CallSize) -> Input:
    kind = VALUE_KINDS[call.removeprefix("values-")]
    fits = item.dtype in FLOATS or kind in {"zeros", "ones"}
    return replace(item, recipe=Recipe(kind)) if item.recipe.kind in {"normal", "uniform"} and fits else item


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


MARKED: Final = frozenset({"fake", "export-strict", "compile", "aot", "aot-decomposed", "inductor", "cpp-wrapper"})
"""The stages that make dims unbacked by `mark_unbacked`. Non-strict export ignores that mark. In export, the graph
selects all elements of the dim by a mask instead.
"""

COMPILED: Final = frozenset({"compile", "aot", "aot-decomposed", "inductor", "cpp-wrapper"})


def at_size(program: Program, stage: str, size: CallSize) -> tuple[Program, dict[str, int]]:
    """The program with the inputs of a call at this data size, and how many elements the mask of each symbol keeps."""
    return (at_data_size(program, size), {}) if stage in MARKED else masked_at_size(program, size)


def masked_at_size(program: Program, size: CallSize) -> tuple[Program, dict[str, int]]:
    """The same for a captured program that takes tensors of the example's shapes alone.

    Inputs with unbacked dims stay as they are there, and masks keep at most all of their elements.
    """
    resized = at_data_size(program, size)
    kept = {dim.symbol: dim.size for one in resized.inputs for dim in one.shape if dim.symbol is not None}
    pairs = zip(program.inputs, resized.inputs, strict=True)
    return replace(resized, inputs=tuple(old if old.shape != new.shape else new for old, new in pairs)), kept
