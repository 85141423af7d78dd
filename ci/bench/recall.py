"""How many planted faults a campaign finds, by oracle. `planted.PLANTS` says what is planted; the places are drawn
from all that were ever seen.

All results are computed from one campaign without faults. A fault at a place changes nothing before a program reaches
that place. So the cases that reach it, in the order of the campaign, are run with the fault, and the first one that
shows it is the one that would have found it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, TypeVar

import msgspec

from ci.bench.command import Result, Session
from ci.bench.peers import plan_of
from ci.bench.planted import JUDGES, PLANTS, SEVERITY, PlantedFault, Programs, Reacher, draw, place_of, what_of
from ddefuzz.campaign.launch import start
from ddefuzz.campaign.plan import Plan
from ddefuzz.campaign.summary import Tally
from ddefuzz.campaign.tasks import CaseResult
from ddefuzz.cli.run import campaign_progress
from ddefuzz.errors import InputError, ProgramError
from ddefuzz.execute.pool import LostTask, Pool, lost_observation
from ddefuzz.execute.protocol import CHEAP_TO_CALL, EXPLICIT, STAGES, Semantics, Stage
from ddefuzz.files import append, is_there, read_bytes, write_atomically
from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.instrument.events import Place
from ddefuzz.ops import catalogue
from ddefuzz.oracles.program import CAPTURE, Trial, TriedRun, judge_run, tried_of
from ddefuzz.oracles.table import BY_DEFAULT
from ddefuzz.show.blocks import Block, prose, table

RUN_SECONDS = 60.0
"""Seconds of the clock for a program with a fault."""

SURVEYED = 150
"""How many captured programs of the campaign are searched for places that make run-time assertions."""

ALIKE = 4
"""Programs that are run with a fault, at most, for each form of the expressions at its place."""

T = TypeVar("T")


class Survey(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A campaign without faults, and all runs of its cases that reached a place with an undecided guard, in order.

    `cpu_seconds` are those of the campaign. It was `interrupted` if that is not its whole budget.
    """

    torch: str
    seed: int
    budget: str
    cpu_seconds: float
    interrupted: bool
    reachers: tuple[Reacher, ...]

    def cases(self, place: Place, number: int, alike: int, *, captured: bool) -> Iterator[Reacher]:
        """The first `number` programs that reached a place, with at most `alike` for each set of forms of the
        expressions there. Only `captured` ones can be called.
        """
        forms: dict[frozenset[str], int] = {}
        for reacher in self.reachers:
            form = frozenset(shape for at, shape in reacher.reached if at == place)
            if number and form and (reacher.captured or not captured) and forms.get(form, 0) < alike:
                forms[form] = forms.get(form, 0) + 1
                number -= 1
                yield reacher


def reachers_of(result: CaseResult, tally: Tally) -> Iterator[Reacher]:
    """The explicit runs of one case that reached a place with an undecided guard."""
    captured = {one.stage for one in result.outcomes if one.outcome == "ok" and one.semantics == str(EXPLICIT)}
    now = round(tally.total_cpu_seconds(), 3)
    for stage in result.reached:
        places = frozenset((each.place, each.shape) for each in stage.reached if each.answer != "raised")
        if result.program and places:
            called = stage.stage in captured and stage.stage in CHEAP_TO_CALL
            yield Reacher(result.program, stage.stage, called, places, now, len(tally.digests))


class FaultResult(msgspec.Struct, frozen=True, tag="Judged"):
    """A fault that was planted for an oracle, in at most `tries` cases of the campaign."""

    oracle: str
    tries: int
    fault: PlantedFault

    @property
    def key(self) -> tuple[str, int, Semantics]:
        """What is the same before and after it is judged."""
        return self.oracle, self.tries, self.fault.semantics


def read_kept(path: Path) -> tuple[Survey | None, dict[object, PlantedFault]]:
    """The campaign of a file of `--keep`, and its judged faults by key. Raises InputError if it is another file."""
    content = read_bytes(path) if is_there(path) else b""
    whole = content[: content.rfind(b"\n") + 1]
    try:
        survey, *judged = msgspec.json.Decoder(Survey | FaultResult).decode_lines(whole) or [None]
    except (RecursionError, msgspec.DecodeError) as error:
        raise InputError(f"{path}: found {error}, expected what `python ci/bench recall --keep` wrote") from error
    if whole != content:  # a run was cut short while it wrote
        write_atomically(path, whole)
    return survey, {one.key: one.fault for one in judged}


def counts(faults: Sequence[PlantedFault]) -> dict[str, int]:
    """The number of faults by what they do and how they were found."""
    effects = Counter(one.effect for one in faults)
    shown = [one for one in faults if one.found or one.found_by_example]
    return {
        "planted": len(faults),
        **{effect: effects[effect] for effect in SEVERITY},
        "found": sum(one.found for one in shown),
        "exact": sum(one.found and one.exact for one in shown),
        "elsewhere": sum(one.found and one.exact and one.elsewhere > 0 for one in shown),
        "with_examples": len(shown),
        "exact_with_examples": sum(one.exact for one in shown),
    }


WORDS: Final = {
    "unreached": "reached by no program that is captured",
    "equivalent": "equivalent: the same graphs and assumptions",
    "harmless": "harmless: another graph, but every call ends as without the fault",
    "stops": "stop a capture, and change no call",
    "changes": "change a result",
    "found": "of these found by the campaign",
    "exact": "of the found named exactly",
    "elsewhere": "of these also reported at another place",
    "with_examples": "found by the campaign or by the site's known program",
    "exact_with_examples": "of these named exactly",
}
"""What the numbers of `counts` are of."""

SHARES: Final = {
    "found": "changes",
    "exact": "found",
    "with_examples": "changes",
    "exact_with_examples": "with_examples",
}
"""The numbers that are shown as shares, and of which."""


@dataclass(frozen=True, slots=True)
class Planting:
    """What to plant for each oracle: faults at `number` places, drawn by `seed`, each tried on at most `tries` cases of
    a campaign, `jobs` faults at a time. `known` are the guard sites of the database. `file` keeps what is judged.
    """

    session: Session
    known: tuple[SiteRecord, ...]
    number: int
    seed: int
    tries: int
    jobs: int
    survey: Survey
    file: Path
    judged: dict[object, PlantedFault]
    programs: Programs

    def recall(self, oracle: str) -> dict[str, Any]:
        """Run the cases of the campaign with each fault that is planted for an oracle."""
        drops = any(plant.drawn_from == "assertions" for plant in PLANTS[oracle])
        makers = self._makers(oracle) if drops else {}
        places = dict.fromkeys(place for made in makers.values() for place in made)
        assertions = [SiteRecord(place.language, place.file, place.line, "", "") for place in places]
        examples = examples_of(self.known)
        drawn = draw(oracle, self.known, assertions, self.number, self.seed)

        def planted(fault: PlantedFault) -> PlantedFault | None:
            key = FaultResult(oracle, self.tries, fault).key
            if key in self.judged or self.session.stopped():
                return self.judged.get(key)
            cases = self.survey.cases(fault.place, self.tries, ALIKE, captured=JUDGES[oracle] != CAPTURE)
            if fault.drops:
                cases = islice((case for case, made in makers.items() if fault.place in made), self.tries)
            return self.programs.show(fault, oracle, examples.get(fault.place), cases)

        faults: list[PlantedFault] = []
        for fault in self._in_threads(planted, drawn):
            if fault is None:
                continue
            judged = FaultResult(oracle, self.tries, fault)
            if judged.key not in self.judged:
                append(self.file, msgspec.json.encode(judged) + b"\n")
            faults.append(fault)
            self.session.live.update(f"{oracle}: {len(faults)} of {len(drawn)} faults done")
        seconds = [one.cpu_seconds for one in faults if one.cpu_seconds is not None]
        return {
            "oracle": oracle,
            **{name: getattr(self.survey, name) for name in ("torch", "seed", "budget", "cpu_seconds")},
            "sites_seed": self.seed,
            "known_sites": len({record.key[:3] for record in self.known if record.fallbacks}) + len(assertions),
            "faults": faults,
            "cpu_seconds_median": median(seconds) if seconds else None,
            "cpu_seconds_90th": ninetieth(seconds) if seconds else None,
            "interrupted": self.survey.interrupted or len(faults) < len(drawn),
            **counts(faults),
        }

    def _in_threads(self, function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
        with ThreadPoolExecutor(self.jobs) as threads:
            yield from threads.map(function, items)

    def _makers(self, oracle: str) -> dict[Reacher, set[Place]]:
        """The first captured programs of the campaign, and where in torch each makes run-time assertions."""

        def made_by(case: Reacher) -> set[Place]:
            if self.session.stopped():
                raise KeyboardInterrupt
            tried = self.programs.without_fault(case.program, case.stage, JUDGES[oracle])
            made = {one.place for one in tried.observation.constraints if one.kind == "assertion"}
            return {place for place in made if place.language == "C++" or place.file.startswith("torch/")}

        captured = [one for one in self.survey.reachers if one.captured][:SURVEYED]
        return dict(zip(captured, self._in_threads(made_by, captured), strict=True))


def examples_of(known: Iterable[SiteRecord]) -> dict[Place, SiteRecord]:
    """The sites with a program that reached them. The catalogue may have lost functions of a stored program."""
    records: dict[Place, SiteRecord] = {}
    for record in known:
        with suppress(ProgramError):
            catalogue.parse(record.example, "<example>")
            records[place_of(record)] = record
    return records


def ninetieth(values: list[float]) -> float:
    """The 90th percentile, by linear interpolation."""
    return quantiles(values, n=10, method="inclusive")[8] if len(values) > 1 else values[0]


def run(
    session: Session,
    oracles: tuple[str, ...],
    sites: int,
    seed: int,
    budget: str,
    campaign_seed: int,
    tries: int,
    keep: Path | None,
    guided: bool,
    version: str,
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
    plan = plan_of(budget, campaign_seed, jobs, usable, guided, BY_DEFAULT if calling else CAPTURE)
    chosen = " ".join(f"--oracle {oracle}" for oracle in oracles)
    command = f"python ci/bench recall {chosen} --sites {sites} --seed {seed} --budget {plan.budget} --db {db}"
    file = keep or session.folder / "kept.jsonl"
    survey, judged = read_kept(file)
    if survey is None:
        survey = healthy_campaign(session, plan, command)
        append(file, msgspec.json.encode(survey) + b"\n")
    with Pool(jobs) as pool:
        programs = Programs(lambda trial: _tried(pool, trial), signatures)
        planting = Planting(session, known, sites, seed, tries, jobs, survey, file, judged, programs)
        records = list(map(planting.recall, oracles))
    blocks = [block for record in records for block in view(record)]
    return Result({"schema": "ddefuzz.bench.recall/4", "records": records}, blocks)


def healthy_campaign(session: Session, plan: Plan, command: str) -> Survey:
    """Run the campaign of `plan` without faults, in an empty database."""
    reachers: list[Reacher] = []
    with (
        campaign_progress(plan, command) as progress,
        Database.open(f"sqlite:///{session.folder}/recall.db") as empty,
    ):
        summary = start(
            plan, empty, progress, session.stopped, lambda result, tally: reachers.extend(reachers_of(result, tally))
        )
    return Survey(
        torch=summary.torch,
        seed=plan.seed,
        budget=str(plan.budget),
        cpu_seconds=round(sum(summary.cpu_seconds.values()), 1),
        interrupted=summary.interrupted,
        reachers=tuple(reachers),
    )


def _tried(pool: Pool, trial: Trial) -> TriedRun:
    judged = pool.submit(judge_run, trial, RUN_SECONDS).result()
    return tried_of(lost_observation(trial.run, judged)) if isinstance(judged, LostTask) else judged


def view(record: dict[str, Any]) -> Iterator[Block]:
    """The rates, then each fault that was not found or not named exactly, with the reason."""
    head = (
        "{} faults for the oracle {}, at as many of {} known sites, seed {}, torch {}; campaign of seed {}, "
        "{} CPU seconds of {}"
    )
    names = ("planted", "oracle", "known_sites", "sites_seed", "torch", "seed", "cpu_seconds", "budget")
    yield prose(head, *(record[name] for name in names))
    rows = [(str(record[name]), f"{words}{_share(record, name)}") for name, words in WORDS.items()]
    yield table(("faults", "what"), rows, right=("faults",))
    missed = [
        (
            word,
            f"{fault.place.file}:{fault.place.line}{f' {fault.function}' if fault.function else ''}",
            what_of(fault.semantics),
            f"{fault.kind}: named {fault.named}; {fault.why}" if fault.named else fault.why,
        )
        for fault in record["faults"]
        if (word := _word(fault))
    ]
    if missed:
        columns = ("result", "planted at", "fault", "why")
        yield table(columns, missed, folding=columns[1:])


def _share(record: dict[str, Any], name: str) -> str:
    whole = record[SHARES[name]] if name in SHARES else 0
    share = f", {record[name] / whole:.0%}" if whole else ""
    if name != "found" or record["cpu_seconds_median"] is None:
        return share
    median_of, ninetieth_of = record["cpu_seconds_median"], record["cpu_seconds_90th"]
    return f"{share}; CPU seconds to find: median {median_of:.1f}, 90th percentile {ninetieth_of:.1f}"


def _word(fault: PlantedFault) -> str:
    """What is wrong with the result; empty if nothing is."""
    match fault.effect:
        case "unreached":
            return "not reached"
        case "changes" if fault.found or fault.found_by_example:
            return "misnamed" if not fault.exact else "" if fault.found else "by example"
        case "changes":
            return "not found"
        case "stops":
            return "stops"
        case _:
            return ""


def _version(database: Database, wanted: str) -> str:
    versions = database.torch_versions()
    if not wanted and len(versions) == 1:
        return versions[0]
    if wanted in versions:
        return wanted
    expected = f"one of {', '.join(versions)}" if versions else "a database with sites: `ddefuzz run` fills it"
    raise InputError(f"--torch: found {wanted or 'none'}, expected {expected} ({database.url})")
