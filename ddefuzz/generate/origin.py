"""The origin of a case, as records that a campaign can choose without torch."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

How: TypeAlias = Literal["insert", "replace", "splice", "layout", "unbacked", "number", "dtype"]
"""The changes of a program (`mutate.MUTATIONS`)."""

HOW: tuple[How, ...] = get_args(How)

SHORT = "short"
"""The profile of short programs, which cost less; also what a summary calls them."""

CAPTURES = "captures"
"""The profile of programs that capture, for the oracles that call what was captured."""


class Draw(msgspec.Struct, frozen=True, tag="draw"):
    """Drawn at an index of the campaign's stream.

    `focus` is the position in the catalogue of the op in focus. `profile` is the profile to draw from instead
    of the campaign's.
    """

    index: int
    focus: int | None = None
    profile: str = ""


class Respell(msgspec.Struct, frozen=True, tag="respell"):
    """The bytes of a drawn case with some words drawn again. A word, 24 bytes, is an attempt at a step."""

    base: Draw
    changes: tuple[tuple[int, int], ...]


class Single(msgspec.Struct, frozen=True, tag="single"):
    """An op of the catalogue by its position, after only the steps that it needs. `word` decides the details."""

    op: int
    word: int


class Sample(msgspec.Struct, frozen=True, tag="sample"):
    """A sample call of an op, the `number`-th in one kind of form (`variants.FORMS`).

    The op is from torch's OpInfo database, or from the catalogue by its template. If that form does not exist,
    `word` picks one of all forms of the op.
    """

    op: str
    form: str
    number: int
    word: int


class Mutate(msgspec.Struct, frozen=True, tag="mutate"):
    """A mutated program. `word` decides the details; `other` is a second program, for splicing."""

    how: How
    program: str
    word: int
    other: str = ""


class Again(msgspec.Struct, frozen=True, tag="again"):
    """An earlier program as it is, to be run in another stage, or to be called."""

    program: str


Origin: TypeAlias = Draw | Respell | Single | Sample | Mutate | Again


def name_of(origin: Origin) -> str:
    """The strategy in a summary: `draw`, `short`, `captures`, `aim`, `respell`, `single`, `sample`, `again`, …"""
    match origin:
        case Draw(focus=None, profile=profile):
            return profile or "draw"
        case Draw():
            return "aim"
        case Respell():
            return "respell"
        case Single():
            return "single"
        case Sample():
            return "sample"
        case Mutate(how=how):
            return how
        case Again():
            return "again"
