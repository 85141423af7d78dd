"""What calling captured programs costs, compared with capturing them."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from ddefuzz.campaign.tasks import DescribeTask, Versions, describe
from ddefuzz.errors import DdefuzzError
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import CHEAP_TO_CALL, ProgramSubject, Run, Stage
from ddefuzz.execute.worker import late
from ddefuzz.oracles.program import Trial, judge_run
from ddefuzz.oracles.table import NAMES, calls_of

CASE_SECONDS = 120.0


class CallingTask(msgspec.Struct, frozen=True):
    """Draw a case, capture it in a stage, and call what was captured at the sizes that the oracles need; then judge."""

    profile: str
    seed: int
    index: int
    stage: Stage


class CallingResult(msgspec.Struct, frozen=True):
    """CPU seconds of a worker for a case: capture and capture oracle alone, and with calls and all oracles.

    `reported` says that an oracle reported a failure. Then its time is mostly that of finding the site.
    """

    captured: bool
    reported: bool
    alone: float
    called: float


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
    """The worker's side: the same program twice, in turn first with and first without calls."""
    drawn: Any = late("ddefuzz.generate.draw").drawn_case(task.profile, task.seed, task.index)
    text: str = late("ddefuzz.program.text").print_program(drawn.program)
    run = Run(ProgramSubject(text), task.stage)
    trials = {
        "alone": Trial(run),
        "called": Trial(msgspec.structs.replace(run, calls=calls_of(NAMES)), NAMES),
    }
    judge_run(trials["called"])  # what only a first capture of this kind costs counts for neither
    spent: dict[str, float] = {}
    outcome, reported = "", False
    for name in sorted(trials, reverse=bool(task.index % 2)):
        before = time.process_time()
        tried = judge_run(trials[name])
        outcome, reported = tried.observation.outcome, reported or bool(tried.failures)
        spent[name] = time.process_time() - before
    return CallingResult(outcome == "ok", reported, spent["alone"], spent["called"])


def calling_cost(profile: str, seed: int, draws: int) -> CallingCost:
    """Measure `draws` cases of a profile in each stage whose captured programs campaigns call, in one worker.

    Raises DdefuzzError if none of them is captured.
    """
    alone: dict[str, float] = dict.fromkeys(CHEAP_TO_CALL, 0.0)
    called = dict(alone)
    done: list[CallingResult] = []
    with Pool(1) as pool:
        sent = [
            (stage, pool.submit(run_calling, CallingTask(profile, seed, index, stage), CASE_SECONDS))
            for index in range(draws)
            for stage in CHEAP_TO_CALL
        ]
        for stage, future in sent:
            result = future.result()
            if isinstance(result, CallingResult) and result.captured:
                alone[stage] += result.alone
                called[stage] += result.called
                done.append(result)
        version = pool.submit(describe, DescribeTask(profile, seed), CASE_SECONDS).result()
    if not done:
        raise DdefuzzError(f"none of {draws} programs of profile {profile} was captured")
    torch = version.torch if isinstance(version, Versions) else ""
    healthy = [one for one in done if not one.reported]
    spent = sum(one.alone for one in healthy), sum(one.called for one in healthy)
    return CallingCost(
        torch, profile, seed, draws, len(done), alone, called, len(done) - len(healthy), spent[0], spent[1]
    )
