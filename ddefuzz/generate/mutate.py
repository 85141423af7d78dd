"""Mutations of a program that reached something new.

A mutated program is built again step by step (`Lockstep`), so it is as valid as a drawn one. A step that no longer
runs is left out, with all steps that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from random import Random
from typing import Final, NamedTuple, TypeAlias

from ddefuzz.generate.lockstep import REFUSALS, WORD_BITS, Choices, Handle, Lockstep, strict_eager
from ddefuzz.generate.origin import How
from ddefuzz.generate.profiles import Profile
from ddefuzz.generate.strategies import ATTEMPTS_PER_STEP, OTHER_SIZES, attempt, inputs_read, pick
from ddefuzz.program.model import (
    Dim,
    Expr,
    Index,
    Input,
    Literal,
    Name,
    Program,
    Sequence,
    Step,
    mapped,
    names_in,
    substitute,
    walk,
)
from ddefuzz.program.recipes import LAYOUTS, fault_of

MAX_STEPS: Final = 20
"""A program does not grow beyond; what is longer is only changed in place."""

SIZES: Final = (1, 2, 3, 4, 6, 8)
NUMBERS: Final = (-2, -1, 0, 1, 2, 3, 4)
INPUT_DTYPES: Final = ("float32", "float64", "int64", "bool", "complex64", "bfloat16")


class Parent(NamedTuple):
    """What is mutated: a program, another one (for `splice`), a source of details, and the profile of new steps."""

    program: Program
    other: Program | None
    random: Random
    profile: Profile


Change: TypeAlias = Callable[[Parent], Program | None]


def mutate(how: How, program: Program, other: Program | None, word: int, profile: Profile) -> Program | None:
    """`program` after the mutation `how`, with details from `word`. None if nothing valid results."""
    if any(item.requires_grad for item in program.inputs):
        return None
    try:
        with strict_eager():
            changed = MUTATIONS[how](Parent(program, other, Random(word), profile))
    except REFUSALS:
        return None
    if changed is None or not changed.steps or len(changed.inputs) != len(inputs_read(changed)):
        return None
    return changed


def _insert(parent: Parent) -> Program | None:
    """Insert one step. Later steps use its value in place of another, where it fits."""
    if len(parent.program.steps) >= MAX_STEPS:
        return None
    return _with_new_step(parent.random.randint(0, len(parent.program.steps)), frozenset(), parent)


def _replace(parent: Parent) -> Program | None:
    """Replace one step by another."""
    place = parent.random.randrange(len(parent.program.steps))
    return _with_new_step(place, frozenset({place}), parent)


def _with_new_step(place: int, without: frozenset[int], parent: Parent) -> Program | None:
    program, _, random, profile = parent
    grown = _Regrown(random, program)
    grown.steps(program.steps[:place])
    before = len(grown.lockstep.steps)
    for _ in range(ATTEMPTS_PER_STEP):
        choices = Choices(random.getrandbits(WORD_BITS))
        if attempt(grown.lockstep, choices, pick(profile, choices)):
            break
    if len(grown.lockstep.steps) == before:
        return None
    if random.random() < 0.5 and grown.lockstep.tensors:
        grown.stand_in(random, grown.lockstep.tensors[-1])
    grown.steps(tuple(step for number, step in enumerate(program.steps) if number >= place and number not in without))
    return grown.lockstep.program()


def _splice(parent: Parent) -> Program | None:
    """Append the steps of another program, applied to a value of this one."""
    program, other, random, _ = parent
    if other is None or len(program.steps) + len(other.steps) > MAX_STEPS:
        return None
    if any(item.requires_grad for item in other.inputs):
        return None
    grown = _Regrown(random, program)
    grown.steps(program.steps)
    donors = grown.lockstep.tensors[:]
    grown.names.clear()
    for item in _renamed(other.inputs, program.inputs):
        fitting = [h for h in donors if h.left.dim() == len(item.shape) and str(h.left.dtype) == f"torch.{item.dtype}"]
        if fitting and random.random() < 0.8:
            grown.names[item.name] = random.choice(fitting).expr
        else:
            grown.input(item)
    grown.steps(other.steps)
    return grown.lockstep.program()


def _layout(parent: Parent) -> Program | None:
    """Change the layout of one input."""
    program, random = parent.program, parent.random
    item = random.choice(program.inputs)
    fitting = [
        name
        for name, layout in LAYOUTS.items()
        if name != item.layout and layout.min_rank <= len(item.shape) <= layout.max_rank
    ]
    return _regrown(program, replace(item, layout=random.choice(fitting)), random) if fitting else None


def _unbacked(parent: Parent) -> Program | None:
    """Change which dims of an input are unbacked, which share a size, and their example sizes."""
    program, random = parent.program, parent.random
    with_dims = [item for item in program.inputs if item.shape]
    if not with_dims:
        return None
    item = random.choice(with_dims)
    symbols = sorted({dim.symbol for one in program.inputs for dim in one.shape if dim.symbol is not None})
    fresh = f"u{next(number for number in range(99) if f'u{number}' not in symbols)}"
    place = random.randrange(len(item.shape))
    dim = item.shape[place]
    sizes = {d.symbol: d.size for one in program.inputs for d in one.shape if d.symbol is not None}
    options: list[tuple[Dim, ...]] = [
        _with(item.shape, place, Dim(dim.size, fresh)),
        _with(item.shape, place, Dim(dim.size)),
        _with(item.shape, place, Dim(random.choice(SIZES))),
        tuple(Dim(d.size, d.symbol or f"u{50 + number}") for number, d in enumerate(item.shape)),
        tuple(Dim(d.size) for d in item.shape),
        *(_with(item.shape, place, Dim(sizes[symbol], symbol)) for symbol in symbols),
    ]
    shape = random.choice([option for option in options if option != item.shape])
    return _regrown(program, _refit(replace(item, shape=shape)), random)


def _number(parent: Parent) -> Program | None:
    """Change one literal of one step: a number or a flag."""
    program, random = parent.program, parent.random
    found = [
        (number, literal)
        for number, step in enumerate(program.steps)
        for literal in walk(step.value)
        if isinstance(literal, Literal) and isinstance(literal.value, int | None)
    ]
    if not found:
        return None
    number, literal = random.choice(found)
    if isinstance(literal.value, bool):
        new = Literal(not literal.value)
    else:
        new = Literal(random.choice([value for value in NUMBERS if value != literal.value]))
    step = program.steps[number]
    steps = _with(program.steps, number, replace(step, value=_put(step.value, literal, new)))
    return _whole(program, steps, random)


def _dtype(parent: Parent) -> Program | None:
    """Change the dtype of one input."""
    program, random = parent.program, parent.random
    item = random.choice(program.inputs)
    dtype = random.choice([name for name in INPUT_DTYPES if name != item.dtype])
    return _regrown(program, _refit(replace(item, dtype=dtype)), random)


MUTATIONS: Final[Mapping[How, Change]] = {
    "insert": _insert,
    "replace": _replace,
    "splice": _splice,
    "layout": _layout,
    "unbacked": _unbacked,
    "number": _number,
    "dtype": _dtype,
}


class _Regrown:
    """A program that is built again under new names. `names` maps old names to new ones."""

    def __init__(self, random: Random, program: Program) -> None:
        self.lockstep = Lockstep(random.choice(OTHER_SIZES))
        self.names: dict[str, Expr] = {}
        for item in program.inputs:
            self.input(item)

    def input(self, item: Input) -> None:
        handle = self.lockstep.add_input(item.dtype, item.shape, item.recipe, item.layout)
        self.names[item.name] = handle.expr

    def stand_in(self, random: Random, made: Handle) -> None:
        """Use a new value in place of an older one from here on."""
        old = [name for name, expr in self.names.items() if expr != made.expr]
        if old:
            self.names[random.choice(old)] = made.expr

    def steps(self, steps: tuple[Step, ...]) -> None:
        """Add steps, as far as they run."""
        for step in steps:
            if not names_in(step.value) <= self.names.keys():
                continue
            if self.lockstep.add_step(substitute(step.value, self.names)) is None:
                for target in step.targets:
                    self.names.pop(target, None)
                continue
            self._name(step, self.lockstep.steps[-1])

    def _name(self, old: Step, new: Step) -> None:
        targets: list[Expr] = [Name(target) for target in new.targets]
        if old.unpack == new.unpack:
            self.names.update(zip(old.targets, targets, strict=False))
        elif new.unpack:
            self.names.update({target: Sequence(tuple(targets)) for target in old.targets})
        elif targets:
            self.names.update({t: Index(targets[0], Literal(number)) for number, t in enumerate(old.targets)})


def _renamed(inputs: tuple[Input, ...], others: tuple[Input, ...]) -> tuple[Input, ...]:
    """Inputs whose symbols differ from those of the inputs `others`."""
    taken = {dim.symbol for item in others for dim in item.shape}
    own = {dim.symbol for item in inputs for dim in item.shape if dim.symbol is not None}
    free = (name for name in map("u{}".format, count()) if name not in taken)
    names = dict(zip(sorted(own), free, strict=False))
    return tuple(
        replace(item, shape=tuple(d if d.symbol is None else Dim(d.size, names[d.symbol]) for d in item.shape))
        for item in inputs
    )


def _regrown(program: Program, changed: Input, random: Random) -> Program | None:
    """`program` with one input changed, if all its steps still run."""
    if fault_of(changed) is not None:
        return None
    inputs = tuple(changed if item.name == changed.name else item for item in program.inputs)
    sizes = {dim.symbol: dim.size for dim in changed.shape if dim.symbol is not None}
    if any(dim.symbol in sizes and dim.size != sizes[dim.symbol] for item in inputs for dim in item.shape):
        return None
    return _whole(replace(program, inputs=inputs), program.steps, random)


def _whole(program: Program, steps: tuple[Step, ...], random: Random) -> Program | None:
    """A program with these steps, if all of them run."""
    grown = _Regrown(random, program)
    grown.steps(steps)
    return grown.lockstep.program() if len(grown.lockstep.steps) == len(steps) else None


def _refit(item: Input) -> Input:
    """An input whose layout and recipe may no longer fit, with ones that do."""
    layout = LAYOUTS[item.layout]
    if not layout.min_rank <= len(item.shape) <= layout.max_rank:
        item = replace(item, layout="contiguous")
    return item


def _put(expr: Expr, old: Expr, new: Expr) -> Expr:
    """`expr` with the object `old` replaced. Equal objects are kept."""
    return new if expr is old else mapped(expr, lambda child: _put(child, old, new))


def _with(items: tuple[object, ...], place: int, item: object) -> tuple:  # type: ignore[type-arg]
    return (*items[:place], item, *items[place + 1 :])
