"""Functions for the passes: replace parts of a program, drop steps that became dead, and tidy names and inputs. Facts
say which input or number could replace each value of a program.

They come from running the program eagerly, which is hundreds of times cheaper than capturing it. The caller provides
that (`Inspect`), so passes and driver do not depend on torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeAlias

from ddefuzz.program.model import (
    Attribute,
    Binary,
    Call,
    Expr,
    Index,
    Input,
    Lambda,
    Literal,
    Name,
    Program,
    Step,
    Unary,
    children,
    expressions,
    mapped,
    names_in,
    substitute,
    walk,
)
from ddefuzz.program.options import with_fitting, with_symbols


@dataclass(frozen=True, slots=True)
class Scalar:
    """A Python number. If it varies with the data, `symbol` is that of input dims of the same size, if any."""

    value: int | float | bool
    symbol: str | None = None


StandIn: TypeAlias = Input | Scalar
"""What can replace a value: an input of its dtype, shape and kind of values (its name means nothing), or a number."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Replacements for names and other subexpressions, as far as they are known, and the functions to try first."""

    values: Mapping[Expr, StandIn] = field(default_factory=dict)
    failing: tuple[str, ...] = ()

    def tensor(self, expr: Expr) -> Input | None:
        """The input that could replace this tensor."""
        value = self.values.get(expr)
        return value if isinstance(value, Input) else None

    def scalar(self, expr: Expr) -> Scalar | None:
        """The facts that are known of this number."""
        value = self.values.get(expr)
        return value if isinstance(value, Scalar) else None


Inspect: TypeAlias = Callable[[Program], Mapping[Expr, StandIn] | None]
"""Runs a program eagerly, and returns what could replace its values. None if it does not run."""


def know_nothing(_program: Program) -> Mapping[Expr, StandIn] | None:
    """An `Inspect` that accepts every program and returns no facts."""
    return {}


def variants(expr: Expr, simpler: Callable[[Expr], Iterable[Expr]]) -> Iterator[Expr]:
    """`expr` with exactly one of its nodes, outermost first, replaced by each of the results of `simpler`."""
    yield from simpler(expr)
    places = count()
    for place, node in enumerate(children(expr)):
        for smaller in variants(node, simpler):
            places = count()

            def change(child: Expr, places: Iterator[int] = places, place: int = place, new: Expr = smaller) -> Expr:
                return new if next(places) == place else child

            yield mapped(expr, change)


def everywhere(program: Program, simpler: Callable[[Expr], Iterable[Expr]]) -> Iterator[Program]:
    """The program with exactly one node of its expressions simplified: the last step first, what is returned last."""
    for place in reversed(range(len(program.steps))):
        step = program.steps[place]
        for value in variants(step.value, simpler):
            if not step.targets and not isinstance(value, Call):
                continue  # a statement without a target is a call
            yield newly_dead_dropped(program, replace(program, steps=_with(program.steps, place, value)))
    for returns in variants(program.returns, simpler):
        yield newly_dead_dropped(program, replace(program, returns=returns))


def _with(steps: tuple[Step, ...], place: int, value: Expr) -> tuple[Step, ...]:
    return (*steps[:place], replace(steps[place], value=value), *steps[place + 1 :])


def deeply_mapped(program: Program, change: Callable[[Expr], Expr]) -> Program:
    """The program with `change` applied to every node, innermost first."""

    def deep(expr: Expr) -> Expr:
        return change(mapped(expr, deep))

    steps = tuple(replace(step, value=deep(step.value)) for step in program.steps)
    return replace(program, steps=steps, returns=deep(program.returns))


def with_value(program: Program, old: Expr, new: Expr) -> Program:
    """The program with every `old` replaced."""
    return deeply_mapped(program, lambda node: new if node == old else node)


def without_steps(program: Program, dropped: Iterable[int], values: Mapping[str, Expr]) -> Program:
    """The program without these steps: `values` replace their targets, and steps that are dead then are dropped."""
    gone = set(dropped)
    given = dict(values)
    steps = tuple(
        replace(step, value=substitute(step.value, given)) for i, step in enumerate(program.steps) if i not in gone
    )
    return newly_dead_dropped(program, replace(program, steps=steps, returns=substitute(program.returns, given)))


def uses(program: Program) -> Counter[str]:
    """How often each name is read."""
    return Counter(node.id for expr in expressions(program) for node in walk(expr) if isinstance(node, Name))


def live_steps(steps: tuple[Step, ...], returns: Expr, kept: frozenset[str] = frozenset()) -> tuple[Step, ...]:
    """The steps that `returns` needs, those that have a target in `kept`, and the steps that these need."""
    needed = set(names_in(returns)) | kept
    live: list[Step] = []
    for step in reversed(steps):
        if not needed.isdisjoint(step.targets):
            live.append(step)
            needed |= names_in(step.value)
    return tuple(reversed(live))


def newly_dead_dropped(before: Program, after: Program) -> Program:
    """`after` without the steps whose targets were read in `before` and no longer are. A bare call is never dead."""
    read_before = uses(before)
    unread = frozenset(t for step in before.steps for t in step.targets if not read_before[t])
    needed = set(names_in(after.returns)) | unread
    live: list[Step] = []
    for step in reversed(after.steps):
        if not step.targets or not needed.isdisjoint(step.targets):
            live.append(step)
            needed |= names_in(step.value)
    return replace(after, steps=tuple(reversed(live)))


def fresh_name(program: Program, stem: str = "new") -> str:
    """A name that the program does not use. `tidy` renames it."""
    taken = {one.name for one in program.inputs} | {t for step in program.steps for t in step.targets}
    return next(name for i in count() if (name := f"{stem}{i}") not in taken)


def tidy(program: Program) -> Program:
    """The same program without unread inputs, with its inputs in order of use, and with the usual names.

    Every candidate is tidied before it is tried, so programs that differ only in names are not tried twice.
    """
    read = list(uses(program))
    inputs = sorted((one for one in program.inputs if one.name in read), key=lambda one: read.index(one.name))
    names = _usual_names(replace(program, inputs=tuple(inputs)))
    symbols: dict[str, str] = {}
    for item in inputs:
        for dim in item.shape:
            if dim.symbol is not None:
                symbols.setdefault(dim.symbol, f"u{len(symbols)}")
    renamed: dict[str, Expr] = {old: Name(new) for old, new in names.items()}
    tidied = Program(
        inputs=tuple(
            replace(
                one,
                name=names[one.name],
                shape=tuple(replace(dim, symbol=symbols[dim.symbol]) if dim.symbol else dim for dim in one.shape),
            )
            for one in inputs
        ),
        steps=tuple(
            replace(
                step,
                targets=tuple(names[t] for t in step.targets),
                value=_with_usual_parameters(substitute(step.value, renamed)),
            )
            for step in program.steps
        ),
        returns=_with_usual_parameters(substitute(program.returns, renamed)),
        options=with_symbols(program.options, symbols),
    )
    return with_fitting(tidied)


def _with_usual_parameters(expr: Expr, outside: int = 0) -> Expr:
    """`expr` with the usual names of parameters. `outside` is the number of those of the functions around it."""
    if not isinstance(expr, Lambda):
        return mapped(expr, lambda child: _with_usual_parameters(child, outside))
    places = range(outside, outside + len(expr.parameters))
    new = tuple(PARAMETERS[at] if at < len(PARAMETERS) else f"p{at}" for at in places)
    body = substitute(expr.body, {old: Name(name) for old, name in zip(expr.parameters, new, strict=True)})
    return Lambda(new, _with_usual_parameters(body, outside + len(new)))


PARAMETERS = ("p", "q", "r", "s")
INPUT_STEMS = {"bool": ("mask",), "int64": ("index",)}
TENSOR_STEMS = ("x", "y", "z", "w")
SIZE_STEMS = ("n", "m", "k")
VALUE_STEMS = ("a", "b", "c", "d")


def _usual_names(program: Program) -> dict[str, str]:
    names: dict[str, str] = {}
    taken: set[str] = set()

    def give(old: str, stems: tuple[str, ...]) -> None:
        numbered = (f"{stems[0]}{i}" for i in count(len(stems)))
        new = next(name for name in (*stems, *(next(numbered) for _ in range(len(taken) + 1))) if name not in taken)
        names[old] = new
        taken.add(new)

    for item in program.inputs:
        give(item.name, INPUT_STEMS.get(item.dtype, TENSOR_STEMS))
    sizes: set[str] = set()
    for step in program.steps:
        is_size = _is_size(step.value, sizes)
        for target in step.targets:
            if is_size:
                sizes.add(target)
            give(target, SIZE_STEMS if is_size else VALUE_STEMS)
    return names


_SIZE_FUNCTIONS = frozenset({"int", "len", "Tensor.item", "Tensor.size", "Tensor.numel", "Tensor.dim", "min", "max"})


def _is_size(value: Expr, sizes: set[str]) -> bool:
    """Whether the value looks like a Python number, which is named n, not a."""
    match value:
        case Call(function):
            return function in _SIZE_FUNCTIONS
        case Attribute(_, name):
            return name in {"shape", "ndim"}
        case Index(Attribute(_, "shape")) | Literal():
            return True
        case Name(name):
            return name in sizes
        case Binary(_, left, right):
            return _is_size(left, sizes) and _is_size(right, sizes)
        case Unary(_, operand):
            return _is_size(operand, sizes)
        case _:
            return False
