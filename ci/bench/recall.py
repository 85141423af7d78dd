"""How many planted faults a campaign finds, by oracle. `planted.PLANTS` says what is planted; the places are drawn
from all that were ever seen.

All results are computed from one campaign without faults. A fault at a place changes nothing before a program reaches
that place. So the cases that reach it, in the order of the campaign, are run with the fault, and the first one that
shows it is the one that would have found it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from time import monotonic

import msgspec

from ci.bench.command import Result, Session
from ci.bench.planted import (
    JUDGES,
    PLANTS,
    Maker,
    Planted,
    Programs,
    Reacher,
    Recall,
    Tester,
    blamed,
    draw,
    maker_of,
    place_of,
    show_called,
    what_of,
)
from ci.bench.survey import Judged, Reachers, RecallFolder, Survey
from ddefuzz.campaign.campaign import Listener
from ddefuzz.campaign.launch import start
from ddefuzz.campaign.plan import Plan, parse_budget
from ddefuzz.campaign.summary import Tally
from ddefuzz.campaign.tasks import CaseResult
from ddefuzz.classify.cause import Classified
from ddefuzz.cli.output import stop_on_interrupt
from ddefuzz.cli.run import campaign_progress
from ddefuzz.errors import EXIT_INTERRUPTED, InputError, ProgramError
from ddefuzz.execute.pool import Lost, Pool, Stopped, lost_observation
from ddefuzz.execute.protocol import CHEAP_TO_CALL, EXPLICIT, STAGES, Observation, ProgramSubject, Run, Stage
from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.instrument.events import Place
from ddefuzz.ops import catalogue
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.oracles.program import CAPTURE, Trial, Tried, judge_run, tried_of
from ddefuzz.oracles.table import BY_DEFAULT
from ddefuzz.show.blocks import Block, prose, table

SURVEYED = 150
"""How many captured programs of the campaign are searched for places that make run-time assertions."""

SAVED = 30.0
"""Seconds between two times that the cases of the campaign are kept."""

ALIKE = 4
"""Programs that are run with a fault, at most, for each form of the expressions at its place."""


def healthy_campaign(plan: Plan, kept: RecallFolder, database: Database, stopped: Stopped, listen: Listener) -> Survey:
    """Run the campaign of `plan` without faults, in an empty database. Its cases are kept every `SAVED` seconds."""
    reachers, torch = Reachers(), metadata.version("torch")
    saved = monotonic()

    def survey(cpu_seconds: float, *, interrupted: bool) -> Survey:
        return Survey(
            torch=torch,
            seed=plan.seed,
            budget=str(plan.budget),
            cpu_seconds=round(cpu_seconds, 1),
            interrupted=interrupted,
            found=tuple(reachers.found),
        )

    def note(result: CaseResult, tally: Tally) -> None:
        nonlocal saved
        reachers(result, tally)
        if monotonic() > saved + SAVED:
            kept.save_survey(survey(tally.total_cpu_seconds(), interrupted=True))
            saved = monotonic()

    summary = start(plan, database, listen, stopped, note)
    whole = survey(sum(summary.cpu_seconds.values()), interrupted=summary.interrupted)
    kept.save_survey(whole)
    return whole


@dataclass(frozen=True, slots=True)
class Planting:
    """What to plant for each oracle: faults at `number` places, drawn by `seed`, each tried on at most `tries` cases of
    a campaign, `plan.jobs` faults at a time. `known` are the guard sites of the database.
    """

    plan: Plan
    known: tuple[SiteRecord, ...]
    number: int
    seed: int
    tries: int
    survey: Survey
    kept: RecallFolder
    programs: Programs
    stopped: Stopped
    say: Callable[[str], None]

    def recall(self, oracle: str) -> Recall:
        """Run the cases of the campaign with each fault that is planted for an oracle."""
        survey = self.survey
        drops = any(plant.drawn_from == "assertions" for plant in PLANTS[oracle])
        makers = self._makers(oracle) if drops else ()
        assertions = tuple({place: _record(place) for maker in makers for place in maker.places}.values())
        examples = examples_of(self.known)
        drawn = draw(oracle, self.known, assertions, self.number, self.seed)

        def planted(fault: Planted) -> Planted | None:
            judged = Judged(oracle, self.tries, len(survey.found), fault)
            before = self.kept.judged(judged)
            if before is not None or self.stopped():
                return before
            if oracle == "capture":
                after = show(fault, survey.first(fault.place), self.plan.stages, self.programs.tester)
            else:
                cases = self._cases(fault, makers)
                after = show_called(fault, oracle, examples.get(fault.place), cases, self.programs)
            self.kept.add(msgspec.structs.replace(judged, fault=after))
            return after

        faults: list[Planted] = []
        with ThreadPoolExecutor(self.plan.jobs) as threads:
            for fault in threads.map(planted, drawn):
                faults += [] if fault is None else [fault]
                found = [one for one in faults if one.found]
                changing, exact = sum(one.effect == "changes" for one in faults), sum(one.exact for one in found)
                said = f"{changing} change a result, {len(found)} found, {exact} named exactly"
                self.say(f"{oracle}: {len(faults)} of {len(drawn)} faults done; {said}")
        seconds = sorted(one.cpu_seconds for one in faults if one.found and one.cpu_seconds is not None)
        return Recall(
            oracle=oracle,
            torch=survey.torch,
            seed=self.seed,
            campaign_seed=survey.seed,
            budget=survey.budget,
            known_sites=len({record.key[:3] for record in self.known if record.fallbacks}) + len(assertions),
            faults=tuple(faults),
            cpu_seconds_median=median(seconds) if seconds else None,
            cpu_seconds_90th=ninetieth(seconds) if seconds else None,
            campaign_cpu_seconds=survey.cpu_seconds,
            interrupted=survey.interrupted or len(faults) < len(drawn),
        )

    def _makers(self, oracle: str) -> tuple[Maker, ...]:
        """The first captured programs of the campaign that make run-time assertions."""
        known = self.kept.makers()
        if known is not None:
            return known

        def looked(case: Reacher) -> Maker | None:
            if self.stopped():
                return None
            return maker_of(case, self.programs.without_fault(case.program, case.stage, JUDGES[oracle]))

        called = list(islice((one for one in self.survey.found if one.called), SURVEYED))
        makers: list[Maker | None] = []
        with ThreadPoolExecutor(self.plan.jobs) as threads:
            for maker in threads.map(looked, called):
                makers.append(maker)
                self.say(f"{len(makers)} of {len(called)} programs searched for run-time assertions")
        found = tuple(one for one in makers if one is not None and one.places)
        if None not in makers:
            self.kept.save_makers(found)
        return found

    def _cases(self, fault: Planted, makers: tuple[Maker, ...]) -> list[Reacher]:
        """The cases to run with a fault: those that took a fallback at its place, or made an assertion there."""
        if not any(one.kind == "drop assertion" for one in fault.semantics.faults):
            return list(self.survey.called(fault.place, self.tries, ALIKE))
        there = {(maker.program, maker.stage) for maker in makers if fault.place in maker.places}
        return [one for one in self.survey.found if (one.program, one.stage) in there][: self.tries]


def examples_of(known: Iterable[SiteRecord]) -> dict[Place, SiteRecord]:
    """The sites with a program that reached them. The catalogue may have lost functions of a stored program."""
    found: dict[Place, SiteRecord] = {}
    for record in known:
        with suppress(ProgramError):
            catalogue.parse(record.example, "<example>")
            found[place_of(record)] = record
    return found


def _record(place: Place) -> SiteRecord:
    return SiteRecord(place.language, place.file, place.line, "", "")


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
        why = "torch catches the error and continues" if seen.outcome == "ok" else f"ends otherwise: {last}"
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


RUN_SECONDS = 60.0
"""Seconds of the clock for a program with a fault."""

SCHEMA = "ddefuzz.bench.recall/3"


def run(
    session: Session,
    oracles: tuple[str, ...],
    sites: int,
    seed: int,
    budget: str,
    campaign_seed: int | None,
    tries: int,
    keep: Path | None,
    guided: bool,
    version: str | None,
    stages: tuple[Stage, ...],
    jobs: int,
    db: DatabaseUrl,
) -> Result:
    """Plant faults for each oracle, and measure how many one campaign finds and names."""
    for oracle in set(oracles) - set(PLANTS):
        raise InputError(f"--oracle: found {oracle!r}, expected one of {', '.join(PLANTS)}")
    with Database.open(db, create=False) as database:
        known = database.sites(_version(database, version))
        signatures = frozenset(finding.signature for finding in database.findings())
    for oracle in oracles:
        draw(oracle, known, (), sites, seed)  # before the campaign, because there may be too few
    calling = oracles != CAPTURE
    usable = tuple(stage for stage in STAGES if stage in stages and (not calling or stage in CHEAP_TO_CALL))
    if not usable:
        raise InputError(f"--stage: found {', '.join(stages)}, expected one of {', '.join(CHEAP_TO_CALL)}")
    plan = Plan(
        profile="default",
        seed=1000 + seed if campaign_seed is None else campaign_seed,
        budget=parse_budget(budget),
        jobs=jobs,
        stages=usable,
        semantics=(EXPLICIT,),
        minimize=False,
        in_turn=True,
        screen=True,
        guided=guided,
        oracles=BY_DEFAULT if calling else CAPTURE,
    )
    chosen = " ".join(f"--oracle {oracle}" for oracle in oracles)
    command = f"python ci/bench recall {chosen} --sites {sites} --seed {seed} --budget {plan.budget} --db {db}"
    with stop_on_interrupt() as stopped:
        kept = RecallFolder(keep or session.folder)
        survey = kept.survey()
        if survey is None:
            with (
                campaign_progress(plan, command) as progress,
                Database.open(f"sqlite:///{session.folder}/recall.db") as empty,
            ):
                survey = healthy_campaign(plan, kept, empty, stopped, progress)
        with Pool(jobs) as pool:
            programs = Programs(lambda trial: _tried(pool, trial), signatures)
            say = session.live.update
            planting = Planting(plan, known, sites, seed, tries, survey, kept, programs, stopped, say)
            records = list(map(planting.recall, oracles))
        interrupted = stopped()
    blocks = [block for record in records for block in view(record)]
    documents = [{**msgspec.to_builtins(record), **record.counts()} for record in records]
    return Result({"schema": SCHEMA, "records": documents}, blocks, exit_code=EXIT_INTERRUPTED if interrupted else 0)


def _tried(pool: Pool, trial: Trial) -> Tried:
    judged = pool.submit(judge_run, trial, RUN_SECONDS).result()
    return tried_of(lost_observation(trial.run, judged)) if isinstance(judged, Lost) else judged


def view(record: Recall) -> Iterator[Block]:
    """The rates, then each fault that was not found or not named exactly, with the reason."""
    yield prose(
        "{} faults for the oracle {}, at as many of {} known sites, seed {}, torch {}; campaign of seed {}, "
        "{} CPU seconds of {}",
        *(len(record.faults), record.oracle, record.known_sites, record.seed, record.torch, record.campaign_seed),
        f"{record.campaign_cpu_seconds:.0f}",
        record.budget,
    )
    seconds = (
        f"; CPU seconds to find: median {record.cpu_seconds_median:.1f}, 90th percentile {record.cpu_seconds_90th:.1f}"
        if record.cpu_seconds_median is not None and record.cpu_seconds_90th is not None
        else ""
    )
    of = record.counts()
    elsewhere = sum(fault.exact and fault.elsewhere > 0 for fault in record.faults)
    rows = [
        (of["unreached"], "reached by no program that is captured"),
        (of["equivalent"], "equivalent: the same graphs and assumptions"),
        (of["harmless"], "harmless: another graph, but every call ends as without the fault"),
        (of["stopping"], "stop a capture, and change no call"),
        (of["changing"], "change a result"),
        (of["found"], f"of these found by the campaign, {_share(of['found'], of['changing'])}{seconds}"),
        (of["exact"], f"of the found named exactly, {_share(of['exact'], of['found'])}"),
        (elsewhere, "of these also reported at another place"),
    ]
    if record.oracle != "capture":
        shown, exact = of["with_examples"], of["exact_with_examples"]
        rows += [
            (shown, f"found by the campaign or by the site's known program, {_share(shown, of['changing'])}"),
            (exact, f"of these named exactly, {_share(exact, shown)}"),
        ]
    yield table(("faults", "what"), [(str(number), what) for number, what in rows], right=("faults",))
    missed = [
        (
            _word(fault),
            f"{fault.place.file}:{fault.place.line}{f' {fault.function}' if fault.function else ''}",
            what_of(record.oracle, fault.semantics),
            f"{fault.kind}: named {fault.named}; {fault.why}" if fault.named else fault.why,
        )
        for fault in record.faults
        if _word(fault)
    ]
    if missed:
        columns = ("result", "planted at", "fault", "why")
        yield table(columns, missed, folding=columns[1:])


def _word(fault: Planted) -> str:
    """What is wrong with the result; empty if nothing is."""
    match fault.effect:
        case "unreached":
            return "not reached"
        case "stops":
            return "stops"
        case "harmless" if fault.why:
            return "not found"
        case "changes":
            if fault.found or fault.found_by_example:
                exact = fault.exact if fault.found else fault.exact_by_example
                return "misnamed" if not exact else "" if fault.found else "by example"
            return "not found"
        case _:
            return ""


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "none"


def _version(database: Database, wanted: str | None) -> str:
    versions = database.torch_versions()
    if wanted is None and len(versions) == 1:
        return versions[0]
    if wanted in versions:
        return str(wanted)
    expected = f"one of {', '.join(versions)}" if versions else "a database with sites: `ddefuzz run` fills it"
    raise InputError(f"--torch: found {wanted or 'none'}, expected {expected} ({database.url})")
