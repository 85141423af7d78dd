"""The program of a case, whatever its origin."""

from __future__ import annotations

from ddefuzz.generate.draw import case, drawn_case, respelled
from ddefuzz.generate.lockstep import Journal
from ddefuzz.generate.mutate import mutate
from ddefuzz.generate.origin import SHORT, Again, Draw, Mutate, Origin, Respell, Sample, Single
from ddefuzz.generate.profiles import profile_named
from ddefuzz.generate.samples import in_doubt, sampled
from ddefuzz.generate.single import singles
from ddefuzz.ops.catalogue import OPS, parse
from ddefuzz.program.model import Program


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
