"""Where a case comes from, as records that a campaign can decide on without torch."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

How: TypeAlias = Literal["insert", "replace", "splice", "layout", "unbacked", "number", "dtype"]
"""The changes of a program (`mutate.MUTATIONS`)."""

HOW: tuple[How, ...] = get_args(How)

SHORT = "short"
"""The profile of short programs, which cost less; also what a summary calls them."""


class Draw(msgspec.Struct, frozen=True, tag="draw"):
    """Drawn afresh, at an index of the campaign's stream.

    `focus` is the position in the catalogue of an op to have, `profile` one to draw from instead of the campaign's.
    """

    index: int
    focus: int | None = None
    profile: str = ""


class Respell(msgspec.Struct, frozen=True, tag="respell"):
    """The bytes of a drawn case with some words (of 24 bytes, one an attempt at a step) drawn anew from a number."""

    base: Draw
    changes: tuple[tuple[int, int], ...]


class Single(msgspec.Struct, frozen=True, tag="single"):
    """An op of the catalogue by its position, with no more before it than its arguments need, which `word` decides."""

    op: int
    word: int


class Sample(msgspec.Struct, frozen=True, tag="sample"):
    """A sample call of an op, the `number`-th in a kind of form (`variants.FORMS`).

    The op is one of torch's own OpInfo database, or of the catalogue by its template. Where there is no such form,
    `word` picks one of all that the op has.
    """

    op: str
    form: str
    number: int
    word: int


class Mutate(msgspec.Struct, frozen=True, tag="mutate"):
    """A program changed in one way, which `word` decides; `other` is a second one, to splice with."""

    how: How
    program: str
    word: int
    other: str = ""


Origin: TypeAlias = Draw | Respell | Single | Sample | Mutate


def name_of(origin: Origin) -> str:
    """What a summary calls it: `draw`, `short`, `aim`, `respell`, `single`, `sample`, or the way of mutating."""
    match origin:
        case Draw(focus=None, profile=profile):
            return SHORT if profile else "draw"
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
