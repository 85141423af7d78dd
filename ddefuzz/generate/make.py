"""The program of a case, from wherever it comes."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from operator import attrgetter

from ddefuzz.generate.draw import case, drawn_case, respelled
from ddefuzz.generate.lockstep import Journal
from ddefuzz.generate.mutate import mutate
from ddefuzz.generate.opinfo import accepts, dtypes, samples
from ddefuzz.generate.origin import SHORT, Draw, Mutate, Origin, Respell, Sample, Single
from ddefuzz.generate.profiles import profile_named
from ddefuzz.generate.single import singles
from ddefuzz.generate.spread import spread
from ddefuzz.generate.variants import UNBACKED_FORMS, variants
from ddefuzz.ops.catalogue import CALLABLES, OPS, parse
from ddefuzz.program.model import Program, functions_in

LISTED, SAMPLES = 16, 6
"""How many samples of an op are made, and how many of them, unlike ones first, are used."""


def program_of(
    profile: str, seed: int, index: int, origin: Origin, journal: Journal | None = None
) -> tuple[Program, Origin]:
    """The program of a case, and where it really comes from.

    A sample's form that there is not is another of the op. What cannot be made at all is a short one drawn at the
    index: a short one, because the campaign's own profile, unless it is that, may draw at this index as well.
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
        case Single(op=op, word=word):
            return next(singles(OPS[op], 1, word), None)
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
    known = [(form, number) for form in UNBACKED_FORMS for number in range(len(_forms(asked.op, form)))]
    if not known:
        return asked
    form, number = known[asked.word % len(known)]
    return Sample(asked.op, form, number, asked.word)


@lru_cache(maxsize=64)
def _forms(op: str, kind: str) -> tuple[tuple[Program, ...], ...]:
    """The forms of one kind of an op's samples, sample by sample: of each the candidates, the first accepted counts."""
    found = (group for program in _samples(op) for group in groupby(variants(program, (kind,)), attrgetter("name")))
    return tuple(tuple(one.program for one in candidates) for _, candidates in found)


@lru_cache(maxsize=256)
def _samples(op: str) -> tuple[Program, ...]:
    """Those of the main dtype; a cache, because making them takes longer than running one."""
    listed = (program for dtype in dtypes(op)[:1] for program in samples(op, dtype, most=LISTED))
    return tuple(spread(program for program in listed if CALLABLES.issuperset(functions_in(program)))[:SAMPLES])
