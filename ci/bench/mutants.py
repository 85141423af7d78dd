"""How many mutants of torch's Python source a campaign finds, and names, by class.

One campaign without mutants records which of its cases run which lines. A mutant is run on those that run its line. It
is found if a case has a failure that it does not have without the mutant.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from itertools import chain, zip_longest
from pathlib import Path
from threading import Lock
from typing import Final, Literal, TypeAlias, TypeVar
from zlib import crc32

import msgspec

from ci.bench.command import Result, Session
from ci.bench.mutation import (
    AREAS,
    RULES,
    Mutant,
    applied,
    area_of,
    counters,
    diff,
    exchange_of,
    mutants_in,
    statements,
)
from ddefuzz.campaign.plan import Plan, parse_budget
from ddefuzz.campaign.tasks import CaseResult, CaseTask, run_case
from ddefuzz.errors import InputError
from ddefuzz.execute.pool import LostTask, Pool, Stopped
from ddefuzz.execute.protocol import EXPLICIT, SCREEN, Stage
from ddefuzz.files import append, is_there, read_bytes, read_text, write_atomically
from ddefuzz.findings.model import Sighting
from ddefuzz.generate.profiles import Again
from ddefuzz.oracles.table import BY_DEFAULT
from ddefuzz.show.blocks import Block, Code, Heading, prose, table

SAMPLE: Final = Path(__file__).parent / "mutants.tsv"

SETUP: Final = 120.0
"""CPU seconds that a worker's first case may take longer: it counts lines, or finds a mutant's functions."""

REACHERS: Final = 100
"""How many cases of each kind, that is in the same stages, are kept for a line."""

FAILING: Final = 3
"""After this many cases with new failures, none of which names the mutant, no more are run."""

MOST_LOST: Final = 2
"""After this many cases that ended their worker no more are run. What they cost is not known, so it is not counted."""


class CaseLines(msgspec.Struct, frozen=True):
    """A case without mutants, and the numbers of the statements that it ran."""

    result: CaseResult
    hits: list[int]


class Job(msgspec.Struct, frozen=True):
    """A case to run with a mutant."""

    mutant: Mutant
    task: CaseTask


class Case(msgspec.Struct, frozen=True):
    """A case of the campaign to run again, and the keys of its failures. `lines` are those for which it is kept."""

    task: CaseTask
    keys: tuple[str, ...]
    cpu_seconds: float
    lines: tuple[int, ...]

    @property
    def kind(self) -> str:
        """What cases of one kind have in common."""
        return " ".join((*self.task.stages, *self.task.called)) if not self.task.screen else SCREEN


class MutantResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the cases that run a mutant's line showed, in at most `limit` CPU seconds; `reachers` of them are known.

    `named` says where the failure was blamed: at the mutated function, at the op of this name, or elsewhere.
    """

    mutant: Mutant
    diff: str
    limit: float
    campaign: str
    reachers: int
    cases: int = 0
    cpu_seconds: float = 0.0
    found: bool = False
    named: Literal["function", "op", ""] = ""
    kind: str = ""
    site: str = ""
    key: str = ""
    stage: str = ""
    program: str = ""
    equivalent: str = ""


def record(task: CaseTask) -> CaseLines:
    """Run a case, as a task of a worker, and record the lines."""
    hits = counters()
    hits.clear()
    return CaseLines(run_case(task), sorted(hits))


def run_job(job: Job) -> CaseResult:
    """Run a case with a mutant, as a task of a worker."""
    with applied(job.mutant) as changed:
        if not changed:
            raise InputError(f"{job.mutant.name}: found no such function in the worker, expected one that cases run")
        return run_case(job.task)


Runner: TypeAlias = Callable[[Mutant | None, CaseTask], CaseResult | LostTask]
"""Runs a case with a mutant, or without."""

R = TypeVar("R", bound=msgspec.Struct)


def kept_in(path: Path, kind: type[R]) -> list[R]:
    """The records of a file, a line each. A line that was cut short is dropped. Raises InputError for other files."""
    content = read_bytes(path) if is_there(path) else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        write_atomically(path, whole)
    try:
        return [msgspec.json.decode(line, type=kind) for line in whole.splitlines()]
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: found {error}, expected what `python ci/bench mutants --keep` wrote") from error


def add(path: Path, row: msgspec.Struct) -> None:
    """Add a record to a file."""
    append(path, msgspec.json.encode(row) + b"\n")


def healthy_campaign(session: Session, plan: Plan, path: Path) -> list[Case]:
    """The cases of a campaign without mutants, from its file as far as it has them. The rest is run and added."""
    budget, _ = plan.budget.cpu_seconds or 0.0, statements()
    cases = kept_in(path, Case)
    spent, known = sum(one.cpu_seconds for one in cases), {key for one in cases for key in one.keys}
    reached = Counter((line, one.kind) for one in cases for line in one.lines)
    index = cases[-1].task.index + 1 if cases else 0
    with Pool(plan.jobs) as pool:
        while spent < budget and not session.stopped():
            tasks = [plan.task_of(at, None) for at in range(index, index + plan.jobs)]
            tasks = [msgspec.structs.replace(one, known=frozenset(known)) for one in tasks]
            futures = [pool.submit(record, one, plan.seconds_of(one) + SETUP) for one in tasks]
            for task, future in zip(tasks, futures, strict=True):
                done = future.result()
                index = task.index + 1
                if isinstance(done, LostTask) or not done.result.program:
                    continue
                case = recorded(task, done, reached)
                known.update(case.keys)
                spent += case.cpu_seconds
                cases.append(case)
                add(path, case)
            session.live.update(f"campaign without mutants: {len(cases)} cases, {spent:.0f} of {budget:.0f} CPU s, "
                f"{len({line for line, _ in reached})} of {len(statements())} statements reached")  # fmt: skip
    return cases


def recorded(task: CaseTask, done: CaseLines, reached: Counter[tuple[int, str]]) -> Case:
    """A case as it is kept: with its program, and so that the fake stage decides again as it did."""
    result = done.result
    captured = any(one.stage != SCREEN for one in result.outcomes)
    keys = tuple(dict.fromkeys((*result.screened, *(one.signature.key for one in result.sightings))))
    again = msgspec.structs.replace(
        task, origin=Again(result.program), known=frozenset() if captured or not task.screen else frozenset(keys)
    )
    case = Case(again, keys, result.cpu_seconds, ())
    lines = tuple(line for line in done.hits if reached[line, case.kind] < REACHERS)
    reached.update((line, case.kind) for line in lines)
    return msgspec.structs.replace(case, lines=lines)


def in_turn(cases: Iterable[Case]) -> list[Case]:
    """Cases of unlike kinds in turn, each kind in the order of the campaign."""
    kinds: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        kinds[case.kind].append(case)
    return list(_in_turn(kinds.values()))


def _in_turn(groups: Iterable[list[R]]) -> Iterator[R]:
    return (one for turn in zip_longest(*groups) for one in turn if one is not None)


def result_of(start: MutantResult, cases: Iterable[Case], runner: Runner, stopped: Stopped) -> MutantResult | None:
    """Run cases with a mutant until a failure names it, or the limit is reached. None if it was stopped."""
    result, failing, lost = start, 0, 0
    for case in cases:
        if result.named == "function" or failing == FAILING or lost == MOST_LOST or result.cpu_seconds >= result.limit:
            break
        if stopped():
            return None
        done = runner(result.mutant, case.task)
        spent = 0.0 if isinstance(done, LostTask) else done.cpu_seconds
        result = msgspec.structs.replace(result, cases=result.cases + 1, cpu_seconds=result.cpu_seconds + spent)
        if isinstance(done, LostTask):
            lost += 1
            if done.outcome != "not-judged" and not isinstance(runner(None, case.task), LostTask) and not result.found:
                result = _shown(result, case, kind=done.outcome, site=done.reason)
            continue
        new = [one for one in done.sightings if one.signature.key not in case.keys]
        if new:
            before = runner(None, case.task)
            known = () if isinstance(before, LostTask) else {one.signature.key for one in before.sightings}
            new = [one for one in new if one.signature.key not in known]
        failing += bool(new)
        for sighting in new:
            named = names(sighting, result.mutant)
            if not result.found or _RANK[named] > _RANK[result.named]:
                signature = sighting.signature
                shown = {"kind": str(signature.kind), "site": f"{signature}", "key": signature.key}
                stage = sighting.failure.observation.stage
                result = _shown(result, case, **shown, named=named, stage=stage)
    return result


_RANK: Final = {"": 0, "op": 1, "function": 2}


def _shown(result: MutantResult, case: Case, **shown: str) -> MutantResult:
    program = case.task.origin.program if isinstance(case.task.origin, Again) else ""
    return msgspec.structs.replace(result, found=True, program=program, **shown)


def names(sighting: Sighting, mutant: Mutant) -> Literal["function", "op", ""]:
    """Whether a failure is blamed on the mutated function, or on an op of its name (`torch.roll` for `roll`)."""
    functions, site, frame = (
        {*mutant.function.split("."), mutant.inner},
        sighting.signature.site,
        sighting.classified.frame,
    )
    at = [(site.module, site.function or "")] + ([(frame.file, frame.function)] if frame is not None else [])
    if any(file == mutant.file and function.rpartition(".")[2] in functions for file, function in at):
        return "function"
    plain = {name.removeprefix("meta_").strip("_") for name in functions}
    op = (site.function or "").replace("::", ".").removesuffix(".default").split(".")
    return "op" if site.language == "op" and plain & {part.strip("_") for part in op[-2:]} else ""


def draw(lines: frozenset[int], number: int, seed: int) -> list[Mutant]:
    """`number` mutants by the seed, one a function: of each rule equally many, of its areas in turn.

    The statements `lines` are reached. Where a rule has too few mutants there, others are drawn.
    """
    numbers = {line: at for at, line in enumerate(statements())}
    pools: dict[str, dict[str, list[Mutant]]] = {rule: {area: [] for area in AREAS} for rule in RULES}
    for file, area in area_of().items():
        for mutant in mutants_in(file):
            pools[mutant.rule][area].append(mutant)
    drawn: dict[tuple[str, str], Mutant] = {}
    orders = []
    for rule in RULES:
        areas = [random.Random(f"{seed} {rule} {area}").sample(pool, len(pool)) for area, pool in pools[rule].items()]
        reached = [[one for one in area if numbers[one.file, one.statement] in lines] for area in areas]
        others = [[one for one in area if numbers[one.file, one.statement] not in lines] for area in areas]
        orders.append(iter([*_in_turn(reached), *_in_turn(others)]))
    while len(drawn) < number and orders:
        for order in tuple(orders):
            fresh = (one for one in order if (one.file, one.function) not in drawn and exchange_of(one))
            chosen = next(fresh, None)
            if chosen is None:
                orders.remove(order)
            elif len(drawn) < number:
                drawn[chosen.file, chosen.function] = chosen
    return sorted(drawn.values(), key=lambda one: (RULES.index(one.rule), one.file, one.line))


def written(mutants: Iterable[Mutant], equivalent: Mapping[str, str] | None = None) -> str:
    """Mutants as the sample's file lists them."""
    rows = (
        (one.rule, one.file, one.function, str(one.number), (equivalent or {}).get(one.name, "")) for one in mutants
    )
    return "".join("\t".join(row).rstrip() + "\n" for row in rows)


def read_sample(path: Path) -> list[tuple[Mutant, str]]:
    """The mutants of a file, and why those that no program can show are equivalent. Raises InputError."""
    rows = [[*line.split("\t"), ""] for line in read_text(path).splitlines() if line and not line.startswith("#")]
    known = {one.name: one for file in {row[1] for row in rows if len(row) > 4} for one in mutants_in(file)}
    for row in rows:
        if len(row) < 5 or f"{row[0]} {row[1]}:{row[2]} {row[3]}" not in known:
            expected = "a mutant of this torch: rule, file, function and number, with tabs between"
            raise InputError(f"{path}: found {' '.join(row)!r}, expected {expected}")
    return [(known[f"{row[0]} {row[1]}:{row[2]} {row[3]}"], row[4]) for row in rows]


def run(
    session: Session,
    seed: int,
    budget: str,
    cpu: int,
    sample: Path,
    number: int,
    keep: Path | None,
    stages: tuple[Stage, ...],
    jobs: int,
) -> Result:
    """Run the sample's mutants, or draw it."""
    plan = Plan("default", seed, parse_budget(budget), jobs, stages, (EXPLICIT,), in_turn=True, screen=True,
                oracles=BY_DEFAULT)  # fmt: skip
    if plan.budget.cpu_seconds is None:
        raise InputError(f"--budget: found {budget}, expected CPU seconds such as 1200cpu")
    campaign = f"torch {metadata.version('torch')}, seed {seed}, {', '.join(stages)}"
    folder = keep or session.folder
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [] if number else read_sample(sample)
    name = f"{campaign} {crc32(repr(statements()).encode()):08x}".replace(", ", "-").replace(" ", "-")
    cases = healthy_campaign(session, plan, folder / f"cases-{name}.jsonl")
    lines = frozenset(line for one in cases for line in one.lines)
    spent = sum(one.cpu_seconds for one in cases)
    if number:
        drawn = draw(lines, number, seed)
        write_atomically(sample, f"# seed {seed}\n" + written(drawn))
        return Result(drawn, candidates(lines))
    campaign = f"{campaign}, {len(cases)} cases, {spent:.0f} CPU s"
    done = _results(session, chosen, cases, campaign, cpu, folder / "mutants.jsonl", jobs)
    record = {"schema": "ddefuzz.bench.mutants/1", "campaign": campaign, "cpu_seconds": spent, "statements": len(lines),
              "interrupted": len(done) < len(chosen), "mutants": done}  # fmt: skip
    return Result(record, view(done, campaign))


def _results(
    session: Session,
    chosen: list[tuple[Mutant, str]],
    cases: list[Case],
    campaign: str,
    cpu: int,
    path: Path,
    jobs: int,
) -> list[MutantResult]:
    numbers = {line: at for at, line in enumerate(statements())}
    before = {(one.mutant, one.limit, one.campaign): one for one in kept_in(path, MutantResult)}
    healthy: dict[int, CaseResult | LostTask] = {}
    adding = Lock()

    def test(row: tuple[Mutant, str], without: Pool) -> MutantResult | None:
        mutant, equivalent = row
        known = before.get((mutant, float(cpu), campaign))
        if known is not None or session.stopped():
            return known and msgspec.structs.replace(known, equivalent=equivalent)
        line = numbers[mutant.file, mutant.statement]
        reachers = in_turn(one for one in cases if line in one.lines)
        with Pool(1) as pool:

            def runner(with_it: Mutant | None, task: CaseTask) -> CaseResult | LostTask:
                seconds = 2 * cpu + SETUP
                if with_it is not None:
                    return pool.submit(run_job, Job(with_it, task), seconds).result()
                if task.index not in healthy:
                    healthy[task.index] = without.submit(run_case, task, seconds).result()
                return healthy[task.index]

            start = MutantResult(mutant=mutant, diff=diff(mutant), limit=cpu, campaign=campaign, reachers=len(reachers))
            done = result_of(start, reachers, runner, session.stopped)
        if done is None:
            return None
        with adding:
            add(path, done)
        return msgspec.structs.replace(done, equivalent=equivalent)

    every: list[MutantResult] = []
    with Pool(1) as without, ThreadPoolExecutor(jobs) as threads:
        for result in threads.map(lambda row: test(row, without), chosen):
            every += [] if result is None else [result]
            shown, named = sum(each.found for each in every), sum(each.named == "function" for each in every)
            session.live.update(f"{len(every)} of {len(chosen)} mutants: {shown} found, {named} named")
    return every


def candidates(lines: frozenset[int]) -> Iterator[Block]:
    """How many mutants there are by class and area, and how many of them the campaign reaches."""
    numbers = {line: at for at, line in enumerate(statements())}
    every = [one for file in area_of() for one in mutants_in(file)]
    count = Counter((one.rule, area_of()[one.file]) for one in every)
    hit = Counter((one.rule, area_of()[one.file]) for one in every if numbers[one.file, one.statement] in lines)
    yield prose("{} mutants, {} of them in a statement that the campaign reaches", count.total(), hit.total())
    rows = [(rule, *(f"{hit[rule, area]}/{count[rule, area]}" for area in AREAS)) for rule in RULES]
    yield table(("class", *AREAS), rows, right=tuple(AREAS))


def view(done: list[MutantResult], campaign: str) -> Iterator[Block]:
    """The rates by class and by area, and the mutants that were missed."""
    yield prose("{} mutants; campaign: {}", len(done), campaign)
    by_area = (("area", area, [one for one in done if area_of()[one.mutant.file] == area]) for area in AREAS)
    by_class = (("class", rule, [one for one in done if one.mutant.rule == rule]) for rule in RULES)
    for what, groups in (("class", by_class), ("area", by_area)):
        rows = [_rates(name, group) for _, name, group in chain(groups, [("", "all", done)]) if group]
        titles = ("mutants", "equivalent", "not reached", "found", "of the others", "named", "of the found", "op named")
        yield table((what, *titles), rows, right=titles)
    kinds = Counter(one.kind for one in done if one.found)
    yield table(
        ("kind of the failure", "mutants"), [(kind, str(n)) for kind, n in kinds.most_common()], right=("mutants",)
    )
    missed = [one for one in done if not one.found and not one.equivalent]
    yield Heading(f"Missed: {len(missed)}")
    for result in missed:
        yield prose("`{}` line {}: {} cases of {}, {} CPU s", result.mutant.name, result.mutant.line, result.cases,
                    result.reachers, f"{result.cpu_seconds:.0f}")  # fmt: skip
        yield Code(result.diff, "diff")


def _rates(name: str, group: list[MutantResult]) -> tuple[str, ...]:
    equivalent = sum(bool(one.equivalent) for one in group)
    shown = [one for one in group if one.found and not one.equivalent]
    named = Counter(one.named for one in shown)
    others = len(group) - equivalent
    unreached = sum(not one.reachers for one in group)
    return (name, *map(str, (len(group), equivalent, unreached, len(shown))), _share(len(shown), others),
            str(named["function"]), _share(named["function"], len(shown)), str(named["op"]))  # fmt: skip


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else ""
