"""Collects facts about a program by running it eagerly, at its example size and at other data sizes.

This is the only module of the package that imports torch. A program can crash or hang its process, so this runs in
a worker, like captures.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeAlias

import torch

from ddefuzz.errors import UnsupportedError
from ddefuzz.minimize.order import is_operation
from ddefuzz.minimize.rewrite import Inspect, Scalar, StandIn
from ddefuzz.program.evaluate import evaluate, materialize, run_step
from ddefuzz.program.model import Call, Dim, Expr, Input, Name, Program, Recipe, walk, walk_outside
from ddefuzz.program.sizes import DataSize, at_data_size

OTHER_SIZES: tuple[DataSize, ...] = ("2", "all", "1", "0")
"""Data sizes, tried in this order until two have run. What differs between them depends on data."""

MAX_LISTED = 32
"""Integer tensors of at most this many elements can be replaced by an input that lists their values."""

OTHER_VALUES = {"normal": Recipe("ones"), "uniform": Recipe("ones"), "index": Recipe("index", (1,))}
"""For each kind of recipe, one of the same size and range whose values are all equal."""

Sizes: TypeAlias = tuple[int, ...]
Values: TypeAlias = dict[Expr, object]


def inspect(program: Program, *, other_size: bool = False) -> Mapping[Expr, StandIn] | None:
    """The inputs or numbers that could replace each value of the program; None if the program does not run.

    With `other_size`, it also has to run at another data size, if it has any. A program that does not cannot be
    captured for all sizes, so an error in capturing it is no bug.
    """
    # torch's warnings about candidates are of no interest.
    with warnings.catch_warnings(action="ignore"):
        return _inspect(program, other_size=other_size)


def inspector(program: Program) -> Inspect:
    """`inspect` for candidates of a program: with `other_size`, unless the program itself fails at other sizes.

    Some programs run at one size only: `torch.cross` requires a dim of size 3.
    """
    other_size = inspect(program, other_size=True) is not None
    return partial(inspect, other_size=other_size)


def deprecated(program: Program) -> bool:
    """Whether torch warns that something in the program is deprecated, such as an `out=` of the wrong size."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _values(program)
    finally:
        torch.set_warn_always(always)
    return any("deprecated" in str(warning.message) for warning in caught)


def _inspect(program: Program, *, other_size: bool) -> Mapping[Expr, StandIn] | None:
    example = _values(program)
    if example is None:
        return None
    resized = [other for other in (at_data_size(program, size) for size in OTHER_SIZES) if other != program]
    at_other_sizes = _that_run(resized)
    if other_size and resized and not at_other_sizes:
        return None
    others = at_other_sizes + _that_run((_with_other_values(program),))
    symbols, start = _symbols(program, example, others), _unused_number(program)
    facts: dict[Expr, StandIn] = {}
    for expr, value in example.items():
        stand_in = _stand_in(value, [other.get(expr) for other in others], symbols, start)
        if stand_in is not None:
            facts[expr] = stand_in
    return facts


def _that_run(programs: Iterable[Program]) -> list[Values]:
    """The values of the first two programs that run."""
    values = (_values(program) for program in programs)
    return list(islice((found for found in values if found is not None), 2))


def _with_other_values(program: Program) -> Program:
    """The program with all values of inputs equal. Sizes that change then (of `nonzero`, `unique`) depend on data."""
    return replace(
        program,
        inputs=tuple(replace(one, recipe=OTHER_VALUES.get(one.recipe.kind, one.recipe)) for one in program.inputs),
    )


def _values(program: Program) -> Values | None:
    """All names and the operations inside of expressions, with their values; None if a step raises.

    None also if the returned value is one that a capture cannot return.
    """
    try:
        env: dict[str, object] = dict(materialize(program))
        values: Values = {}
        for step in program.steps:
            values |= _inside(step.value, env)
            env |= run_step(step, env)
        if not _can_be_returned(evaluate(program.returns, env)):
            return None
        values |= _inside(program.returns, env)
    except UnsupportedError:
        raise
    # torch may raise any error for an invalid program. Here it only matters that the program does not run.
    except Exception:  # noqa: BLE001
        return None
    return values | {Name(name): value for name, value in env.items()}


def _can_be_returned(value: object) -> bool:
    """Whether a capture can return the value, and it can be compared: it is no internal object of torch, such as the
    name of a backend, and no DTensor.
    """
    if isinstance(value, tuple | list):
        return all(map(_can_be_returned, value))
    is_plain = type(value) in {torch.Tensor, torch.nn.Parameter}
    return value is None or is_plain or isinstance(value, bool | int | float | complex | str)


def _inside(expr: Expr, env: Mapping[str, object]) -> Values:
    """The operations below the outermost. Those that write in place are left out, because they are run again here."""
    nested = (node for node in walk_outside(expr) if node is not expr and is_operation(node))
    return {node: evaluate(node, env) for node in nested if not _writes(node)}


def _writes(expr: Expr) -> bool:
    return any(isinstance(node, Call) and node.function.endswith("_") for node in walk(expr))


def _symbols(program: Program, example: Values, others: list[Values]) -> dict[Sizes, str]:
    """Maps varying sizes (their values at each data size) to the symbol of the input dims that vary alike."""
    symbols: dict[Sizes, str] = {}
    for item in program.inputs:
        shapes = [_shape(values[Name(item.name)]) for values in (example, *others)]
        if any(len(shape) != len(item.shape) for shape in shapes):
            continue  # a step changed its rank in place
        for place, dim in enumerate(item.shape):
            if dim.symbol is not None:
                symbols.setdefault(tuple(shape[place] for shape in shapes), dim.symbol)
    return symbols


def _unused_number(program: Program) -> int:
    """The number of the first symbol that is new."""
    symbols = (dim.symbol for item in program.inputs for dim in item.shape if dim.symbol is not None)
    return max([1_000, *(int(symbol[1:]) + 1 for symbol in symbols if symbol[1:].isdecimal())])


def _shape(value: object) -> Sizes:
    """The sizes of a tensor. A nested tensor of strided parts has none."""
    return tuple(value.shape) if isinstance(value, torch.Tensor) and not value.is_nested else ()


def _stand_in(value: object, others: list[object], symbols: dict[Sizes, str], start: int) -> StandIn | None:
    if isinstance(value, bool | int | float):
        varying = any(not isinstance(other, bool | int | float) or other != value for other in others)
        sizes = tuple(int(size) for size in (value, *others) if isinstance(size, int | float))
        return Scalar(value, _symbol(sizes, symbols, start) if varying else None)
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized or value.is_nested:
        return None
    shapes = [_shape(value), *map(_shape, others)]
    if any(len(shape) != value.dim() for shape in shapes):
        return None
    dims = tuple(
        Dim(sizes[0], None if len(set(sizes)) == 1 else _symbol(sizes, symbols, start))
        for sizes in zip(*shapes, strict=True)
    )
    dtype = str(value.dtype).removeprefix("torch.")
    return Input("", dtype, dims, _recipe(value))


def _symbol(sizes: Sizes, symbols: dict[Sizes, str], start: int) -> str:
    return symbols.setdefault(sizes, f"u{start + len(symbols)}")


def _recipe(value: torch.Tensor) -> Recipe:
    if value.dtype == torch.bool:
        return Recipe("trues", (int(value.sum()),))
    if value.dtype.is_floating_point or value.dtype.is_complex:
        return Recipe("normal")
    if value.numel() <= MAX_LISTED:
        return Recipe("values", tuple(int(entry) for entry in value.flatten().tolist()))
    return Recipe("index", (max(1, int(value.max()) + 1),))
