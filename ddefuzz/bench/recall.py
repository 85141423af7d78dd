"""How many planted faults a campaign finds, by oracle. `planted.PLANTS` says what is planted; the places are drawn
from all that were ever seen.

All results are computed from one campaign without faults. A fault at a place changes nothing before a program reaches
that place. So the cases that reach it, in the order of the campaign, are run with the fault, and the first one that
shows it is the one that would have found it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import msgspec

from ddefuzz.bench.called import Programs, Tester, assertion_places, blamed, show_called
from ddefuzz.bench.planted import PLANTS, Planted, Recall, draw, place_of
from ddefuzz.bench.reachers import Reacher, Reachers, Survey
from ddefuzz.campaign.campaign import Listener
from ddefuzz.campaign.launch import start
from ddefuzz.campaign.plan import Plan
from ddefuzz.classify.classify import Classified
from ddefuzz.coverage.ledger import SiteRecord
from ddefuzz.execute.pool import Stopped
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, Stage
from ddefuzz.findings.database import Database
from ddefuzz.instrument.events import Place
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.oracles.program import Trial

SURVEYED = 150
"""How many captured programs of the campaign are searched for places that make run-time assertions."""

ALIKE = 4
"""Programs that are run with a fault, at most, for each form of the expressions at its place."""


class Planting(NamedTuple):
    """What to plant for an oracle: faults at `number` places, drawn by `seed`, each tried on at most `tries` cases.

    `known` are the guard sites of the database.
    """

    known: tuple[SiteRecord, ...]
    number: int
    seed: int
    tries: int


def healthy_campaign(plan: Plan, folder: Path, stopped: Stopped, listen: Listener) -> Survey:
    """Run the campaign of `plan` without faults, its database in `folder`."""
    reachers = Reachers()
    with Database.open(f"sqlite:///{folder / 'recall.db'}") as database:
        summary = start(plan, database, listen, stopped, reachers)
    return Survey(
        torch=summary.torch,
        seed=plan.seed,
        budget=str(plan.budget),
        cpu_seconds=round(sum(summary.cpu_seconds.values()), 1),
        interrupted=summary.interrupted,
        found=tuple(reachers.found),
    )


def measure_recall(
    plan: Plan,
    oracle: str,
    planting: Planting,
    survey: Survey,
    programs: Programs,
    stopped: Stopped,
    say: Callable[[str], None],
) -> Recall:
    """Run the cases of a campaign with each fault that is planted for an oracle, `plan.jobs` faults at a time."""
    known = planting.known
    assertions: tuple[SiteRecord, ...] = ()
    if any(plant.drawn_from == "assertions" for plant in PLANTS[oracle]):
        say("looking for places that make run-time assertions")
        called = islice((one for one in survey.found if one.called), SURVEYED)
        assertions = assertion_places(programs.without_fault(one.program, one.stage) for one in called)
    examples = {place_of(record): record for record in known}
    drawn = draw(oracle, known, assertions, planting.number, planting.seed)

    def planted(fault: Planted) -> Planted | None:
        if stopped():
            return None
        if oracle == "capture":
            return show(fault, survey.first(fault.place), plan.stages, programs.tester)
        cases = _cases(fault, survey, programs, planting.tries)
        return show_called(fault, examples.get(fault.place), cases, programs)

    faults: list[Planted] = []
    with ThreadPoolExecutor(plan.jobs) as threads:
        for fault in threads.map(planted, drawn):
            faults += [] if fault is None else [fault]
            say(f"{oracle}: {len(faults)} of {len(drawn)} faults done")
    found = sorted(one.cpu_seconds for one in faults if one.found and one.cpu_seconds is not None)
    effects = [one.effect for one in faults]
    return Recall(
        oracle=oracle,
        torch=survey.torch,
        seed=planting.seed,
        campaign_seed=survey.seed,
        budget=survey.budget,
        known_sites=len({record.key[:3] for record in known if record.fallbacks}) + len(assertions),
        faults=tuple(faults),
        cpu_seconds_median=median(found) if found else None,
        cpu_seconds_90th=ninetieth(found) if found else None,
        campaign_cpu_seconds=survey.cpu_seconds,
        interrupted=survey.interrupted or len(faults) < len(drawn),
        unreached=effects.count("unreached"),
        harmless=effects.count("harmless"),
        stopping=effects.count("stops"),
        with_examples=sum(one.found or one.found_by_example for one in faults),
        exact_with_examples=sum(one.exact if one.found else one.exact_by_example for one in faults),
        planted=len(faults),
        equivalent=effects.count("equivalent"),
        changing=effects.count("changes"),
        found=len(found),
        exact=sum(one.exact for one in faults),
    )


def _cases(fault: Planted, survey: Survey, programs: Programs, tries: int) -> list[Reacher]:
    """The cases to run with a fault: those that took a fallback at its place, or made an assertion there."""
    if not any(one.kind == "drop assertion" for one in fault.semantics.faults):
        return list(survey.called(fault.place, tries, ALIKE))
    makers = {
        key
        for key, tried in programs.healthy.items()
        if any(one.place == fault.place and one.kind == "assertion" for one in tried.observation.constraints)
    }
    return [one for one in survey.found if (one.program, one.stage) in makers][:tries]


def show(fault: Planted, first: Reacher | None, stages: tuple[Stage, ...], tester: Tester) -> Planted:
    """Run the program that reached the site with the fault: in the stage where it did, then in the campaign's."""
    if first is None:
        return fault
    reached = {"cpu_seconds": first.cpu_seconds, "cases": first.cases, "program": first.program, "why": ""}
    fault = msgspec.structs.replace(fault, **reached)
    for stage in dict.fromkeys((first.stage, *stages)):
        run = Run(ProgramSubject(first.program), stage, fault.semantics)
        judged = judge_fault(fault, tester(Trial(run)).observation)
        if judged.found:
            return judged
        fault = msgspec.structs.replace(judged, why="; ".join(filter(None, (fault.why, judged.why))))
    return fault


def judge_fault(fault: Planted, seen: Observation) -> Planted:
    """Whether a run with the fault shows it, and names it."""
    fault = msgspec.structs.replace(fault, programs=fault.programs + 1)
    if seen.raised is None or not seen.raised.withheld:
        last = seen.exceptions[0].message.partition("\n")[0][:120] if seen.exceptions else seen.reason
        why = "torch catches the error and goes on" if seen.outcome == "ok" else f"ends otherwise: {last}"
        changes = seen.outcome != "ok" or fault.effect == "changes"
        return msgspec.structs.replace(fault, effect="changes" if changes else "harmless", why=f"{seen.stage}: {why}")
    named = tuple(map(classify, judge([seen])))
    exact = bool(named) and all(names(one, fault.place, seen.raised.place) for one in named)
    return msgspec.structs.replace(
        fault,
        effect="changes",
        found=True,
        exact=exact,
        stage=seen.stage,
        kind=", ".join(dict.fromkeys(str(one.signature.kind) for one in named)),
        named=", ".join(map(blamed, named)),
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


def ninetieth(values: list[float]) -> float:
    """The 90th percentile, by linear interpolation."""
    return quantiles(values, n=10, method="inclusive")[8] if len(values) > 1 else values[0]
