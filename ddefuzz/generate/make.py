"""The program of a case, from wherever it comes."""

from __future__ import annotations

from itertools import islice

from ddefuzz.generate.draw import case, drawn_case, respelled
from ddefuzz.generate.lockstep import Journal
from ddefuzz.generate.mutate import mutate
from ddefuzz.generate.opinfo import accepts, samples, takes
from ddefuzz.generate.origin import SHORT, Draw, Mutate, Origin, Respell, Sample
from ddefuzz.generate.profiles import profile_named
from ddefuzz.generate.variants import all_unbacked, variants
from ddefuzz.ops.catalogue import CALLABLES, parse
from ddefuzz.program.model import Program, functions_in

SAMPLES = 12
"""How many samples of an op are tried."""

SPARE = 4
"""How many more are made, should some be no programs: making one may take longer than running it."""

DTYPES = ("float32", "int64", "bool", "complex64")
"""Of the first of these that the op takes."""


def program_of(
    profile: str, seed: int, index: int, origin: Origin, journal: Journal | None = None
) -> tuple[Program, Origin]:
    """The program of a case, and where it really comes from: what cannot be made is a short one drawn at the index.

    A short one, because the campaign's own profile may draw at this index as well.
    """
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
        case Sample(op=op, number=number, variant=variant):
            return _sample(op, number, variant)
        case Mutate(how=how, program=text, word=word, other=other):
            donor = parse(other, "<program>").program if other else None
            return mutate(how, parse(text, "<program>").program, donor, word, profile_named(profile))


def _sample(op: str, number: int, variant: int) -> Program | None:
    """A sample in one of its forms, None where it has none such or eager refuses it."""
    dtype = next((name for name in DTYPES if takes(op, name)), DTYPES[0])
    place = number % SAMPLES
    known = tuple(islice(samples(op, dtype, most=place + SPARE), place + 1))
    if not known:
        return None
    program = known[place % len(known)]
    forms = [all_unbacked(program), *(form.program for form in variants(program))] if variant else []
    chosen = forms[variant % len(forms)] if forms else all_unbacked(program)
    return chosen if CALLABLES.issuperset(functions_in(chosen)) and accepts(chosen) else None
