"""How many planted faults a campaign finds. A planted fault withholds the fallback at one site, drawn from all
sites ever seen.

All results are computed from one campaign. A fault at a site changes nothing before a program reaches that site, so
the first case that reaches it with an undecided guard is the one that would have found the fault. That program is
then run with the fault.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import msgspec

from ddefuzz.campaign.campaign import Event, Listener
from ddefuzz.campaign.launch import start
from ddefuzz.campaign.plan import Plan
from ddefuzz.campaign.summary import Tally
from ddefuzz.classify.classify import Classified
from ddefuzz.coverage.ledger import SiteRecord
from ddefuzz.errors import InputError
from ddefuzz.execute.pool import Stopped
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, Runner, Semantics, Stage
from ddefuzz.findings.database import Database
from ddefuzz.instrument.events import Place
from ddefuzz.oracles.capture import classify, judge


class Planted(msgspec.Struct, frozen=True):
    """One planted fault: where, and the result.

    `cpu_seconds` and `cases` are the campaign's when a case first reached the site, None if none did. `named`
    is the place that was blamed, with its line. `why` says what is wrong if it was not found or not named.
    """

    place: Place
    function: str
    cpu_seconds: float | None = None
    cases: int | None = None
    found: bool = False
    exact: bool = False
    stage: Stage | None = None
    named: str = ""
    program: str = ""
    why: str = ""


class Recall(msgspec.Struct, frozen=True):
    """What a campaign found of the planted faults; CPU seconds are over the ones found, None where there is none."""

    torch: str
    seed: int
    campaign_seed: int
    budget: str
    known_sites: int
    planted: tuple[Planted, ...]
    found: int
    exact: int
    cpu_seconds_median: float | None
    cpu_seconds_90th: float | None
    campaign_cpu_seconds: float
    interrupted: bool
    schema: str = "ddefuzz.bench.recall/1"


class Reach(NamedTuple):
    """When a case of the campaign first reached a site."""

    cpu_seconds: float
    cases: int


@dataclass(slots=True)
class FirstReached:
    """A listener of a campaign that records when each of some places first took its fallback."""

    places: frozenset[Place]
    when: dict[Place, Reach] = field(default_factory=dict)

    def __call__(self, event: Event, tally: Tally) -> None:
        """Check once after each result."""
        for place in self.places - self.when.keys():
            if (place.language, place.file, place.line) in tally.ledger.fallback_sites:
                self.when[place] = Reach(round(tally.total_cpu_seconds(), 3), len(tally.digests))


def draw(records: Iterable[SiteRecord], number: int, seed: int) -> tuple[SiteRecord, ...]:
    """`number` of the places that ever fell back, by the seed. Raises InputError where there are fewer."""
    places = {record.key[:3]: record for record in sorted(records, key=lambda one: one.key) if record.fallbacks}
    if len(places) < number:
        raise InputError(
            f"--sites: found {len(places)} sites in the database whose guards ever fell back, expected {number} "
            "to draw from; `ddefuzz run` and `ddefuzz sweep` fill it"
        )
    drawn = random.Random(seed).sample(sorted(places), number)
    return tuple(places[key] for key in sorted(drawn))


def measure_recall(
    plan: Plan,
    seed: int,
    known: tuple[SiteRecord, ...],
    number: int,
    folder: Path,
    runner: Runner,
    stopped: Stopped,
    listen: Listener,
) -> Recall:
    """Run the campaign of `plan`, its database in `folder`, then each planted fault by `runner`."""
    drawn = draw(known, number, seed)
    first = FirstReached(frozenset(map(place_of, drawn)))
    with Database.open(f"sqlite:///{folder / 'recall.db'}") as database:

        def both(event: Event, tally: Tally) -> None:
            first(event, tally)
            listen(event, tally)

        summary = start(plan, database, both, stopped)
        reached = {place_of(record): record for record in database.sites(summary.torch) if record.fallbacks}
    planted = []
    for record in drawn:
        place = place_of(record)
        fault = Planted(place, record.function, why="no case reached it")
        if place in first.when:
            fault = show(fault, first.when[place], reached[place], plan.stages, runner)
        planted.append(fault)
    found = sorted(one.cpu_seconds for one in planted if one.found and one.cpu_seconds is not None)
    return Recall(
        torch=summary.torch,
        seed=seed,
        campaign_seed=plan.seed,
        budget=str(plan.budget),
        known_sites=len({record.key[:3] for record in known if record.fallbacks}),
        planted=tuple(planted),
        found=len(found),
        exact=sum(one.exact for one in planted),
        cpu_seconds_median=median(found) if found else None,
        cpu_seconds_90th=ninetieth(found) if found else None,
        campaign_cpu_seconds=round(sum(summary.cpu_seconds.values()), 1),
        interrupted=summary.interrupted,
    )


def show(fault: Planted, when: Reach, reached: SiteRecord, stages: tuple[Stage, ...], runner: Runner) -> Planted:
    """Run the program that reached the site with the fault: in the stage where it did, then in the campaign's."""
    fault = msgspec.structs.replace(
        fault, cpu_seconds=when.cpu_seconds, cases=when.cases, program=reached.example, why=""
    )
    semantics = Semantics("explicit", without=(fault.place,))
    for stage in dict.fromkeys((msgspec.convert(reached.stage, Stage), *stages)):
        judged = judge_fault(fault, runner(Run(ProgramSubject(reached.example), stage, semantics)))
        if judged.found:
            return judged
        fault = msgspec.structs.replace(fault, why="; ".join(filter(None, (fault.why, judged.why))))
    return fault


def judge_fault(fault: Planted, seen: Observation) -> Planted:
    """Whether a run with the fault shows it, and names it."""
    if seen.raised is None or not seen.raised.withheld:
        last = seen.exceptions[0].message.partition("\n")[0][:120] if seen.exceptions else seen.reason
        why = "torch catches the error and goes on" if seen.outcome == "ok" else f"ends otherwise: {last}"
        return msgspec.structs.replace(fault, why=f"{seen.stage}: {why}")
    named = tuple(map(classify, judge([seen])))
    exact = bool(named) and all(names(one, fault.place, seen.raised.place) for one in named)
    return msgspec.structs.replace(
        fault,
        found=True,
        exact=exact,
        stage=seen.stage,
        named=", ".join(map(_blamed, named)),
        why="" if exact else f"evaluated at {seen.raised.place.file}:{seen.raised.place.line}",
    )


def names(classified: Classified, planted: Place, evaluated: Place) -> bool:
    """Whether a failure is blamed on exactly the planted place: the frame for Python, the place of the guard
    for C++.
    """
    if planted.language == "C++":
        return classified.signature.site.language == "C++" and evaluated == planted
    frame = classified.frame
    return frame is not None and Place("Python", frame.file, frame.line) == planted


def place_of(record: SiteRecord) -> Place:
    """A record's place."""
    return Place(record.language, record.file, record.line)


def ninetieth(values: list[float]) -> float:
    """The 90th percentile, by linear interpolation."""
    return quantiles(values, n=10, method="inclusive")[8] if len(values) > 1 else values[0]


def _blamed(classified: Classified) -> str:
    frame = classified.frame
    line = f" line {frame.line}" if frame is not None and frame.line else ""
    return f"{classified.signature.site}{line}"
