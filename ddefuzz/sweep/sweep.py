"""Start a sweep: the workers and their versions, the ops, then the loop. Run upstream's own test on request."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, TypeVar

import msgspec

from ddefuzz.campaign.tasks import sightings_of
from ddefuzz.classify.rules import shared_rules
from ddefuzz.errors import InputError
from ddefuzz.execute.engine import LOCAL, Engine, Setup, Workers
from ddefuzz.execute.journal import last_of_case
from ddefuzz.execute.pool import Future, LostTask, Stopped, first_answer, lost_observation, waited
from ddefuzz.execute.protocol import EXPLICIT, SIZE_OBLIVIOUS, ProgramSubject, Run, Stage
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.findings.model import Sighting
from ddefuzz.internal import guarded
from ddefuzz.ops.catalogue import OPS, parse
from ddefuzz.ops.conversions import TEMPLATES
from ddefuzz.ops.spec import OpSpec
from ddefuzz.oracles import table
from ddefuzz.oracles.program import CAPTURE
from ddefuzz.program.text import digest
from ddefuzz.show.blocks import counted, time_left
from ddefuzz.sweep.census import Census, Upstream, compared, rows_of, totals_of
from ddefuzz.sweep.tasks import (
    Caps,
    DescribeTask,
    OpResult,
    Source,
    SweepResult,
    SweepTask,
    UpstreamResult,
    UpstreamTask,
    Versions,
    describe,
    run_sweep,
    run_upstream,
    with_status,
)

T = TypeVar("T")
R = TypeVar("R")

OP_SECONDS = 300.0
"""Time limit of one op. The longest measured op takes a tenth of it."""

QUEUE_PER_JOB = 2
TICK_SECONDS = 0.2

LOST_AT_MOST = 3
"""How often an op may end its worker before the sweep gives it up. Each retry leaves out the program that did it."""

KEY_DIGITS = 16


class Op(msgspec.Struct, frozen=True):
    """What is swept: an entry of OpInfo, or a template of the catalogue with the names that it calls."""

    name: str
    source: Source
    calls: tuple[str, ...] = ()
    filled: str = ""

    @property
    def key(self) -> str:
        """The key of stored results. OpInfo and the catalogue may share a name, and the slots of a template
        may change.
        """
        return f"{self.source}:{self.name}" + (f" {self.filled}" if self.filled else "")

    def matches(self, pattern: str) -> bool:
        """Whether a glob matches it: its whole name, or that of a function that its template calls."""
        short = (call.removeprefix("torch.").removeprefix("Tensor.") for call in self.calls)
        return any(fnmatchcase(name, pattern) for name in (self.name, *self.calls, *short))


def selected(versions: Versions, globs: Iterable[str], *, placed: bool = False) -> tuple[Op, ...]:
    """The ops that the globs match, all if there are none; OpInfo's alone if inputs are `placed`. They are shuffled,
    so that the time spent predicts the time left.

    InputError for a glob that matches none.
    """
    ops = [Op(name, "opinfo") for name in versions.entries]
    ops += () if placed else (_of_catalogue(name, specs) for name, specs in by_template().items())
    chosen = matching(tuple(ops), globs, Op.matches, "ops", "'chunk*'")
    return tuple(sorted(chosen, key=lambda op: hashlib.sha256(op.key.encode()).digest()))


def matching(
    ops: tuple[T, ...], globs: Iterable[str], matches: Callable[[T, str], bool], what: str, example: str
) -> tuple[T, ...]:
    """The ops that the globs match, all if there are none. InputError for a glob that matches none."""
    patterns = tuple(globs)
    for pattern in patterns:
        if not any(matches(op, pattern) for op in ops):
            raise InputError(
                f"--ops: found {pattern!r}, which names none of {len(ops)} {what}, expected a glob such as {example}"
            )
    return tuple(op for op in ops if not patterns or any(matches(op, pattern) for pattern in patterns))


def answers(futures: Mapping[str, Future[R]], stopped: Stopped) -> Iterator[tuple[str, R | LostTask]]:
    """The answers by the names of their ops, in order. Those that are missing when it is stopped are left out."""
    with suppress(KeyboardInterrupt):
        for name, future in futures.items():
            answer: R | LostTask = waited(future, stopped, name)
            yield name, answer


def by_template() -> dict[str, list[OpSpec]]:
    """The ops of the catalogue by their template. One template may have several rows."""
    specs: dict[str, list[OpSpec]] = {}
    for spec in OPS:
        specs.setdefault(str(spec), []).append(spec)
    return specs


def _of_catalogue(name: str, specs: list[OpSpec]) -> Op:
    filled = hashlib.sha256(repr((specs, TEMPLATES)).encode()).hexdigest()[:KEY_DIGITS]
    return Op(name, "catalogue", specs[0].callables, filled)


def key_of(versions: Versions, caps: Caps, oracles: tuple[str, ...] = CAPTURE) -> str:
    """Everything that decides what a sweep finds of an op. Results with the same key are the same."""
    decisive = f"{versions.generator} torch={versions.torch} {msgspec.json.encode(caps).decode()}"
    decisive += f" {','.join(oracles)}" if oracles != CAPTURE else ""
    return hashlib.sha256(decisive.encode()).hexdigest()[:KEY_DIGITS]


class SweepProgress(msgspec.Struct, frozen=True):
    """The progress of a sweep: ops done now and before, ops to do, seconds since the first began, and what it
    has found.
    """

    done: int
    kept: int
    left: int
    seconds: float
    findings: int
    new: int
    note: str = ""


def progress_line(now: SweepProgress) -> str:
    """`120 of 700 ops (20 of them from before), 3 min left, …`. The time left is estimated from the time per op."""
    left = time_left(now.seconds / max(now.done, 1) * now.left)
    before = f" ({now.kept} from before)" if now.kept else ""
    done = now.done + now.kept
    return f"{done} of {done + now.left} ops{before}, {left}, {counted(now.findings, 'finding')}, {now.new} new"


Listener: TypeAlias = Callable[[SweepProgress], None]


@dataclass(slots=True)
class Sweep:
    """A running sweep."""

    ops: tuple[Op, ...]
    caps: Caps
    versions: Versions
    database: Database
    workers: Workers
    journal: Path
    seconds: Callable[[], float]
    now: Callable[[], datetime]
    listen: Listener
    stopped: Callable[[], bool]
    done: dict[str, OpResult] = field(default_factory=dict)
    kept: int = 0
    fresh: int = 0
    interrupted: bool = False
    findings: set[str] = field(default_factory=set)
    new: set[str] = field(default_factory=set)
    oracles: tuple[str, ...] = CAPTURE
    began: float = 0.0
    indices: int = 0
    out: int = 0
    results: SimpleQueue[Callable[[], None]] = field(default_factory=SimpleQueue)

    def run(self, *, fresh: bool = False) -> None:
        """Sweep all ops except those done before, unless `fresh`. Ctrl-C keeps what is done."""
        if not fresh:
            self._take_kept()
        waiting = deque(op for op in self.ops if op.key not in self.done)
        self.began = self.seconds()
        while waiting or self.out:
            while waiting and self.out < self.workers.jobs * QUEUE_PER_JOB:
                self._send(waiting.popleft())
            with suppress(Empty):
                self.results.get(timeout=TICK_SECONDS)()
            if self.stopped():
                self.interrupted = True
                break

    def _take_kept(self) -> None:
        wanted = {op.key for op in self.ops}
        for name, result in self.database.swept(key_of(self.versions, self.caps, self.oracles), OpResult).items():
            if name in wanted:
                self.done[name] = with_status(result)
        self.kept = len(self.done)

    def _send(self, op: Op, skip: tuple[str, ...] = (), lost: tuple[str, ...] = ()) -> None:
        self.out += 1
        self.indices += 1
        task = SweepTask(op.name, op.source, self.indices, self.caps, skip, self.oracles)
        future = self.workers.submit(run_sweep, task, OP_SECONDS)

        def arrive(done: Future[Any]) -> None:
            self.out -= 1
            with guarded(op.name) as guard:
                self._end(op, task, done.result(), lost)
            if guard.error is not None:
                self._give_up(op, (*lost, guard.reason))

        future.add_done_callback(lambda done: self.results.put(lambda: arrive(done)))

    def _give_up(self, op: Op, reasons: tuple[str, ...]) -> None:
        """Count an op that a bug of ddefuzz ended. It is not saved: the next sweep tries it again."""
        self._done(op, _given_up(op, reasons), reasons[-1])

    def _end(self, op: Op, task: SweepTask, result: SweepResult | LostTask, lost: tuple[str, ...]) -> None:
        if not isinstance(result, LostTask):
            swept = with_status(msgspec.structs.replace(result.swept, lost=lost))
            self._keep(op, msgspec.structs.replace(result, swept=swept))
        elif result.outcome == "not-judged":
            self._give_up(op, (*lost, result.reason))
        else:
            self._lost(op, task, result, lost)

    def _lost(self, op: Op, task: SweepTask, lost: LostTask, before: tuple[str, ...]) -> None:
        """Record what ended the worker, and sweep the op again without that program."""
        doing = last_of_case(self.journal, task.index)
        stage: Stage | None = next((name for name in table.stages() if doing is not None and name == doing.stage), None)
        skip = task.skip
        if doing is None or stage is None:
            reason = f"{lost.reason} while its samples were made"
        else:
            semantics = SIZE_OBLIVIOUS if doing.semantics == str(SIZE_OBLIVIOUS) else EXPLICIT
            observation = lost_observation(Run(ProgramSubject(doing.program), stage, semantics), lost)
            reason = f"{lost.outcome} in {stage}: {observation.reason}"
            self._record(sightings_of(observation, doing.program, self.versions.torch), ())
            skip = (*skip, digest(parse(doing.program, "<journal>").program))
        reasons = (*before, reason)
        if len(reasons) > LOST_AT_MOST:
            self._keep(op, SweepResult(_given_up(op, reasons)), reason)
        else:
            self._send(op, skip, reasons)

    def _record(self, sightings: Iterable[Sighting], sites: Iterable[SiteRecord]) -> None:
        for sighting in sightings:
            with guarded(str(sighting.signature)):
                recorded = self.database.record(sighting, self.now())
                self.findings.add(recorded.finding_id)
                if recorded.is_new:
                    self.new.add(recorded.finding_id)
        self.database.add_sites(self.versions.torch, sites)

    def _keep(self, op: Op, result: SweepResult, note: str = "") -> None:
        with self.database.transaction():
            self._record(result.sightings, result.sites)
            encoded = msgspec.json.encode(result.swept).decode()
            self.database.save_swept(key_of(self.versions, self.caps, self.oracles), op.key, encoded)
        self._done(op, result.swept, note)

    def _done(self, op: Op, swept: OpResult, note: str) -> None:
        self.done[op.key] = swept
        self.fresh += 1
        self.listen(
            SweepProgress(
                done=self.fresh,
                kept=self.kept,
                left=len(self.ops) - len(self.done),
                seconds=self.seconds() - self.began,
                findings=len(self.findings),
                new=len(self.new),
                note=note and f"{op.name}: {note}",
            )
        )


def _given_up(op: Op, lost: tuple[str, ...]) -> OpResult:
    return OpResult(op.name, op.source, explicit="other", size_oblivious="other", lost=lost)


START_SECONDS = 180.0
"""How long the workers may take to import torch and its OpInfo."""

OPS_PER_WORKER = 60
"""A worker is replaced after this many ops. torch keeps something of each capture, and importing OpInfo takes 3 s."""

TEST_SECONDS = 120.0

FEW_SAMPLES = 4
"""Of an op that upstream does not list, so that its own test passes with all of them there."""

Note: TypeAlias = Callable[[str], None]

DEFAULT_CAPS = Caps()

PLACED = Caps(placed=6)
"""Inputs are DTensors."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a sweep: which ops (globs; all if empty), how much of each, the number of processes, the oracles
    that judge what is captured, and where the processes are.
    """

    globs: tuple[str, ...] = ()
    caps: Caps = DEFAULT_CAPS
    jobs: int = 1
    fresh: bool = False
    upstream: bool = False
    oracles: tuple[str, ...] = CAPTURE
    engine: Engine = LOCAL


def sweep(plan: Plan, database: Database, listen: Listener, note: Note, stopped: Stopped) -> Census:
    """Sweep, and combine the results of this run and of earlier runs."""
    begun = time.monotonic()
    with (
        TemporaryDirectory(prefix="journal-", dir=scratch_folder()) as folder,
        plan.engine.start(plan.jobs, Path(folder), Setup(OPS_PER_WORKER, shared_rules())) as pool,
    ):
        versions = first_answer(pool.submit(describe, DescribeTask(plan.upstream), START_SECONDS), stopped)
        running = Sweep(
            ops=selected(versions, plan.globs, placed=bool(plan.caps.placed)),
            caps=plan.caps,
            versions=versions,
            database=database,
            workers=pool,
            journal=Path(folder),
            seconds=time.monotonic,
            now=lambda: datetime.now(UTC),
            listen=listen,
            stopped=stopped,
            oracles=plan.oracles,
        )
        running.run(fresh=plan.fresh)
        swept = tuple(running.done.values())
        upstream = None
        if plan.upstream and not running.interrupted:
            upstream = _compared(running, versions, pool, note, stopped)
    return Census(
        torch=versions.torch,
        generator=versions.generator,
        selection=plan.globs,
        seconds=round(time.monotonic() - begun, 1),
        totals=totals_of(swept),
        rows=rows_of(swept),
        interrupted=running.interrupted,
        upstream=upstream,
        placed=bool(plan.caps.placed),
    )


def _compared(running: Sweep, versions: Versions, pool: Workers, note: Note, stopped: Stopped) -> Upstream:
    """Run upstream's own test on the ops about which the two lists disagree."""
    swept = tuple(one for one in running.done.values() if one.source == "opinfo")
    failing = {one.op for one in swept if one.explicit == "dde"}
    listed = set(versions.listed)
    disputed = sorted(failing.symmetric_difference(listed) & {one.op for one in swept})
    note(f"running upstream's own test on {len(disputed)} ops whose result differs from its list")
    tasks = (UpstreamTask(op) if op in listed else UpstreamTask(op, samples=FEW_SAMPLES) for op in disputed)
    futures = {task.op: pool.submit(run_upstream, task, TEST_SECONDS) for task in tasks}
    tests: dict[str, UpstreamResult] = {}
    for op, future in futures.items():
        result = waited(future, stopped)
        tests[op] = UpstreamResult(op, "lost", message=result.reason) if isinstance(result, LostTask) else result
    return compared(swept, versions.listed, versions.skipped, tests)
