"""Profiles: the weights of the groups of the catalogue, and the lengths of programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Final

from ddefuzz.errors import InputError
from ddefuzz.generate.origin import CAPTURES, SHORT
from ddefuzz.ops.catalogue import GROUPS
from ddefuzz.ops.spec import OpSpec

STOPS_WEIGHT: Final = 0.15
"""The weight of an op that usually stops capture, compared with other ops of its group."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Relative weights of op groups (1 if not named) and of the starts, and the range of the number of
    steps.

    `unbacked_input` is the chance in 16 that a program starts from an input with unbacked dims rather than from
    a source. `stops` is how often an op that usually stops capture is drawn, beside others of its group.
    """

    name: str
    weights: Mapping[str, float] = field(default_factory=dict)
    min_steps: int = 6
    max_steps: int = 10
    unbacked_input: int = 5
    stops: float = STOPS_WEIGHT


_RARE: Final = {
    "sources": 1.0,
    "branches": 0.04,
    "attention": 0.3,
    "decompositions": 0.7,
    "losses": 0.6,
    "references": 0.3,
}


_NOT_CAPTURED: Final = ("branches", "references", "gradients", "normalization", "losses", "attention")
"""Groups whose ops stop capture more often than others: dynamo refuses them, or a size decides between kernels."""


def _focused(name: str, *groups: str) -> Profile:
    return Profile(name, {**_RARE, **dict.fromkeys(groups, 8.0)})


PROFILES: Final[dict[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile(
            "default",
            {
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
            },
        ),
        _focused("sizes", "sizes", "factories"),
        _focused("slicing", "slicing", "selection"),
        _focused("reshape", "reshape", "contiguity"),
        _focused("broadcast", "broadcast", "pointwise", "products"),
        _focused("contiguity", "contiguity", "reshape"),
        _focused("reductions", "reductions", "decompositions", "transforms"),
        _focused("nn", "normalization", "attention", "convolution", "pooling", "resampling", "losses"),
        Profile(SHORT, _RARE, min_steps=2, max_steps=4),
        Profile(CAPTURES, {**_RARE, **dict.fromkeys(_NOT_CAPTURED, 0.0)}, min_steps=3, max_steps=6, stops=0.0),
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
