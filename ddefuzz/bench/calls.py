"""What calling captured programs costs, compared with capturing them."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from ddefuzz.campaign.tasks import DescribeTask, Versions, describe
from ddefuzz.errors import NothingRanError
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import CHEAP_TO_CALL, ProgramSubject, Run, Stage
from ddefuzz.execute.worker import late
from ddefuzz.oracles.program import CAPTURE, Trial, judge_run
from ddefuzz.oracles.table import NAMES, calls_of

CASE_SECONDS = 120.0


class CallingTask(msgspec.Struct, frozen=True):
    """Draw a case and capture it in a stage; if `calling`, call what was captured at the sizes of the oracles."""

    profile: str
    seed: int
    index: int
    stage: Stage
    calling: bool


class CallingResult(msgspec.Struct, frozen=True):
    """CPU seconds of a worker for capture, calls and judging.

    `reported` says that an oracle reported a failure. Then its time is mostly that of finding the site.
    """

    captured: bool
    reported: bool
    cpu_seconds: float


class CallingCost(msgspec.Struct, frozen=True):
    """The cost of calling, by stage: CPU seconds of captures alone, and with calls and all oracles.

    `programs` counts the captures of `draws` drawn programs in all stages. Programs that are not captured are left out.
    `reported` counts those for which an oracle reported a failure; `healthy_alone` and `healthy_called` are the totals
    over the others.
    """

    torch: str
    profile: str
    seed: int
    draws: int
    programs: int
    alone: dict[str, float]
    called: dict[str, float]
    reported: int
    healthy_alone: float
    healthy_called: float
    schema: str = "ddefuzz.bench.calls/1"

    @property
    def ratio(self) -> float:
        """CPU seconds with all oracles over those with the capture oracle alone."""
        return sum(self.called.values()) / sum(self.alone.values())

    @property
    def healthy_ratio(self) -> float | None:
        """The same over the captures for which nothing was reported; None if there is none."""
        return self.healthy_called / self.healthy_alone if self.healthy_alone else None


def run_calling(task: CallingTask) -> CallingResult:
    """The worker's side."""
    drawn: Any = late("ddefuzz.generate.draw").drawn_case(task.profile, task.seed, task.index)
    text: str = late("ddefuzz.program.text").print_program(drawn.program)
    names = NAMES if task.calling else CAPTURE
    run = Run(ProgramSubject(text), task.stage, calls=calls_of(names))
    before = time.process_time()
    tried = judge_run(Trial(run, names))
    spent = time.process_time() - before
    return CallingResult(tried.observation.outcome == "ok", bool(tried.failures), spent)


def calling_cost(profile: str, seed: int, draws: int) -> CallingCost:
    """Measure `draws` cases of a profile in each stage whose captured programs campaigns call.

    One worker captures them, and another one captures and calls them: a second capture of a program costs less than its
    first. Raises NothingRanError if none of them is captured.
    """
    tasks = [CallingTask(profile, seed, index, stage, False) for index in range(draws) for stage in CHEAP_TO_CALL]
    sides = [_results([msgspec.structs.replace(task, calling=calling) for task in tasks]) for calling in (False, True)]
    alone: dict[str, float] = dict.fromkeys(CHEAP_TO_CALL, 0.0)
    called = dict(alone)
    done: list[tuple[CallingResult, CallingResult]] = []
    for task, one, other in zip(tasks, *sides, strict=True):
        if one is not None and other is not None and one.captured and other.captured:
            alone[task.stage] += one.cpu_seconds
            called[task.stage] += other.cpu_seconds
            done.append((one, other))
    with Pool(1) as pool:
        version = pool.submit(describe, DescribeTask(profile, seed), CASE_SECONDS).result()
    if not done:
        raise NothingRanError(f"profile {profile}: found no captured program in {draws} draws, expected some (--draws)")
    torch = version.torch if isinstance(version, Versions) else ""
    healthy = [pair for pair in done if not pair[1].reported]
    one_side, other_side = (sum(pair[side].cpu_seconds for pair in healthy) for side in (0, 1))
    return CallingCost(
        torch, profile, seed, draws, len(done), alone, called, len(done) - len(healthy), one_side, other_side
    )


def _results(tasks: list[CallingTask]) -> list[CallingResult | None]:
    """The results of a new worker, None for a task that ended it."""
    with Pool(1) as pool:
        sent = [pool.submit(run_calling, task, CASE_SECONDS) for task in tasks]
        done = [future.result() for future in sent]
    return [one if isinstance(one, CallingResult) else None for one in done]
