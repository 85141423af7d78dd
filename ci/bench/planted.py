"""The faults that `python ci/bench recall` plants, by oracle, and the records of the result for each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from ddefuzz.coverage.ledger import SiteRecord
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Semantics, Stage
from ddefuzz.instrument.events import Answer, Fault, Place

Effect: TypeAlias = Literal["unreached", "equivalent", "harmless", "stops", "changes"]
"""
What a planted fault does to the programs that reach it:

unreached   no program reached it, or none that is captured
equivalent  what is captured is the same as without it (`Observation.digest`)
harmless    some graph is another one, but every call ends as without it, or as eager where it did not without it
stops       some program is not captured, and no call of any other ends otherwise: this is for the capture oracle
changes     a call of some captured program ends otherwise; for mechanism also: some program is not captured
"""

NUMBERS = 12
"""How many variants of a fault there are."""


class Planted(msgspec.Struct, frozen=True):
    """One planted fault and its result.

    `programs` counts the programs that were run with it, `timeouts` those that did not end in time. `found` says that a
    case of the campaign showed it, with `cpu_seconds` and `cases` of the campaign at that case. `found_by_example` says
    that no case showed it, but the program which the database knows for the site. `exact` and `exact_by_example` say
    that exactly this place was blamed then, `elsewhere` how many failures of other kinds name another place: a symbol
    that became a number is reported by itself, and may also make a result wrong. `kind` and `named` are the failure and
    the place that was blamed, with its line, by the campaign's case, else by the example. `program` showed it. `why`
    says what is wrong if it was not found or not named.
    """

    place: Place
    function: str
    semantics: Semantics
    effect: Effect = "unreached"
    programs: int = 0
    timeouts: int = 0
    cpu_seconds: float | None = None
    cases: int | None = None
    found: bool = False
    exact: bool = False
    found_by_example: bool = False
    exact_by_example: bool = False
    elsewhere: int = 0
    stage: Stage | None = None
    kind: str = ""
    named: str = ""
    program: str = ""
    why: str = ""


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign found of the planted faults; CPU seconds are over the ones found, None if there is none.

    The faults are drawn from `known_sites`.
    """

    oracle: str
    torch: str
    seed: int
    campaign_seed: int
    budget: str
    known_sites: int
    faults: tuple[Planted, ...]
    cpu_seconds_median: float | None
    cpu_seconds_90th: float | None
    campaign_cpu_seconds: float
    interrupted: bool

    def counts(self) -> dict[str, int]:
        """The number of faults by effect. `found` counts those of the `changing` ones that a case of the campaign
        showed, `exact` those of them that were named exactly; `…with_examples` also what the program showed that the
        database has for the site.
        """
        effects = [one.effect for one in self.faults]
        found = [one for one in self.faults if one.found]
        shown = [one for one in self.faults if one.found or one.found_by_example]
        return {
            "unreached": effects.count("unreached"),
            "harmless": effects.count("harmless"),
            "stopping": effects.count("stops"),
            "with_examples": len(shown),
            "exact_with_examples": sum(one.exact if one.found else one.exact_by_example for one in shown),
            "planted": len(self.faults),
            "equivalent": effects.count("equivalent"),
            "changing": effects.count("changes"),
            "found": len(found),
            "exact": sum(one.exact for one in found),
        }


Pool: TypeAlias = Literal["fallbacks", "shared fallbacks", "assertions"]
"""
Where faults are planted:

fallbacks         places where guards took their fallback
shared fallbacks  those of them where the fallback was sometimes the answer of size-oblivious semantics, too
assertions        places that make run-time assertions
"""


class Plant(NamedTuple):
    """A kind of planted fault: what it does, where it is drawn from, and the semantics that apply it.

    The number of a fault chooses among its variants.
    """

    what: str
    drawn_from: Pool
    semantics: Callable[[SiteRecord, int], Semantics]


def place_of(record: SiteRecord) -> Place:
    """A record's place."""
    return Place(record.language, record.file, record.line)


def _turned(record: SiteRecord, _: int) -> Semantics:
    usual = record.fallbacks.get("True", 0) > record.fallbacks.get("False", 0)
    return Semantics(answers=(Answer(place_of(record), not usual),))


PLANTS: Mapping[str, tuple[Plant, ...]] = {
    "capture": (
        Plant("the fallback is withheld", "fallbacks", lambda one, _: Semantics("explicit", (place_of(one),))),
    ),
    "agreement": (Plant("the fallback is turned round", "fallbacks", _turned),),
    "specialization": (
        Plant(
            "a symbol becomes a number or another symbol",
            "fallbacks",
            lambda one, number: Semantics(faults=(Fault(place_of(one), "specialize", number),)),
        ),
    ),
    "assertions": (
        Plant(
            "an assertion is added",
            "fallbacks",
            lambda one, number: Semantics(faults=(Fault(place_of(one), "add assertion", number),)),
        ),
        Plant(
            "an assertion is dropped",
            "assertions",
            lambda one, _: Semantics(faults=(Fault(place_of(one), "drop assertion"),)),
        ),
    ),
    "mechanism": (Plant("the fallback is turned round, in explicit semantics only", "shared fallbacks", _turned),),
}
"""The faults that are planted for each oracle, as many of each kind."""

JUDGES: Mapping[str, tuple[str, ...]] = {
    "capture": ("capture",),
    "agreement": (together := ("agreement", "specialization", "assertions")),
    "specialization": together,
    "assertions": together,
    "mechanism": ("mechanism",),
}
"""The oracles that judge the faults planted for an oracle. A turned fallback may show as an assertion, for example."""


def draw(
    oracle: str, fallbacks: Iterable[SiteRecord], assertions: Iterable[SiteRecord], number: int, seed: int
) -> tuple[Planted, ...]:
    """`number` faults for an oracle, by the seed, one a place. Raises InputError if there are fewer places."""
    chosen = random.Random(seed)
    fell_back = tuple(one for one in fallbacks if one.fallbacks)
    pools: dict[Pool, dict[tuple[str, str, int], SiteRecord]] = {
        "fallbacks": _places(fell_back),
        "shared fallbacks": _places(one for one in fell_back if one.old.get("same")),
        "assertions": _places(assertions),
    }
    plants = PLANTS[oracle]
    drawn: list[Planted] = []
    for turn, plant in enumerate(plants):
        pool = pools[plant.drawn_from]
        share = number // len(plants) + (turn < number % len(plants))
        if plant.drawn_from != "assertions" and len(pool) < share:
            kind = "" if plant.drawn_from == "fallbacks" else ", with the answer of size-oblivious semantics"
            raise InputError(
                f"--sites: found {len(pool)} sites in the database whose guards ever fell back{kind}, expected {share} "
                "to draw from; `ddefuzz run` and `ddefuzz sweep` fill it"
            )
        for key in sorted(chosen.sample(sorted(pool), min(share, len(pool)))):
            semantics = plant.semantics(pool[key], chosen.randrange(NUMBERS))
            drawn.append(Planted(place_of(pool[key]), pool[key].function, semantics, why="no case reached it"))
    return tuple(drawn)


def _places(records: Iterable[SiteRecord]) -> dict[tuple[str, str, int], SiteRecord]:
    return {record.key[:3]: record for record in sorted(records, key=lambda one: one.key)}


def what_of(oracle: str, semantics: Semantics) -> str:
    """What a fault does, in words."""
    match semantics:
        case Semantics(answers=(Answer(value=value), *_)):
            return f"answers {value}"
        case Semantics(faults=(Fault(kind=kind, number=number), *_)):
            return kind if kind == "drop assertion" else f"{kind} {number}"
        case _:
            return PLANTS[oracle][0].what
