"""Programs that mean the same as another: renamed, reordered, with dead code, with identities. Nothing is run here.

Each function gives variants of a program, none where it has no place for them. `values` are the dense tensors of the
program, by name: its inputs, and what its steps make in eager.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from ddefuzz.program.model import (
    Binary,
    Call,
    Expr,
    Input,
    Literal,
    Name,
    Program,
    Sequence,
    Step,
    expressions,
    names_in,
    substitute,
    walk,
)
from ddefuzz.program.options import with_symbols
from ddefuzz.program.recipes import FLOATS, INTEGERS, is_placed
from ddefuzz.program.sizes import static


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a tensor of a program: its dtype, the number of its dims, and whether it is contiguous."""

    dtype: str
    rank: int
    contiguous: bool


Values: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Variant:
    """A program that means the same as an original, or a way to mark the dims of the original.

    `inputs` are the places in the original of its inputs, and `symbols` the names of the original's symbols in it;
    without any, both are as in the original. `marks` are arguments of `mark_unbacked` by symbol. With `backed`, the
    dims are dynamic and backed. `form` says in words what was done. `parts` are variants that do a part of it.
    """

    program: Program
    form: str
    inputs: tuple[int, ...] = ()
    symbols: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    backed: bool = False
    parts: tuple[Variant, ...] = ()


MakeVariants: TypeAlias = Callable[[Program, Values], tuple[Variant, ...]]

MOST_PLACES: Final = 4  # dead code and identities are put at so many values, at most

EFFECT: Final = re.compile(
    r"(?<!_)_$|rand|dropout|bernoulli|multinomial|normal|rrelu|poisson|empty|manual_seed|backward|Dropout|RReLU"
)
"""Functions that write to their arguments, draw random numbers, or read memory that nothing has written."""


def symbols_in(program: Program) -> tuple[str, ...]:
    """The symbols of the dims of inputs, each once, in order."""
    every = (dim.symbol for item in program.inputs for dim in item.shape)
    return tuple(dict.fromkeys(symbol for symbol in every if symbol is not None))


def has_effect(expr: Expr) -> bool:
    """Whether an expression does more than to compute its value (`EFFECT`, or `out=`)."""
    calls = [node for node in walk(expr) if isinstance(node, Call)]
    return any(EFFECT.search(call.function) or "out" in dict(call.kwargs) for call in calls)


def backed(program: Program, _values: Values) -> tuple[Variant, ...]:
    """With its dims dynamic and backed."""
    return (Variant(program, "backed sizes", backed=True),) if symbols_in(program) else ()


def made_static(program: Program, _values: Values) -> tuple[Variant, ...]:
    """With its dims static."""
    return (Variant(static(program), "static sizes"),) if symbols_in(program) else ()


HINTS: Final = (1, 64)


def hinted(program: Program, _values: Values) -> tuple[Variant, ...]:
    """With hints that are not the example sizes: all 1, and different ones."""
    symbols = symbols_in(program)
    return tuple(
        Variant(
            program,
            f"hints from {first}",
            marks={symbol: {"hint_override": first + at * (first > 1)} for at, symbol in enumerate(symbols)},
        )
        for first in HINTS
        if symbols
    )


LEAST, MOST = 2, 64  # the bounds of a size, if the example is within them


def bounded(program: Program, _values: Values) -> tuple[Variant, ...]:
    """With bounds of its sizes."""
    sizes = {dim.symbol: dim.size for item in program.inputs for dim in item.shape if dim.symbol is not None}
    marks = {symbol: {"min": min(LEAST, size), "max": max(MOST, size)} for symbol, size in sizes.items()}
    return (Variant(program, "bounds", marks=marks),) if marks else ()


def renamed(program: Program, _values: Values) -> tuple[Variant, ...]:
    """With other names of inputs, results and symbols, in another alphabetical order."""
    targets = [target for step in program.steps for target in step.targets]
    names = list(dict.fromkeys([*(item.name for item in program.inputs), *targets]))
    new = {name: f"{'zyx'[at % 3]}{len(names) - at}_" for at, name in enumerate(names)}
    symbols = {symbol: f"u{9_000 - at}" for at, symbol in enumerate(symbols_in(program))}
    return (Variant(_with_names(program, new, symbols), "other names", symbols=symbols),) if names else ()


def _with_names(program: Program, new: Mapping[str, str], symbols: Mapping[str, str]) -> Program:
    values: dict[str, Expr] = {old: Name(name) for old, name in new.items()}
    return Program(
        tuple(
            replace(
                item,
                name=new[item.name],
                shape=tuple(
                    dim if dim.symbol is None else replace(dim, symbol=symbols[dim.symbol]) for dim in item.shape
                ),
            )
            for item in program.inputs
        ),
        tuple(
            replace(step, targets=tuple(new[target] for target in step.targets), value=substitute(step.value, values))
            for step in program.steps
        ),
        substitute(program.returns, values),
        with_symbols(program.options, symbols),
    )


def turned(program: Program, _values: Values) -> tuple[Variant, ...]:
    """With its inputs in the reverse order, so that their symbols get other numbers."""
    places = tuple(reversed(range(len(program.inputs))))
    if len(places) < 2:
        return ()
    return (Variant(replace(program, inputs=program.inputs[::-1]), "inputs in reverse order", inputs=places),)


def reordered(program: Program, _values: Values) -> tuple[Variant, ...]:
    """With its steps in another order, the last ones as early as they can be.

    Steps change places only if no input, and no symbol of one, leads to both: what torch learns about a size in one
    step may decide a guard in another. A step with an effect, or without a target, stays where it is.
    """
    sources: dict[str, frozenset[str]] = {
        item.name: frozenset({item.name, *(dim.symbol for dim in item.shape if dim.symbol is not None)})
        for item in program.inputs
    }
    order: list[tuple[Step, frozenset[str]]] = []
    for step in program.steps:
        reads = names_in(step.value)
        leads = frozenset[str]().union(*(sources[name] for name in reads))
        sources.update(dict.fromkeys(step.targets, leads))
        at = len(order)
        while not _stays(step) and at and not _stays(order[at - 1][0]) and leads.isdisjoint(order[at - 1][1]):
            if not reads.isdisjoint(order[at - 1][0].targets):
                break  # it reads what has no source: a constant
            at -= 1
        order.insert(at, (step, leads))
    steps = tuple(step for step, _ in order)
    return (Variant(replace(program, steps=steps), "statements in another order"),) if steps != program.steps else ()


def _stays(step: Step) -> bool:
    return not step.targets or has_effect(step.value)


def with_dead_code(program: Program, values: Values) -> tuple[Variant, ...]:
    """With comparisons of tensors with themselves, which nothing reads."""
    return _with_dead(program, values, lambda value: Binary("==", value, value), "a comparison that nothing reads")


def with_dead_symbols(program: Program, values: Values) -> tuple[Variant, ...]:
    """With `nonzero` of tensors, whose unbacked sizes nothing reads. Torch has none of a DTensor."""
    if any(map(is_placed, program.inputs)):
        return ()
    return _with_dead(program, values, lambda value: Call("torch.nonzero", (value,)), "a nonzero that nothing reads")


def _with_dead(program: Program, values: Values, dead: Callable[[Expr], Expr], form: str) -> tuple[Variant, ...]:
    def insert(name: str) -> tuple[tuple[Step, ...], str]:
        return (Step((_fresh(f"dead_{name}", program),), dead(Name(name))),), name

    return _at_places(program, tuple(values)[-MOST_PLACES:], insert, form)


def _fresh(name: str, program: Program) -> str:
    taken = {item.name for item in program.inputs} | {target for step in program.steps for target in step.targets}
    while name in taken:
        name += "_"
    return name


Insert: TypeAlias = Callable[[str], tuple[tuple[Step, ...], str]]
"""The steps after a name is assigned, and the name that later steps read in its place."""


def _at_places(program: Program, names: tuple[str, ...], insert: Insert, form: str) -> tuple[Variant, ...]:
    """The program with steps after each of these names; as parts, after one of them alone."""
    whole = Variant(_inserted(program, names, insert), form)
    if len(names) < 2:
        return (whole,) if names else ()
    parts = tuple(Variant(_inserted(program, (name,), insert), f"{form}: {name}") for name in names)
    return (replace(whole, parts=parts),)


def _inserted(program: Program, names: tuple[str, ...], insert: Insert) -> Program:
    steps: list[Step] = []
    new: dict[str, Expr] = {}

    def added(name: str) -> None:
        if name in names:
            more, read = insert(name)
            steps.extend(more)
            new[name] = Name(read)

    for item in program.inputs:
        added(item.name)
    for step in program.steps:
        steps.append(replace(step, value=substitute(step.value, new)))
        for target in step.targets:
            added(target)
    return replace(program, steps=tuple(steps), returns=substitute(program.returns, new))


def _plus_zero(name: str, value: Value) -> Expr | None:
    # -0.0 + 0 is 0.0, so that of a float is -0.0.
    zero = 0 if value.dtype in INTEGERS else -0.0
    return Binary("+", Name(name), Literal(zero)) if value.dtype in INTEGERS | FLOATS else None


def _split(name: str, item: Input | None) -> Expr | None:
    """The two parts of the last static dim, put together again."""
    dims = [] if item is None else [at for at, dim in enumerate(item.shape) if dim.symbol is None and dim.size > 1]
    if item is None or not dims:
        return None
    sizes = Sequence((Literal(1), Literal(item.shape[dims[-1]].size - 1)), is_list=True)
    dim = Literal(dims[-1])
    return Call("torch.cat", (Call("torch.split", (Name(name), sizes, dim)), dim))


def with_identities(program: Program, values: Values) -> tuple[Variant, ...]:
    """With identities after tensors that are contiguous: `clone`, `view_as`, `+ 0`, split and `cat`.

    Copies are left out of a program that writes in place. The parts have one of the identities each.
    """
    whole = (*expressions(program),)
    names = tuple(name for name, value in values.items() if value.contiguous)[-MOST_PLACES:]
    if any(map(has_effect, whole)):
        return ()
    items = {item.name: item for item in program.inputs}
    forms: tuple[tuple[str, Callable[[str, str], Expr | None]], ...] = (
        ("clone", lambda read, _name: Call("Tensor.clone", (Name(read),))),
        ("view_as", lambda read, _name: Call("Tensor.view_as", (Name(read), Name(read)))),
        ("+ 0", lambda read, name: _plus_zero(read, values[name])),
        ("split and cat", lambda read, name: _split(read, items.get(name))),
    )

    def insert(*chosen: tuple[str, Callable[[str, str], Expr | None]]) -> Insert:
        def steps(name: str) -> tuple[tuple[Step, ...], str]:
            made: list[Step] = []
            read = name
            for number, (_, identity) in enumerate(chosen):
                value = identity(read, name)
                if value is not None:
                    read = _fresh(f"same_{name}_{number}", program)
                    made.append(Step((read,), value))
            return tuple(made), read

        return steps

    if not names:
        return ()
    parts = tuple(Variant(_inserted(program, names, insert(one)), one[0]) for one in forms)
    different = tuple(part for part in parts if part.program != program)
    return (Variant(_inserted(program, names, insert(*forms)), "identities", parts=different),)


def permuted(program: Program, values: Values) -> tuple[Variant, ...]:
    """With the rows of its inputs in reverse order, and those of its results again.

    It means the same only if the program is row-wise: that is for the caller to check. Inputs have rows if their first
    dim is that of the first input.
    """
    returned = program.returns.items if isinstance(program.returns, Sequence) else (program.returns,)
    results = [one for one in returned if isinstance(one, Name) and one.id in values and values[one.id].rank]
    dims = [item.shape[0] for item in program.inputs if item.shape][:1]
    if len(results) < len(returned) or not results or not dims:
        return ()
    rows = [item.name for item in program.inputs if item.shape and item.shape[0] == dims[0]]
    new = {name: _fresh(f"rows_{name}", program) for name in rows}
    read: dict[str, Expr] = {old: Name(name) for old, name in new.items()}
    steps = (
        *(Step((new[name],), _flipped(Name(name))) for name in rows),
        *(replace(step, value=substitute(step.value, read)) for step in program.steps),
    )
    flipped = tuple(_flipped(substitute(one, read)) for one in results)
    returns = replace(program.returns, items=flipped) if isinstance(program.returns, Sequence) else flipped[0]
    return (Variant(replace(program, steps=steps, returns=returns), "rows in reverse order"),)


def _flipped(value: Expr) -> Expr:
    return Call("torch.flip", (value, Sequence((Literal(0),))))
