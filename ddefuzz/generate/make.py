"""The program of a case, from wherever it comes."""

from __future__ import annotations

from functools import cache
from itertools import groupby, islice
from operator import attrgetter

from ddefuzz.generate.draw import case, drawn_case, respelled
from ddefuzz.generate.lockstep import Journal
from ddefuzz.generate.mutate import mutate
from ddefuzz.generate.opinfo import accepts, samples, takes
from ddefuzz.generate.origin import SHORT, Draw, Mutate, Origin, Respell, Sample, Single
from ddefuzz.generate.profiles import profile_named
from ddefuzz.generate.single import singles
from ddefuzz.generate.spread import spread
from ddefuzz.generate.variants import FORMS, Variant, variants
from ddefuzz.ops.catalogue import CALLABLES, OPS, parse
from ddefuzz.program.model import Program, functions_in

LISTED, SAMPLES = 16, 6
"""How many samples of an op are made, and how many of them, unlike ones first, are used."""

DTYPES = ("float32", "int64", "bool", "complex64")
"""Of the first of these that the op takes."""


def program_of(
    profile: str, seed: int, index: int, origin: Origin, journal: Journal | None = None
) -> tuple[Program, Origin]:
    """The program of a case, and where it really comes from.

    A sample's form that there is not is another of the op. What cannot be made at all is a short one drawn at the
    index: a short one, because the campaign's own profile may draw at this index as well.
    """
    if isinstance(origin, Sample):
        origin = _nearest(origin)
    made = _made(profile, seed, origin, journal)
    if made is not None:
        return made, origin
    return case(SHORT, seed, index, journal), Draw(index, profile=SHORT)


def _made(profile: str, seed: int, origin: Origin, journal: Journal | None) -> Program | None:
    match origin:
        case Draw(index=index, focus=focus, profile=other):
            return drawn_case(other or profile, seed, index, journal, focus).program
        case Respell(base=base, changes=changes):
            return respelled(base.profile or profile, seed, base, changes, journal)
        case Single(op=op, number=number):
            return next(islice(singles(OPS[op], number + 1), number, None), None)
        case Sample(op=op, form=form, number=number):
            forms = _forms(op, form)
            return next(filter(accepts, forms[number]), None) if number < len(forms) else None
        case Mutate(how=how, program=text, word=word, other=other):
            donor = parse(other, "<program>").program if other else None
            return mutate(how, parse(text, "<program>").program, donor, word, profile_named(profile))


def _nearest(asked: Sample) -> Sample:
    """What was asked for, else one of all forms of the op, by the word."""
    if asked.number < len(_forms(asked.op, asked.form)):
        return asked
    known = [(form, number) for form in FORMS for number in range(len(_forms(asked.op, form)))]
    if not known:
        return asked
    form, number = known[asked.word % len(known)]
    return Sample(asked.op, form, number, asked.word)


@cache
def _forms(op: str, kind: str) -> tuple[tuple[Program, ...], ...]:
    """The forms of one kind of an op's samples, sample by sample: of each the candidates, the first accepted counts."""
    found = (group for program in _samples(op) for group in groupby(variants(program, (kind,)), attrgetter("name")))
    return tuple(tuple(map(_program, candidates)) for _, candidates in found)


def _program(variant: Variant) -> Program:
    return variant.program


@cache
def _samples(op: str) -> tuple[Program, ...]:
    dtype = next((name for name in DTYPES if takes(op, name)), DTYPES[0])
    listed = (program for program in samples(op, dtype, most=LISTED) if CALLABLES.issuperset(functions_in(program)))
    return tuple(spread(listed)[:SAMPLES])
