"""The program of a case, whatever its origin: drawn, of samples, or a mutation of one that reached something new.

A mutated program is built again step by step (`Lockstep`), so it is as valid as a drawn one. A step that no longer
runs is left out, with all steps that need it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import count, groupby, islice
from operator import attrgetter
from random import Random
from typing import Final, NamedTuple, TypeAlias

from ddefuzz.generate import opinfo
from ddefuzz.generate.draw import (
    ATTEMPTS_PER_STEP,
    OTHER_SIZES,
    STARTS,
    attempt,
    case,
    drawn_case,
    inputs_read,
    pick,
    respelled,
    with_gradients,
    with_options,
)
from ddefuzz.generate.lockstep import REFUSALS, WORD_BITS, Choices, Handle, Journal, Lockstep, strict_eager
from ddefuzz.generate.profiles import (
    SHORT,
    Again,
    Draw,
    How,
    Mutate,
    Origin,
    Profile,
    Respell,
    Sample,
    Single,
    profile_named,
)
from ddefuzz.generate.variants import UNBACKED_FORMS, variants
from ddefuzz.ops.catalogue import CALLABLES, OPS, parse
from ddefuzz.ops.spec import OpSpec
from ddefuzz.program.model import (
    Call,
    Dim,
    Expr,
    Index,
    Input,
    Literal,
    Name,
    Program,
    Sequence,
    Step,
    functions_in,
    names_in,
    substitute,
    walk,
    with_object,
)
from ddefuzz.program.options import with_fitting
from ddefuzz.program.recipes import LAYOUTS, fault_of, with_fitting_layout
from ddefuzz.program.sizes import static

ATTEMPTS: Final = 60
NUMBERS: Final = tuple(spec for spec in STARTS if "item()" in str(spec))
"""What begins a program whose op takes no tensor: it wants a size at hand, and no op before it that might fail."""


def singles(spec: OpSpec, count: int, word: int = 0) -> Iterator[Program]:
    """Up to `count` programs of an op, the same at every call, different for another `word`."""
    programs: set[Program] = set()
    of_word = f":{word}" if word else ""
    for number in range(ATTEMPTS):
        if len(programs) == count:
            return
        lockstep = Lockstep("2")
        choices = Choices(random.Random(f"{spec}:{number}{of_word}").getrandbits(WORD_BITS))
        with strict_eager():
            if number >= ATTEMPTS // 2 and not attempt(lockstep, choices, choices.pick(NUMBERS)):
                continue
            if not attempt(lockstep, choices, spec):
                continue
        program = lockstep.program()
        if lockstep.steps and len(program.inputs) == len(inputs_read(program)) and program not in programs:
            programs.add(program)
            yield program


def spread(programs: Iterable[Program]) -> list[Program]:
    """Programs in an order that puts unlike ones first: one of each kind, then a second of each, and so on."""
    kinds: dict[object, list[Program]] = defaultdict(list)
    for program in programs:
        kinds[_kind(program)].append(program)
    rounds = max(map(len, kinds.values()), default=0)
    return [group[turn] for turn in range(rounds) for group in kinds.values() if turn < len(group)]


def _kind(program: Program) -> object:
    """What a guard may depend on: ranks, empty and one-element dims, layouts, and the forms of the arguments."""
    inputs = tuple((item.dtype, item.layout, tuple(min(dim.size, 2) for dim in item.shape)) for item in program.inputs)
    return inputs, tuple(_shape_of_call(node) for step in program.steps for node in walk(step.value))


def _shape_of_call(node: object) -> str:
    match node:
        case Call(function, args, kwargs):
            return f"{function}({len(args)}, {', '.join(name for name, _ in kwargs)})"
        case Literal(str() | bool() | None as value):
            return repr(value)
        case Name():
            return "x"
        case Literal(value):
            return type(value).__name__
        case _:
            return type(node).__name__


LISTED, SAMPLES = 16, 6
"""How many samples of an op are made, and how many of them, unlike ones first, are used."""

FROM_DATA: Final = frozenset({"mask", "item", "number", "scalar"})
"""Kinds of forms in which the values of an input make the unbacked sizes or numbers. All dims may be static."""

TRIES = 8
"""How many samples of an op are tried, the requested one first, until eager accepts one."""

SPECS: Final[dict[str, list[OpSpec]]] = defaultdict(list)
"""The ops of the catalogue by template. One template may have several rows."""

for _spec in OPS:
    SPECS[str(_spec)].append(_spec)


def sampled(wanted: Sample) -> tuple[Program, Sample] | None:
    """The requested sample, else another of the op's samples, by `word`. None if eager accepts none of a few."""
    for form, number in islice(_choices(wanted), TRIES):
        candidates = _forms(wanted.op, form)[number:][:1]
        program = next((one for group in candidates for one in group if opinfo.accepts(one)), None)
        if program is not None:
            return program, Sample(wanted.op, form, number, wanted.word)
    return None


def _choices(wanted: Sample) -> Iterator[tuple[str, int]]:
    yield wanted.form, wanted.number
    known = [(form, number) for form in UNBACKED_FORMS for number in range(len(_forms(wanted.op, form)))]
    at = wanted.word % len(known) if known else 0
    yield from (*known[at:], *known[:at])


@lru_cache(maxsize=64)
def _forms(op: str, kind: str) -> tuple[tuple[Program, ...], ...]:
    """The forms of one kind, sample by sample: for each, the candidates. The first accepted one counts."""
    groups = (group for program in _samples(op) for group in groupby(variants(program, (kind,)), attrgetter("name")))
    forms = (tuple(one.program for one in candidates) for _, candidates in groups)
    return tuple(form for form in forms if kind in FROM_DATA or form[0] != static(form[0]))


@lru_cache(maxsize=256)
def _samples(op: str) -> tuple[Program, ...]:
    """With static dims, the samples of the main dtype. Cached, because making them takes longer than running one."""
    if op in SPECS:
        alone = (program for spec in SPECS[op] for program in singles(spec, SAMPLES) if len(program.steps) == 1)
        return tuple(dict.fromkeys(map(static, alone)))[:SAMPLES]
    listed = (program for dtype in opinfo.dtypes(op)[:1] for program in opinfo.samples(op, dtype, most=LISTED))
    return tuple(spread(program for program in listed if CALLABLES.issuperset(functions_in(program)))[:SAMPLES])


TAKEN: Final = ("all", "single", "shared", "mask", "number", "scalar", "layout", "out", "in-place")
"""The forms of a program on static dims that are called."""


def in_doubt(program: Program, word: int = 0) -> Program:
    """A program of one step on static dims, with every dim unbacked if eager accepts that; with a `word`, in one of the
    forms `TAKEN`. Any other is unchanged.
    """
    if len(program.steps) > 1 or program != static(program):
        return program
    random = Random(word)
    kinds = random.sample(TAKEN, len(TAKEN)) if word else TAKEN[:1]
    for kind in kinds:
        forms = [form.program for form in variants(program, (kind,))]
        if accepted := next(filter(opinfo.accepts, random.sample(forms, len(forms))), None):
            return accepted
    return program


def program_of(
    profile: str, seed: int, index: int, origin: Origin, journal: Journal | None = None
) -> tuple[Program, Origin]:
    """The program of a case, and its actual origin.

    If the sample does not exist, another sample of the op is taken. If nothing can be made, a program of the
    profile `short` is drawn at the index. It is not of the campaign's own profile, because the campaign may
    draw that one at this index too.
    """
    if isinstance(origin, Sample):
        sample = sampled(origin)
        if sample is not None:
            return sample
    elif (made := _made(profile, seed, origin, journal)) is not None:
        return made, origin
    return case(SHORT, seed, index, journal), Draw(index, profile=SHORT)


def _made(
    profile: str, seed: int, origin: Draw | Respell | Single | Mutate | Again, journal: Journal | None
) -> Program | None:
    match origin:
        case Draw(index=index, focus=focus, profile=other):
            return drawn_case(other or profile, seed, index, journal, focus).program
        case Respell(base=base, changes=changes):
            return respelled(base.profile or profile, seed, base, changes, journal)
        case Single(op=op, word=word, gradients=gradients):
            alone = next(singles(OPS[op], 1, word), None)
            if alone is None:
                return None
            formed = in_doubt(alone, word)
            return with_gradients(formed, "2") if gradients else formed
        case Mutate(how=how, program=text, word=word, other=other):
            donor = parse(other, "<program>").program if other else None
            return mutate(how, parse(text, "<program>").program, donor, word, profile_named(profile))
        case Again(program=text):
            return parse(text, "<program>").program


MAX_STEPS: Final = 20
"""A program does not grow beyond; what is longer is only changed in place."""

SIZES: Final = (1, 2, 3, 4, 6, 8)
LITERALS: Final = (-2, -1, 0, 1, 2, 3, 4)
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
    if changed is not None and how != "options":
        changed = with_fitting(replace(changed, options=program.options))
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
    fitting = [name for name, layout in LAYOUTS.items() if name != item.layout and layout.fits(len(item.shape))]
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
    return _regrown(program, with_fitting_layout(replace(item, shape=shape)), random)


def _number(parent: Parent) -> Program | None:
    """Change one literal of one step: a number or a flag."""
    program, random = parent.program, parent.random
    choices = [
        (number, literal)
        for number, step in enumerate(program.steps)
        for literal in walk(step.value)
        if isinstance(literal, Literal) and isinstance(literal.value, int | None)
    ]
    if not choices:
        return None
    number, literal = random.choice(choices)
    if isinstance(literal.value, bool):
        new = Literal(not literal.value)
    else:
        new = Literal(random.choice([value for value in LITERALS if value != literal.value]))
    step = program.steps[number]
    steps = _with(program.steps, number, replace(step, value=with_object(step.value, literal, new)))
    return _whole(program, steps, random)


def _dtype(parent: Parent) -> Program | None:
    """Change the dtype of one input."""
    program, random = parent.program, parent.random
    item = random.choice(program.inputs)
    dtype = random.choice([name for name in INPUT_DTYPES if name != item.dtype])
    return _regrown(program, with_fitting_layout(replace(item, dtype=dtype)), random)


def _options(parent: Parent) -> Program | None:
    """Change the options."""
    program, random = parent.program, parent.random
    changed = with_options(program, Choices(random.getrandbits(WORD_BITS)))
    return None if changed == program else changed


MUTATIONS: Final[Mapping[How, Change]] = {
    "insert": _insert,
    "replace": _replace,
    "splice": _splice,
    "layout": _layout,
    "unbacked": _unbacked,
    "number": _number,
    "dtype": _dtype,
    "options": _options,
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


def _with(items: tuple[object, ...], place: int, item: object) -> tuple:  # type: ignore[type-arg]
    return (*items[:place], item, *items[place + 1 :])
