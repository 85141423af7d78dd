"""What a campaign can choose without torch: the origin of a case, and profiles (the weights of the groups of the
catalogue, and the lengths of programs).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from ddefuzz.errors import InputError
from ddefuzz.ops.catalogue import GROUPS
from ddefuzz.ops.spec import OpSpec

How: TypeAlias = Literal["insert", "replace", "splice", "layout", "unbacked", "number", "dtype", "options"]
"""The changes of a program (`mutate.MUTATIONS`)."""

HOW: tuple[How, ...] = get_args(How)

SHORT = "short"
"""The profile of short programs, which cost less; also what a summary calls them."""

CAPTURES = "captures"
"""The profile of programs that capture, for the oracles that call what was captured."""

COMPILED = "compiled"
"""The profile of programs for inductor: chains of views, copies, reductions and writes, which it makes kernels of."""

DECOMPOSING = "decomposing"
"""The profile of programs for inductor's decompositions: ops that it makes of others, half of them with gradients."""


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
    """An op of the catalogue by its position, after only the steps that it needs. `word` decides the details. With
    `gradients`, its inputs require gradients, if eager computes them.
    """

    op: int
    word: int
    gradients: bool = False


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


STOPS_WEIGHT: Final = 0.15
"""The weight of an op that usually stops capture, compared with other ops of its group."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Relative weights of op groups (1 if not named) and of the starts, and the range of the number of
    steps.

    `unbacked_input` is the chance in 16 that a program starts from an input with unbacked dims rather than from
    a source. `stops` is how often an op that usually stops capture is drawn, beside others of its group. Of the blocks
    of cases that inductor calls together, every `inductor`-th is called there; none if it is 0. If `gradients` is not
    0, one program in so many has inputs that require a gradient; with `writes`, the others write into a view at their
    end; of the inputs with unbacked dims that programs start from, one in `producers` has several, each of a size
    of its own. One program in `options` has options.
    """

    name: str
    weights: Mapping[str, float] = field(default_factory=dict)
    min_steps: int = 6
    max_steps: int = 10
    unbacked_input: int = 5
    stops: float = STOPS_WEIGHT
    inductor: int = 20
    gradients: int = 0
    producers: int = 0
    writes: bool = False
    options: int = 6


_RARE: Final = {
    "sources": 1.0,
    "branches": 0.04,
    "attention": 0.3,
    "decompositions": 0.7,
    "losses": 0.6,
    "references": 0.3,
    "control": 0.5,
    "scans": 0.2,
    "functional": 0.5,
    "layers": 0.7,
    "stateful": 0.5,
    "sequential": 0.2,
    "contexts": 0.3,
    "flexible": 0.1,
    "numbers": 0.5,
    "lists": 0.3,
    "jagged": 0.2,
    "sparse": 0.1,
    "distributions": 0.3,
    "initialized": 0.2,
    "jacobians": 0.1,
    "distributed": 0.1,
}


_DEFAULT: Final = {
    **_RARE,
    "sizes": 2.5,
    "slicing": 3.0,
    "reshape": 3.0,
    "broadcast": 3.0,
    "selection": 2.0,
    "contiguity": 2.0,
    "factories": 1.5,
    "reductions": 1.5,
    "pointwise": 1.0,
}


_NOT_CAPTURED: Final = ("branches", "references", "gradients", "normalization", "losses", "attention", "scans")
"""Groups whose ops stop capture more often than others: dynamo refuses them, or a size decides between kernels."""


def _focused(name: str, *groups: str) -> Profile:
    return Profile(name, {**_RARE, **dict.fromkeys(groups, 8.0)})


PROFILES: Final[dict[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile("default", _DEFAULT),
        Profile("capture", _DEFAULT, inductor=0),
        _focused("sizes", "sizes", "factories"),
        _focused("slicing", "slicing", "selection"),
        _focused("reshape", "reshape", "contiguity"),
        _focused("broadcast", "broadcast", "pointwise", "products"),
        _focused("contiguity", "contiguity", "reshape"),
        _focused("reductions", "reductions", "decompositions", "transforms"),
        _focused("nn", "normalization", "attention", "convolution", "pooling", "resampling", "losses"),
        _focused("functions", "control", "scans", "functional", "contexts", "flexible", "jacobians"),
        _focused("modules", "layers", "stateful", "sequential"),
        _focused("python", "numbers", "lists", "subscripts", "scalars"),
        _focused("jagged", "jagged", "sparse"),
        _focused("libraries", "distributions", "initialized", "others"),
        _focused("distributed", "distributed"),
        Profile("options", _DEFAULT, unbacked_input=12, options=1),
        Profile(SHORT, _RARE, min_steps=2, max_steps=4),
        Profile(
            CAPTURES,
            {**_RARE, **dict.fromkeys(_NOT_CAPTURED, 0.0)},
            min_steps=3,
            max_steps=6,
            stops=0.0,
            gradients=2,
            writes=True,
        ),
        Profile(
            COMPILED,
            {
                **dict.fromkeys(GROUPS, 0.0),
                **{"reshape": 5.0, "slicing": 3.0, "broadcast": 3.0, "reductions": 2.0, "selection": 2.0},
                **{"contiguity": 1.0, "pointwise": 1.5, "sources": 0.5, "factories": 0.5},
                **dict.fromkeys(("normalization", "losses", "pooling", "resampling"), 0.4),
            },
            min_steps=3,
            max_steps=6,
            unbacked_input=12,
            stops=0.0,
            gradients=3,
            producers=2,
        ),
        Profile(
            DECOMPOSING,
            {
                **dict.fromkeys(GROUPS, 0.0),
                **{"pointwise": 4.0, "reductions": 2.0, "products": 2.0, "selection": 1.5, "reshape": 1.5},
                **dict.fromkeys(("normalization", "losses", "pooling", "resampling", "convolution"), 2.0),
                **{"decompositions": 2.0, "contiguity": 1.0, "sources": 0.3, "factories": 0.3},
            },
            min_steps=3,
            max_steps=5,
            unbacked_input=6,
            stops=0.0,
            gradients=2,
        ),
        Profile("long", {**_RARE, "attention": 0.1}, min_steps=16, max_steps=24),
    )
}


def profile_named(name: str) -> Profile:
    """The profile of that name; InputError where there is none."""
    if name not in PROFILES:
        raise InputError(f"found the profile {name!r}, expected one of {', '.join(PROFILES)}")
    return PROFILES[name]


@cache
def cumulative_weights(name: str) -> tuple[tuple[OpSpec, ...], tuple[int, ...]]:
    """The ops of a profile and the running sums of their weights. The weight of a group is divided among its ops."""
    profile = PROFILES[name]
    ops: list[OpSpec] = []
    weights: list[int] = []
    for group, specs in GROUPS.items():
        each = [profile.stops if spec.stops else 1.0 for spec in specs]
        share = profile.weights.get(group, 1.0) / (sum(each) or 1.0)
        ops += specs
        weights += [max(1, round(1_000_000 * share * weight)) if share * weight else 0 for weight in each]
    return tuple(ops), tuple(accumulate(weights))


@cache
def drawable(name: str) -> frozenset[OpSpec]:
    """The ops that a profile draws at all."""
    ops, sums = cumulative_weights(name)
    return frozenset(spec for spec, before, after in zip(ops, (0, *sums), sums, strict=False) if after > before)
