"""What the driver of a campaign costs: its loop, its guide and its database, beside workers that are simulated.

A campaign of this machine is recorded: the result of each task, and how long a worker had it. Then the same loop runs
with any number of workers that give these results in turn, in simulated time. The driver's own CPU seconds pass in
that time as they are measured, so a driver that cannot keep up leaves its workers idle. Several drivers share what
they learn in one database, and write to it in turn.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from queue import Empty
from typing import Any, NamedTuple, cast

import msgspec

from ci.bench.command import Result, Session
from ddefuzz.campaign.campaign import Campaign, Clock
from ddefuzz.campaign.exchange import Exchange, key_of
from ddefuzz.campaign.guide import Guide, Shard, alone
from ddefuzz.campaign.launch import new_plan, options_of, start
from ddefuzz.campaign.plan import Plan
from ddefuzz.campaign.summary import Summary
from ddefuzz.campaign.tasks import BatchResult, CaseBatch, CaseResult, CaseTask, MinimizeTask
from ddefuzz.execute.engine import Engine, LocalWorkers, Setup
from ddefuzz.execute.pool import Future, LostTask
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import parse_url
from ddefuzz.oracles.program import Suspect
from ddefuzz.show.blocks import prose, table


class Given(NamedTuple):
    """The result of a task, and the seconds that a worker had it."""

    result: Any
    seconds: float


def _name(function: Callable[[Any], Any], argument: Any) -> str:
    """What a task has in common with those that may have the same result: its function, and the signature."""
    suspect = argument.suspect if isinstance(argument, MinimizeTask) else argument
    return f"{function.__name__} {suspect.signature.key if isinstance(suspect, Suspect) else ''}"


class Recorder:
    """An engine that keeps what the workers of this machine answer, by the `_name` of the task."""

    name = "local"

    def __init__(self) -> None:
        self.given: dict[str, list[Given]] = defaultdict(list)

    def start(self, jobs: int, journal: Path, setup: Setup) -> LocalWorkers:
        """Workers that are recorded."""
        kept = self.given

        class RecordingWorkers(LocalWorkers):
            def submit(
                self, function: Callable[[Any], Any], argument: Any, timeout: float, *, cold: bool = False
            ) -> Future[Any]:
                future = super().submit(function, argument, timeout, cold=cold)

                def keep(done: Future[Any]) -> None:
                    result = done.result()
                    if not isinstance(result, LostTask):
                        seconds = getattr(result, "cpu_seconds", 0.0)
                        if isinstance(result, BatchResult):
                            seconds = sum(one.cpu_seconds for one in result.results)
                        kept[_name(function, argument)].append(Given(result, seconds))

                future.add_done_callback(keep)
                return future

        return RecordingWorkers(jobs, journal, setup.tasks_per_worker)


class Answer:
    """The future result of a simulated task."""

    def __init__(self, result: Any) -> None:
        self._result = result
        self.call: Callable[[Any], None] = lambda _: None

    def result(self) -> Any:
        """The result, which is there when `call` is called."""
        return self._result

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Keep what is called when simulated time has come."""
        self.call = callback


@dataclass(slots=True)
class Simulation:
    """`jobs` workers, the results that wait for the driver (`get` and `put`, as of a queue), and the time."""

    jobs: int
    given: dict[str, list[Given]]
    now: float = 0.0
    busy: list[tuple[float, float]] = field(default_factory=list)
    _charged: float = field(default_factory=time.thread_time)
    _free: list[float] = field(default_factory=list)
    _events: list[tuple[float, int, Answer]] = field(default_factory=list)
    _ready: list[Callable[[], None]] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=count)
    _turns: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        self._free = [0.0] * self.jobs

    def charge(self) -> float:
        """Let the CPU seconds of the driver pass, and return the time."""
        spent = time.thread_time()
        self.now += spent - self._charged
        self._charged = spent
        return self.now

    def submit(
        self, function: Callable[[Any], Any], argument: Any, timeout: float, *, cold: bool = False
    ) -> Future[Any]:
        """Give the task to the worker that is free first."""
        del timeout, cold
        now = self.charge()
        result, seconds = self._next(_name(function, argument), argument)
        begin = max(now, heappop(self._free))
        heappush(self._free, begin + seconds)
        self.busy.append((begin, begin + seconds))
        answer = Answer(result)
        heappush(self._events, (begin + seconds, next(self._numbers), answer))
        return cast("Future[Any]", answer)

    def _next(self, name: str, argument: Any) -> Given:
        if isinstance(argument, CaseBatch):
            cases = [self._next("run_case ", task) for task in argument.tasks]
            return Given(BatchResult(tuple(one.result for one in cases)), sum(one.seconds for one in cases))
        if not self.given[name]:  # it was lost, or its end was that of the recorded campaign
            return Given(LostTask("timeout", "it was not recorded"), 1.0)
        result, seconds = self.given[name][self._turns[name] % len(self.given[name])]
        self._turns[name] += 1
        if isinstance(argument, CaseTask):
            changed = {"index": argument.index, "digest": f"{result.digest} {argument.index}"}
            result = msgspec.structs.replace(cast("CaseResult", result), **changed)
        return Given(result, max(seconds, 1e-3))

    def put(self, result: Callable[[], None]) -> None:
        """What the driver has to do when a task has ended."""
        self._ready.append(result)

    def empty(self) -> bool:
        """Whether nothing has ended until now."""
        self.charge()
        return not self._ready and not (self._events and self._events[0][0] <= self.now)

    def get(self, timeout: float = 0.0) -> Callable[[], None]:
        """What has ended first. If nothing has, time passes until something does, or until the timeout."""
        self.charge()
        if not self._ready:
            if not self._events or self._events[0][0] > self.now + timeout:
                self.now += timeout
                raise Empty
            end, _, answer = heappop(self._events)
            self.now = max(self.now, end)
            answer.call(answer)
        return self._ready.pop(0)


class Turns:
    """Which of several drivers runs: the one whose time is the earliest. It runs until it writes to the database, which
    one driver at a time does. `written` are the seconds of that.
    """

    def __init__(self, drivers: int) -> None:
        self.written = 0.0
        self._free = 0.0
        self._times = dict.fromkeys(range(drivers), 0.0)
        self._changed = threading.Condition()

    @contextmanager
    def writing(self, number: int, work: Simulation) -> Iterator[None]:
        """Wait for the turn of a driver, and until no other writes."""
        with self._changed:
            self._times[number] = work.charge()
            self._changed.notify_all()
            while min(self._times, key=lambda other: (self._times[other], other)) != number:
                self._changed.wait()
        begin = work.now = max(work.charge(), self._free)
        yield
        self._free = work.charge()
        self.written += self._free - begin

    def leave(self, number: int) -> None:
        """Say that a driver has ended."""
        with self._changed:
            del self._times[number]
            self._changed.notify_all()


class Rate(msgspec.Struct, frozen=True):
    """`cases` with so many simulated workers of all `drivers` and cases in a round. `efficiency` is the part of the
    workers' seconds in which they had a task, between the first and the last tenth of the time; `cpu_ms` are those of a
    driver for a case, and in `written_ms` of them no other driver can write. `sustained` are the cases a second of a
    driver that has half a core.
    """

    drivers: int
    jobs: int
    round_size: int
    cases: int
    cpu_ms: float
    written_ms: float
    cases_per_second: float
    sustained: float
    efficiency: float


class Record(msgspec.Struct, frozen=True):
    """What was recorded, and the rows."""

    torch: str
    recorded: int
    seconds_of_a_case: float
    rows: tuple[Rate, ...]
    schema: str = "ddefuzz.bench.driver/2"


def run(
    session: Session,
    recorded: int,
    cases: int,
    seed: int,
    workers: tuple[int, ...],
    drivers: int,
    case_ms: int,
    ahead: int,
) -> Result:
    """Record a campaign, and simulate others with its results."""
    session.live.say(f"recording a campaign of {recorded} cases on this machine")
    plan, recording = _plan(seed, recorded), Recorder()
    with Database.open(f"sqlite:///{session.folder}/recorded.db") as database:
        plan = replace(plan, engine=cast("Engine", recording))
        summary = start(plan, database, lambda event, tally: None, session.stopped)
    if summary.interrupted:
        raise KeyboardInterrupt
    given = recording.given["run_case "]
    rows, mean = [], sum(one.seconds for one in given) / len(given)
    if case_ms:
        stretch, mean = case_ms / 1000 / mean, case_ms / 1000
        for name, answers in recording.given.items():
            recording.given[name] = [one._replace(seconds=stretch * one.seconds) for one in answers]
    for jobs in workers:
        round_size = max(32, ahead * jobs // drivers)
        session.live.say(f"{cases} cases on {jobs} simulated workers, in rounds of {round_size}")
        plan = replace(_plan(seed, cases), round_size=round_size, share=drivers > 1)
        rows.append(simulated(session, plan, jobs, recording.given, drivers))
    record = Record(summary.torch, len(given), round(mean, 3), tuple(rows))
    head = prose(
        "the results of {} cases of a campaign (torch {}, {} seconds of a worker each in the mean), given again by "
        "simulated workers; the driver is real, with its database (SQLite)",
        len(given), summary.torch, f"{mean:.2f}",
    )  # fmt: skip
    cells = (
        (
            str(row.drivers), str(row.jobs), str(row.round_size), str(row.cases), f"{row.cpu_ms:.2f}",
            f"{row.written_ms:.2f}", f"{row.cases_per_second:.0f}", f"{row.sustained:.0f}", f"{row.efficiency:.2f}",
        ) for row in rows
    )  # fmt: skip
    titles = (
        "drivers", "workers", "round", "cases", "driver: ms CPU a case", "of them writing", "cases a second",
        "a driver on half a core", "efficiency",
    )  # fmt: skip
    return Result(record, [head, table(titles, cells, right=titles)])


def simulated(session: Session, plan: Plan, jobs: int, given: dict[str, list[Given]], drivers: int = 1) -> Rate:
    """A campaign with simulated workers, which are shared out to the drivers."""
    url, turns = f"sqlite:///{session.folder}/simulated-{drivers}-{jobs}.db", Turns(drivers)

    def drive(number: int) -> tuple[Simulation, Summary, float]:
        work = Simulation(jobs // drivers, given)
        before = time.thread_time()
        try:
            summary = _campaign(session, replace(plan, shard=Shard(number + 1, drivers)), work, turns, url)
        finally:
            turns.leave(number)
        return work, summary, time.thread_time() - before

    Database.open(url).close()
    with ThreadPoolExecutor(drivers) as threads:
        done = list(threads.map(drive, range(drivers)))
    if any(summary.interrupted for _, summary, _ in done):
        raise KeyboardInterrupt
    cases, spent = sum(summary.cases for _, summary, _ in done), sum(seconds for *_, seconds in done)
    end = max(work.now for work, *_ in done)
    first, last = 0.1 * end, 0.9 * end
    busy = sum(max(0.0, min(to, last) - max(begin, first)) for work, *_ in done for begin, to in work.busy)
    return Rate(
        drivers, jobs, plan.round_size, cases, 1000 * spent / cases, 1000 * turns.written / cases, cases / end,
        0.5 * cases / spent, busy / (jobs * (last - first)),
    )  # fmt: skip


def _campaign(session: Session, plan: Plan, work: Simulation, turns: Turns, url: str) -> Summary:
    """What one driver does."""
    epoch, number = datetime(2026, 1, 1, tzinfo=UTC), plan.shard.index - 1

    class TurnDatabase(Database):
        @contextmanager
        def transaction(self) -> Iterator[None]:
            with turns.writing(number, work), self._writing():
                yield

    with TurnDatabase(parse_url(url)) as database:
        with database.transaction():
            entry = database.start_campaign(
                profile=plan.profile, seed=plan.seed, generator="recorded", options=options_of(plan), when=epoch
            )
        key = key_of(plan.profile, plan.seed, "recorded", options_of(plan))
        exchange = Exchange(database, entry, key) if plan.share else None
        campaign = Campaign(
            plan=plan, database=database, workers=work,
            clock=Clock(work.charge, lambda: epoch + timedelta(seconds=work.now)),
            journal=session.folder, torch="recorded", generator="recorded",
            listen=lambda event, tally: None, stopped=session.stopped, number=entry,
            results=cast("Any", work), exchange=exchange,
        )  # fmt: skip
        campaign.guide = Guide(
            plan.seed, called_case=plan.called_case, round_size=plan.round_size, shard=plan.shard,
            exchange=exchange or alone,
        )  # fmt: skip
        return campaign.run()


def _plan(seed: int, cases: int) -> Plan:
    return new_plan(
        profile="default", seed=seed, jobs=2, budget=f"{cases}x", stages=["export", "aot"], semantics=["explicit"],
        in_turn=True, screen=True, guided=True, shard="1/1", oracles=["capture"], minimize=True,
    )  # fmt: skip
