"""The main loop of a campaign: submit cases, record failures at once, then minimize and confirm them.

One loop owns the database and the budget. It keeps a short queue of tasks for the workers. New cases and follow-ups of
findings share the CPU time (`Pace`). Drawing stops a little before the end of a time budget.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ddefuzz.answers.model import NOT_JUDGED
from ddefuzz.campaign.exchange import Exchange
from ddefuzz.campaign.guide import Guide
from ddefuzz.campaign.plan import (
    BATCH,
    CONFIRM_SECONDS,
    MINIMIZE_SECONDS,
    SLOW_TO_START,
    Budget,
    CaseQueue,
    Plan,
    confirm_seconds,
)
from ddefuzz.campaign.summary import CampaignFinding, Step, Summary, Tally, minimized
from ddefuzz.campaign.tasks import (
    TOGETHER,
    BatchResult,
    CaseBatch,
    CaseResult,
    CaseTask,
    ConfirmResult,
    ControlResult,
    ControlTask,
    MinimizeResult,
    MinimizeTask,
    lost_case,
    lost_in,
    run_batch,
    run_case,
    run_confirm,
    run_control,
    run_minimize,
    running,
    shown_by_loss,
    smallest_so_far,
    was_begun,
)
from ddefuzz.errors import UnsupportedError
from ddefuzz.execute.engine import Workers
from ddefuzz.execute.pool import Future, LostTask
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import ROWS
from ddefuzz.findings.model import Finding, Sighting
from ddefuzz.findings.schema import packed, unpacked
from ddefuzz.internal import guarded
from ddefuzz.oracles.program import Suspect, suspect_of
from ddefuzz.oracles.table import row_of

FOLLOW_UP_SHARE: Final = 0.5
"""The fraction of CPU time for minimizing and confirming, as long as there is something to draw."""

FIRST_GUESS: Final = 0.5
"""CPU seconds of one follow-up, before any was measured."""


@dataclass(slots=True)
class Pace:
    """The cost of follow-ups so far, and the estimate for those that wait."""

    budget: Budget
    jobs: int
    spent: float = 0.0
    done: int = 0

    def followed(self, cpu_seconds: float) -> None:
        """Count a minimization or a confirmation."""
        self.spent += cpu_seconds
        self.done += 1

    def is_turn_of_follow_ups(self, cpu_seconds: float) -> bool:
        """Whether follow-ups have had less than their share of all CPU seconds so far."""
        return self.spent <= FOLLOW_UP_SHARE * cpu_seconds

    def may_draw(self, seconds: float, cpu_seconds: float, waiting: int) -> bool:
        """Whether the budget allows more than the `waiting` follow-ups."""
        needed = waiting * (self.spent / self.done if self.done else FIRST_GUESS)
        budget = self.budget
        if budget.cpu_seconds is not None and budget.cpu_seconds - cpu_seconds <= needed:
            return False
        if budget.drawing_seconds is None:
            return True
        # Workers also start and wait, so a second of wall-clock time gives less than `jobs` CPU seconds.
        a_second = cpu_seconds / seconds if cpu_seconds else self.jobs
        return budget.drawing_seconds - seconds > needed / a_second


QUEUE_PER_JOB = 2
"""The number of submitted tasks per worker: one that runs, and one that waits so that the worker is never idle."""

WARM, COLD = False, True
"""The two kinds of workers. Each has its own queue, so that no worker waits for the other kind."""

TICK_SECONDS = 0.2

LOST_BEFORE_BEGUN = 20
"""How many tasks may be lost before a worker begins them. With more, the campaign ends: workers cannot start."""

GRACE_SECONDS = 2.0
"""How long to wait for the last results after the end of a time budget."""


Event: TypeAlias = tuple[Literal["case", "found", "smaller", "confirmed", "lost"], str]
"""What has just happened: a kind and, except for `case`, the id of a finding or a line to show."""

Listener: TypeAlias = Callable[[Event, Tally], None]

OnCase: TypeAlias = Callable[[CaseResult, Tally], None]
"""Gets the result of each case as it is counted."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Sources of time: seconds since the start, and the current date."""

    seconds: Callable[[], float]
    now: Callable[[], datetime]


@dataclass(slots=True)
class Campaign:
    """A running campaign: submitted tasks, waiting follow-ups, and counts."""

    plan: Plan
    database: Database
    workers: Workers
    clock: Clock
    journal: Path
    torch: str
    generator: str
    listen: Listener
    stopped: Callable[[], bool]
    number: int
    on_case: OnCase | None = None
    tally: Tally = field(default_factory=Tally)
    out: Counter[bool] = field(default_factory=Counter)
    begun: dict[int, CaseTask] = field(default_factory=dict)
    minimizing: dict[str, MinimizeTask] = field(default_factory=dict)
    lost_before_begun: int = 0
    events: list[Event] = field(default_factory=list)
    followed: set[str] = field(default_factory=set)
    together: list[CaseTask] = field(default_factory=list)
    to_minimize: deque[Callable[[], None]] = field(default_factory=deque)
    to_confirm: deque[Callable[[], None]] = field(default_factory=deque)
    results: SimpleQueue[Callable[[], None]] = field(default_factory=SimpleQueue)
    guide: Guide | None = None
    exchange: Exchange | None = None
    counted: list[CaseResult] = field(default_factory=list)
    writes: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    pace: Pace = field(init=False)
    next_undone: int = 0
    start_seconds: float = 0.0
    spent_before: float = 0.0
    ahead: set[int] = field(default_factory=set)
    elsewhere: dict[str, tuple[Sighting, ...]] = field(default_factory=dict)
    interrupted: bool = False

    def __post_init__(self) -> None:
        self.pace = Pace(self.plan.budget, self.workers.jobs)

    def run(self) -> Summary:
        """Work until the budget is spent or a stop is requested. Everything found is saved."""
        self._restore()
        done = frozenset(self.tally.digests)
        cases = CaseQueue(index for index in self.plan.cases() if index not in done)
        self.start_seconds = self.clock.seconds()
        while self._submit_work(cases) or self.out.total():
            self._save_results()
            self.interrupted = self.stopped()
            if self.interrupted or self._over(self.plan.budget.seconds, GRACE_SECONDS):
                break
        self._save_smaller_programs()
        if not self.interrupted:
            for name in tuple(self.elsewhere):
                self._record_elsewhere(name)
            self.database.finish_campaign(self.number, self.clock.now())
            if self.exchange is not None:
                self.exchange.end()
        return self.summary()

    def summary(self) -> Summary:
        """The summary of the campaign so far."""
        plan, tally = self.plan, self.tally
        return Summary(
            seed=plan.seed,
            profile=plan.profile,
            generator=self.generator,
            torch=self.torch,
            budget=str(plan.budget),
            shard=str(plan.shard),
            jobs=self.workers.jobs,
            cases=len(tally.digests),
            digests=tuple(tally.digests[index] for index in sorted(tally.digests)),
            sites=tally.ledger.count(),
            growth=tuple(tally.growth),
            strategies=dict(sorted(tally.strategies.items())),
            outcomes=tally.nested_outcomes(),
            verdicts=tally.nested_verdicts(),
            calls=tally.calls(),
            accepted=dict(sorted(tally.accepted.items())),
            findings=tuple(tally.findings.values()),
            cpu_seconds={name: round(seconds, 3) for name, seconds in sorted(tally.cpu_seconds.items())},
            seconds=round(self.clock.seconds(), 2),
            start_seconds=round(self.start_seconds, 2),
            peak_rss_mb=tally.peak_rss_mb,
            interrupted=self.interrupted,
            minimized=minimized(tally.findings.values(), tally.cpu_seconds),
            unminimized=sum(seen.lacks_minimizing for seen in tally.findings.values()),
            lost=tally.lost,
            campaign=self.number,
        )

    def _over(self, limit: float | None, grace: float = 0.0) -> bool:
        cpu = self.plan.budget.cpu_seconds
        spent = cpu is not None and self._spent() > cpu
        return spent or (limit is not None and self.clock.seconds() > limit + grace)

    def _spent(self) -> float:
        """CPU seconds of the workers since the campaign was started or resumed."""
        return self.tally.total_cpu_seconds() - self.spent_before

    def _submit_work(self, cases: CaseQueue) -> bool:
        """Fill the queue with cases and follow-ups. False if nothing is left to submit."""
        in_time = not self._over(self.plan.budget.seconds)
        spent = self._spent()
        waiting = 2 * len(self.to_minimize) + len(self.minimizing) + len(self.to_confirm) + self.out[COLD]
        jobs = self.pace.jobs = self.workers.jobs  # nodes come and go
        drawing = cases.index is not None and self.pace.may_draw(self.clock.seconds(), spent, waiting)
        following = in_time and (not drawing or self.pace.is_turn_of_follow_ups(spent))
        while self.to_confirm and following and self.out[COLD] < jobs:
            self.to_confirm.popleft()()
        while self.out[WARM] < jobs * QUEUE_PER_JOB:
            if self.to_minimize and following:
                self.to_minimize.popleft()()
            elif not drawing or cases.index is None:
                self._submit_together()
                return bool(self.to_minimize or self.to_confirm) and in_time
            elif self.guide is not None and not self.guide.ready(cases.index):
                self._submit_together()
                return True
            else:
                self._begin_case(cases.take())
        return True

    def _save_results(self) -> None:
        """Count what has arrived, save it in one transaction, tell the guide, and send the events.

        Only what writes is in the transaction, because the drivers of a campaign write in turn.
        """
        ready = self._arrived()
        if not ready:
            return
        for take in ready:
            take()
        self.next_undone = min(self.begun, default=max(self.tally.digests, default=-1) + 1)
        self.ahead.update(result.index for result in self.counted)
        self.ahead = {index for index in self.ahead if index >= self.next_undone}
        with self.database.transaction():
            for what, write in self.writes:
                self._guarded(what, write)
            for result in self.counted:
                self._guarded(f"case {result.index}", partial(self._record_case, result))
            self.database.add_sites(self.torch, self.tally.ledger.drain(), campaign=self.number)
            self.database.advance(self.number, self.next_undone, self.clock.now(), self.ahead)
            if step := self.tally.drain():
                self.database.add_step(self.number, packed(step, level=1))
        if self.guide is not None:
            for result in self.counted:
                self._guarded(f"case {result.index}", partial(self.guide.learn, result))
        self.writes.clear()
        self.counted.clear()
        for event in self.events:
            self.listen(event, self.tally)
        self.events.clear()

    def _guarded(self, what: str, do: Callable[[], None]) -> None:
        """A bug of ddefuzz that a result brings out must not end the campaign: it is noted."""
        with guarded(what) as guard:
            do()
        self.events += [("lost", str(guard.error))] if guard.error else []

    def _arrived(self) -> list[Callable[[], None]]:
        """Wait a moment for a result, and another one for those of half of the workers: saving many costs little more.
        Each worker has a task that waits for it, so none is idle meanwhile.
        """
        ready: list[Callable[[], None]] = []
        with suppress(Empty):
            ready.append(self.results.get(timeout=TICK_SECONDS))
            until = self.clock.seconds() + TICK_SECONDS
            while len(ready) < self.pace.jobs // 2 and (left := until - self.clock.seconds()) > 0:
                ready.append(self.results.get(timeout=left))
        while not self.results.empty():
            ready.append(self.results.get())
        return ready

    def _send(
        self,
        what: str,
        function: Callable[[Any], Any],
        task: Any,
        seconds: float,
        take: Callable[[Any], None],
        *,
        cold: bool = False,
        writes: bool = True,
    ) -> None:
        """Submit a task. What takes its result writes to the database, or only counts it."""
        self.out[cold] += 1

        def arrive(done: Future[Any]) -> None:
            self.out[cold] -= 1
            if writes:
                self.writes.append((what, lambda: take(done.result())))
            else:
                self._guarded(what, lambda: take(done.result()))

        future = self.workers.submit(function, task, seconds, cold=cold)
        future.add_done_callback(lambda done: self.results.put(lambda: arrive(done)))

    def _begin_case(self, index: int) -> None:
        case = None if self.guide is None else self.guide.take(index)
        self._submit_case(self.plan.task_of(index, case))

    def _submit_case(self, task: CaseTask) -> None:
        self.begun[task.index] = task
        if task.stages[-1:] == (TOGETHER,) and TOGETHER in task.called:
            self.together.append(task)
            if len(self.together) == BATCH:
                self._submit_together()
            return
        take = partial(self._end_case, task)
        self._send(f"case {task.index}", run_case, task, self.plan.seconds_of(task), take, writes=False)

    def _submit_together(self) -> None:
        """Submit the cases that wait to be called together. They have the limit of one, as a rule far above what they
        need: a case that reaches it does so alone, too.
        """
        tasks, self.together = tuple(self.together), []
        if tasks:
            self._submit_batch(CaseBatch(tasks))

    def _submit_batch(self, batch: CaseBatch) -> None:
        first, seconds = batch.tasks[0], max(map(self.plan.seconds_of, batch.tasks))
        take = partial(self._end_batch, batch)
        self._send(f"cases from {first.index}", run_batch, batch, seconds, take, writes=False)

    def _end_batch(self, batch: CaseBatch, done: BatchResult | LostTask) -> None:
        """Count the cases of a batch. If it was lost, the case that was running is run alone, the others together."""
        if isinstance(done, BatchResult):
            for task, result in zip(batch.tasks, done.results, strict=True):
                self._end_case(task, result)
            return
        if len(batch.tasks) == 1:
            self._end_case(batch.tasks[0], done)
            return
        doing = running(batch, self.journal)
        if doing is None:
            self._count_not_begun(done)
        alone, others = ([task for task in batch.tasks if (task is doing) == chosen] for chosen in (True, False))
        for tasks in filter(None, (alone, others)):
            self._submit_batch(CaseBatch(tuple(tasks)))

    def _end_case(self, task: CaseTask, result: CaseResult | LostTask) -> None:
        if isinstance(result, LostTask):
            if result.outcome == "not-judged":
                self.events.append(("lost", f"case {task.index}: {result.reason}"))
            elif not was_begun(task.index, self.journal):
                self._submit_again(task, result)
                return
            else:
                self.tally.lost += 1
            result = lost_case(task, result, self.journal, self.torch)
        del self.begun[task.index]
        self.tally.add(result)
        if self.on_case is not None:
            self.on_case(result, self.tally)
        self.counted.append(result)
        self.events.append(("case", ""))

    def _record_case(self, result: CaseResult) -> None:
        """Save the failures of a case."""
        names = dict[str, None]()
        for sighting in result.sightings:
            with guarded(str(sighting.signature)):
                names.setdefault(self._record(sighting))
        for name in names:
            self._update(name, cases=self.tally.findings[name].cases + 1)

    def _submit_again(self, task: CaseTask, lost: LostTask) -> None:
        """Submit a case again that was lost before any worker had begun it."""
        self._count_not_begun(lost)
        self._submit_case(task)

    def _count_not_begun(self, lost: LostTask) -> None:
        self.lost_before_begun += 1
        if self.lost_before_begun > LOST_BEFORE_BEGUN:
            raise UnsupportedError(
                f"the workers end before they run any task: {lost.reason}; `ddefuzz doctor` says more"
            )

    def _record(self, sighting: Sighting) -> str:
        recorded = self.database.record(sighting, self.clock.now(), self.number)
        name = recorded.finding_id
        if name not in self.tally.findings:
            finding, seconds = self.database.get(name), round(self.clock.seconds(), 2)
            expired = name in self.plan.known.expired
            is_new = expired or (recorded.is_new and name not in self.plan.known.known)
            theirs = self.exchange is not None and self.exchange.is_met(name)
            seen = CampaignFinding(
                name, sighting.signature, sighting.cause, is_new, seconds, expired=expired, theirs=theirs
            )
            self.tally.see(msgspec.structs.replace(seen, data_dependent=finding.data_dependent))
            self.events.append(("found", name))
            if not theirs:
                self._follow(finding)
        return name

    def _restore(self) -> None:
        """Count again what this campaign counted before it was cut short, and queue the follow-ups that it lacks."""
        for counted in self.database.steps(self.number):
            for result in self.tally.restore(unpacked(counted, Step)):
                if self.guide is not None:
                    self.guide.take(result.index)
                    self.guide.learn(result)
        self.ahead = set(self.tally.digests)
        self.spent_before = self.tally.total_cpu_seconds()
        for name in (name for name, seen in self.tally.findings.items() if not seen.theirs):
            finding = self.database.get(name)
            self._follow(finding)
            self._control(finding)

    def _follow(self, finding: Finding) -> None:
        """Queue the missing follow-up of an open finding, once: minimization if it is possible, else confirmation."""
        program, failure = finding.minimal or finding.original, finding.evidence
        wanted = ROWS[finding.state].followed_up and finding.id not in self.plan.known.known
        lacking = finding.confirmed is None and wanted and finding.cause != "user"
        if not (self.plan.minimize and lacking) or program is None or failure is None or finding.id in self.followed:
            return
        self.followed.add(finding.id)
        suspect = suspect_of(program, finding.signature, failure)
        if row_of(finding.kind).deadly:
            self.to_confirm.append(lambda: self._confirm(finding.id, suspect))
        else:
            also = tuple(stage for stage in self.plan.stages if stage not in {suspect.stage, *SLOW_TO_START})
            task = MinimizeTask(suspect, finding.ops, finding=finding.id, also=also)
            self.to_minimize.append(lambda: self._minimize(finding.id, task))

    def _minimize(self, name: str, task: MinimizeTask) -> None:
        self.minimizing[name] = task
        self._send(name, run_minimize, task, MINIMIZE_SECONDS, partial(self._end_minimize, name, task))

    def _end_minimize(self, name: str, task: MinimizeTask, result: MinimizeResult | LostTask) -> None:
        suspect = task.suspect
        del self.minimizing[name]
        best = result if isinstance(result, MinimizeResult) else smallest_so_far(task, self.journal)
        if not isinstance(result, MinimizeResult):
            kept = "the smallest program so far" if best else "the original program"
            stage = lost_in(task, self.journal)
            what = f"its smallest program was lost in {stage}" if stage else "minimizing was cut short"
            self.events.append(("lost", f"{name}: {what}: {result.reason}; {kept} is kept"))
        if best is not None:
            self._followed("minimize", best.cpu_seconds)
            self.database.set_minimal(name, best.program, steps=best.steps, attempts=best.attempts)
            self._update(name, steps=best.steps)
            self.events.append(("smaller", name))
            self.elsewhere[name] = best.sightings
            suspect = msgspec.structs.replace(suspect, program=best.program)
        self.to_confirm.append(lambda: self._confirm(name, suspect))

    def _followed(self, what: str, cpu_seconds: float) -> None:
        self.tally.cpu_seconds[what] += cpu_seconds
        self.pace.followed(cpu_seconds)

    def _record_elsewhere(self, name: str) -> None:
        """Save the failures of the smallest program of a finding in other stages."""
        for sighting in self.elsewhere.pop(name, ()):
            self._record(sighting)

    def _save_smaller_programs(self) -> None:
        """Save the smallest programs so far of minimizations that the end of the campaign cuts short."""
        for name, task in self.minimizing.items():
            best = smallest_so_far(task, self.journal)
            if best is not None:
                self.database.set_minimal(name, best.program, steps=best.steps, attempts=best.attempts)

    def _confirm(self, name: str, suspect: Suspect) -> None:
        take = partial(self._end_confirm, name, suspect)
        self._send(name, run_confirm, suspect, confirm_seconds(suspect), take, cold=True)

    def _end_confirm(self, name: str, suspect: Suspect, result: ConfirmResult | LostTask) -> None:
        match result:
            case ConfirmResult(shown=failure, cpu_seconds=seconds):
                shown = failure is not None
                self._followed("confirm", seconds)
            case LostTask(outcome="not-judged", reason=reason):
                # A bug of ddefuzz says nothing about the finding, which stays unconfirmed.
                self.events.append(("lost", f"{name}: {reason}"))
                return
            case LostTask():
                failure = shown_by_loss(suspect, result)
                shown = failure is not None
        # Only now, because an unconfirmed finding is minimized again when the campaign is resumed.
        self._record_elsewhere(name)
        self.database.set_confirmed(name, int(shown), 1, failure)
        self._update(name, confirmed=f"{int(shown)}/1")
        self.events.append(("confirmed", name))
        self._control(self.database.get(name))

    def _control(self, finding: Finding) -> None:
        """Queue the control runs of a confirmed program."""
        name, program = finding.id, finding.minimal or finding.original
        if self.plan.minimize and program is not None and finding.shown is not None and finding.control is None:
            task = ControlTask(program, finding.shown, finding.shown_ops)
            take = partial(self._end_control, name)
            self.to_minimize.append(lambda: self._send(name, run_control, task, CONFIRM_SECONDS, take))

    def _end_control(self, name: str, result: ControlResult | LostTask) -> None:
        if isinstance(result, ControlResult):
            self._followed("control", result.cpu_seconds)
        self.database.set_control(name, result.control if isinstance(result, ControlResult) else NOT_JUDGED)
        self._update(name, data_dependent=self.database.get(name).data_dependent)

    def _update(self, name: str, **changes: object) -> None:
        """Update the counts of a finding, if this campaign has seen it."""
        if seen := self.tally.findings.get(name):
            self.tally.see(msgspec.structs.replace(seen, **changes))
