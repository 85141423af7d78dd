"""The program of a case, whatever its origin."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

from ddefuzz.generate import opinfo
from ddefuzz.generate.draw import case, drawn_case, respelled
from ddefuzz.generate.lockstep import WORD_BITS, Choices, Journal, Lockstep, strict_eager
from ddefuzz.generate.mutate import mutate
from ddefuzz.generate.origin import SHORT, Again, Draw, Mutate, Origin, Respell, Sample, Single
from ddefuzz.generate.profiles import profile_named
from ddefuzz.generate.strategies import STARTS, attempt, inputs_read
from ddefuzz.generate.variants import UNBACKED_FORMS, variants
from ddefuzz.ops.catalogue import CALLABLES, OPS, parse
from ddefuzz.ops.spec import OpSpec
from ddefuzz.program.model import Call, Literal, Name, Program, functions_in, walk
from ddefuzz.program.sizes import static

ATTEMPTS: Final = 40
NUMBERS: Final = tuple(spec for spec in STARTS if "item()" in str(spec))
"""What begins a program whose op takes no tensor: it wants a size at hand, and no op before it that might fail."""


def singles(spec: OpSpec, count: int, word: int = 0) -> Iterator[Program]:
    """Up to `count` programs of an op, the same at every call, different for another `word`."""
    found: set[Program] = set()
    of_word = f":{word}" if word else ""
    for number in range(ATTEMPTS):
        if len(found) == count:
            return
        lockstep = Lockstep("2")
        choices = Choices(random.Random(f"{spec}:{number}{of_word}").getrandbits(WORD_BITS))
        with strict_eager():
            if number >= ATTEMPTS // 2 and not attempt(lockstep, choices, choices.pick(NUMBERS)):
                continue
            if not attempt(lockstep, choices, spec):
                continue
        program = lockstep.program()
        if lockstep.steps and len(program.inputs) == len(inputs_read(program)) and program not in found:
            found.add(program)
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

FROM_DATA: Final = frozenset({"mask", "item"})
"""Kinds of forms whose inputs are static: a step makes what is unbacked."""

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
    found = (group for program in _samples(op) for group in groupby(variants(program, (kind,)), attrgetter("name")))
    forms = (tuple(one.program for one in candidates) for _, candidates in found)
    return tuple(form for form in forms if kind in FROM_DATA or form[0] != static(form[0]))


@lru_cache(maxsize=256)
def _samples(op: str) -> tuple[Program, ...]:
    """With static dims, the samples of the main dtype. Cached, because making them takes longer than running one."""
    if op in SPECS:
        alone = (program for spec in SPECS[op] for program in singles(spec, SAMPLES) if len(program.steps) == 1)
        return tuple(dict.fromkeys(map(static, alone)))[:SAMPLES]
    listed = (program for dtype in opinfo.dtypes(op)[:1] for program in opinfo.samples(op, dtype, most=LISTED))
    return tuple(spread(program for program in listed if CALLABLES.issuperset(functions_in(program)))[:SAMPLES])


def in_doubt(program: Program) -> Program:
    """A program of one step on static dims, with every dim unbacked if eager accepts that. Any other is unchanged."""
    if len(program.steps) > 1 or program != static(program):
        return program
    return next((form.program for form in variants(program, ("all",)) if opinfo.accepts(form.program)), program)


def program_of(
    profile: str, seed: int, index: int, origin: Origin, journal: Journal | None = None
) -> tuple[Program, Origin]:
    """The program of a case, and its actual origin.

    If the sample does not exist, another sample of the op is taken. If nothing can be made, a program of the
    profile `short` is drawn at the index. It is not of the campaign's own profile, because the campaign may
    draw that one at this index too.
    """
    if isinstance(origin, Sample):
        found = sampled(origin)
        if found is not None:
            return found
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
        case Single(op=op, word=word):
            alone = next(singles(OPS[op], 1, word), None)
            return alone and in_doubt(alone)
        case Mutate(how=how, program=text, word=word, other=other):
            donor = parse(other, "<program>").program if other else None
            return mutate(how, parse(text, "<program>").program, donor, word, profile_named(profile))
        case Again(program=text):
            return parse(text, "<program>").program
