"""The program of a case, from wherever it comes."""

from __future__ import annotations

from ddefuzz.generate.draw import case, drawn_case, respelled
from ddefuzz.generate.lockstep import Journal
from ddefuzz.generate.mutate import mutate
from ddefuzz.generate.origin import SHORT, Draw, Mutate, Origin, Respell, Sample, Single
from ddefuzz.generate.profiles import profile_named
from ddefuzz.generate.samples import in_doubt, sampled
from ddefuzz.generate.single import singles
from ddefuzz.ops.catalogue import OPS, parse
from ddefuzz.program.model import Program


def program_of(
    profile: str, seed: int, index: int, origin: Origin, journal: Journal | None = None
) -> tuple[Program, Origin]:
    """The program of a case, and where it really comes from.

    Where there is no such sample it is another of the op. What cannot be made at all is a short one drawn at the
    index: a short one, because the campaign's own profile, unless it is that, may draw at this index as well.
    """
    if isinstance(origin, Sample):
        found = sampled(origin)
        if found is not None:
            return found
    elif (made := _made(profile, seed, origin, journal)) is not None:
        return made, origin
    return case(SHORT, seed, index, journal), Draw(index, profile=SHORT)


def _made(profile: str, seed: int, origin: Draw | Respell | Single | Mutate, journal: Journal | None) -> Program | None:
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
