"""Which arguments of torch's functions no row of the catalogue, and no sample of OpInfo, gives another value than the
default. Rows and samples are read as programs, and none is run.

A function of Python has its parameters in its signature, one of C++ in the schemas of its overloads.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
import torch

from ci.bench.command import Result, Session
from ddefuzz.errors import UnsupportedError
from ddefuzz.generate import opinfo
from ddefuzz.ops.catalogue import OPS
from ddefuzz.ops.conversions import TEMPLATES
from ddefuzz.ops.spec import Choice, Slot
from ddefuzz.program.evaluate import resolve
from ddefuzz.program.expressions import parse_expression, print_expression
from ddefuzz.program.model import Call, Constant, Expr, Literal, Name, expressions, walk
from ddefuzz.show.blocks import prose, table

LEFT_OUT: Final = frozenset(
    {
        *("dtype", "device", "layout", "pin_memory", "requires_grad", "generator", "names", "out"),
        *("size_average", "reduce", "inplace", "_stacklevel", "tracked"),
    }
)
"""Arguments that say where and of what type a result is, that are deprecated, or that sweeps give (`out`)."""


class Parameter(NamedTuple):
    """A parameter with a default that is a bool, a text or None. `at` is its position, None if it has a name only."""

    name: str
    at: int | None
    default: object


class Argument(msgspec.Struct, frozen=True):
    """A parameter of a function, and the values other than its default that rows and samples give it, as text."""

    function: str
    name: str
    default: str
    catalogue: tuple[str, ...]
    opinfo: tuple[str, ...]


class Arguments(msgspec.Struct, frozen=True):
    """The parameters of the functions that the catalogue calls, by function."""

    arguments: tuple[Argument, ...]
    schema: str = "ddefuzz.bench.arguments/1"


def run(session: Session) -> Result:
    """Read all rows of the catalogue, and all samples of OpInfo that can be programs."""
    rows: dict[tuple[str, str], set[str]] = defaultdict(set)
    functions = set[str]()
    for call, slots in _catalogue():
        functions.add(call.function)
        for name, value in _given(call, slots):
            rows[call.function, name].add(value)
    samples: dict[tuple[str, str], set[str]] = defaultdict(set)
    for number, op in enumerate(names := tuple(opinfo.entries()), 1):
        session.live.update(f"{number} of {len(names)} entries of OpInfo", is_last=number == len(names))
        for call in _of_samples(op):
            for name, value in _given(call, {}):
                samples[call.function, name].add(value)
        if session.stopped():
            raise KeyboardInterrupt
    record = Arguments(
        tuple(
            Argument(function, name, repr(default), *(tuple(sorted(of[function, name])) for of in (rows, samples)))
            for function in sorted(functions)
            for name, default in sorted({(one.name, one.default) for one in parameters(function)}, key=str)
        )
    )
    return Result(record, (summary(record.arguments), _table(record.arguments)))


def summary(arguments: tuple[Argument, ...]) -> Any:
    """How many have no other value, in a sentence."""
    never = [one for one in arguments if not one.catalogue]
    return prose(
        "{} arguments of {} functions are a bool, a text or optional. No row of the catalogue gives {} of them another "
        "value than the default, and neither does a sample of OpInfo for {} of these.",
        str(len(arguments)),
        str(len({one.function for one in arguments})),
        str(len(never)),
        str(sum(not one.opinfo for one in never)),
    )


def _table(arguments: tuple[Argument, ...]) -> Any:
    never = sorted((one for one in arguments if not one.catalogue), key=lambda one: (bool(one.opinfo), one.function))
    cells = ((one.function, one.name, one.default, ", ".join(one.opinfo[:4])) for one in never)
    return table(("function", "argument", "default", "in OpInfo"), cells, code=("function",), folding=("in OpInfo",))


@cache
def parameters(function: str) -> tuple[Parameter, ...]:
    """The parameters of a function of torch that count, of all its overloads. Empty if nothing is known of it."""
    with suppress(TypeError, ValueError, UnsupportedError):  # a function of C++, or one of a module that is not loaded
        listed = list(inspect.signature(resolve(function)).parameters.values())
        if all(one.kind is not one.VAR_POSITIONAL for one in listed):
            return tuple(
                Parameter(one.name, None if one.kind is one.KEYWORD_ONLY else at, one.default)
                for at, one in enumerate(listed)
                if _counts(one.name, one.default)
            )
    *folders, last = function.split(".")
    names = (last, "_".join([*folders[1:], last]))
    schemas = [schema for name in names for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}")]
    return tuple(
        dict.fromkeys(
            Parameter(one.name, None if one.kwarg_only else at, one.default_value)
            for schema in schemas
            for at, one in enumerate(schema.arguments)
            if one.has_default_value() and _counts(one.name, one.default_value)
        )
    )


def _counts(name: str, default: object) -> bool:
    return name not in LEFT_OUT and (default is None or isinstance(default, bool | str))


def _catalogue() -> Iterator[tuple[Call, dict[str, Slot]]]:
    for spec in OPS:
        yield from ((call, dict(spec.slots)) for call in _calls(parse_expression(spec.template)))
    for template in TEMPLATES:
        yield from ((call, {}) for call in _calls(parse_expression(template)))


def _of_samples(op: str) -> Iterator[Call]:
    """The calls of an entry's samples, of its main dtype."""
    for dtype in opinfo.dtypes(op)[:1]:
        for program in opinfo.samples(op, dtype):
            for expr in expressions(program):
                yield from _calls(expr)


def _calls(expr: Expr) -> Iterator[Call]:
    """The calls in an expression. A method is counted as the function of torch of the same name, if there is one."""
    for node in walk(expr):
        if isinstance(node, Call):
            name = node.function.removeprefix("Tensor.")
            yield replace(node, function=f"torch.{name}") if name != node.function and hasattr(torch, name) else node


def _given(call: Call, slots: dict[str, Slot]) -> Iterator[tuple[str, str]]:
    """The parameters to which a call gives another value than the default, each with the value."""
    named = dict(call.kwargs)
    for parameter in parameters(call.function):
        given = named.get(parameter.name)
        if given is None and parameter.at is not None and parameter.at < len(call.args):
            given = call.args[parameter.at]
        if given is None:
            continue
        slot = slots.get(given.id) if isinstance(given, Name) else None
        for value in slot.options if isinstance(slot, Choice) else (given,):
            if not (isinstance(value, Literal | Constant) and print_expression(value) == repr(parameter.default)):
                yield parameter.name, print_expression(value)
