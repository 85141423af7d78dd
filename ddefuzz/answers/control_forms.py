"""Makes the variants of a program that control runs capture: none of their sizes and numbers depends on data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from ddefuzz.execute.sources import Source
from ddefuzz.minimize.facts import Inspect, Scalar, StandIn
from ddefuzz.minimize.order import operations
from ddefuzz.minimize.rewrite import fresh_name, newly_dead_dropped, tidy, with_value, without_steps
from ddefuzz.program.model import (
    Attribute,
    Dim,
    Expr,
    Index,
    Input,
    Literal,
    Name,
    Program,
    Recipe,
)
from ddefuzz.program.recipes import DIFFERENTIABLE

FindSource: TypeAlias = Callable[[Program], Source | None]


def without_sources(program: Program, inspect: Inspect, find: FindSource) -> Program | None:
    """The program with each source of data-dependent sizes replaced by an input, or by a size of an input.

    None if the program does not run, if a source's value is not known, or if nothing is left to capture.
    """
    whole, changed = operations(program), program
    for _ in range(whole + 1):
        facts = inspect(changed)
        if facts is None:
            return None
        source = find(changed)
        if source is None:
            return program if changed is program else _capturable(tidy(changed))
        following = _replaced(changed, facts, source)
        if following is None:
            return None
        changed = following
    return None


def static(program: Program) -> Program:
    """The program with each dim static, at its example size."""
    return replace(
        program,
        inputs=tuple(replace(one, shape=tuple(Dim(dim.size) for dim in one.shape)) for one in program.inputs),
    )


def _capturable(program: Program) -> Program | None:
    return program if operations(program) else None


def _replaced(program: Program, facts: Mapping[Expr, StandIn], source: Source) -> Program | None:
    place, operation = source
    if place < len(program.steps) and program.steps[place].value == operation:
        values: dict[str, Expr] = {}
        for target in program.steps[place].targets:
            found = _stand_in(program, facts.get(Name(target)))
            if found is None:
                return None
            program, values[target] = found
        return without_steps(program, (place,), values)
    found = _stand_in(program, facts.get(operation))
    if found is None:
        return None
    after, value = found
    return newly_dead_dropped(after, with_value(after, operation, value))


def _stand_in(program: Program, known: StandIn | None) -> tuple[Program, Expr] | None:
    """The program with an input that replaces a value, and the expression that reads it."""
    name = fresh_name(program)
    match known:
        case Scalar(bool(value) | float(value)):
            return program, Literal(value)
        case Scalar(int(value)) if value < 0:
            return program, Literal(value)
        case Scalar(int(value), symbol):
            sized = Input(name, "float32", (Dim(value, symbol or f"u_{name}"),), Recipe("normal"))
            return _with_input(program, sized), Index(Attribute(Name(name), "shape"), Literal(0))
        case Input():
            needs_grad = known.dtype in DIFFERENTIABLE and any(one.requires_grad for one in program.inputs)
            return _with_input(program, replace(known, name=name, requires_grad=needs_grad)), Name(name)
        case _:
            return None


def _with_input(program: Program, added: Input) -> Program:
    return replace(program, inputs=(*program.inputs, added))
