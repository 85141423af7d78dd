"""The cost of a campaign compared with the cost of torch itself: ratios measured side by side in one session."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from pathlib import Path
from statistics import linear_regression
from typing import Any, TypeVar

import msgspec

from ci.bench.command import Result, Session
from ddefuzz.campaign.launch import start
from ddefuzz.campaign.plan import Budget, Plan
from ddefuzz.campaign.summary import Summary
from ddefuzz.campaign.tasks import CaseResult, CaseTask, run_case
from ddefuzz.errors import DdefuzzError
from ddefuzz.execute.pool import TASKS_PER_WORKER, Lost, Pool
from ddefuzz.execute.protocol import EXPLICIT, STAGES, ProgramSubject, Stage
from ddefuzz.execute.worker import late
from ddefuzz.findings.database import Database
from ddefuzz.show.blocks import prose, table

TASK_SECONDS = 600.0
MEASURED_STAGES: tuple[Stage, ...] = tuple(stage for stage in STAGES if stage not in ("eager", "inductor"))

MEMORY_LIMIT_MB = 700.0

R = TypeVar("R")


class BareTask(msgspec.Struct, frozen=True):
    """Call `torch.export.export` on these cases, and nothing else."""

    profile: str
    seed: int
    start: int
    stop: int


def run_bare(task: BareTask) -> float:
    """The worker's side: the CPU seconds inside `torch.export.export`, successful or not, without hooks.

    It needs a process of its own: what torch prints is discarded.
    """
    export: Any = late("torch").export.export
    draw, text, stages, subject = (
        late(f"ddefuzz.{name}") for name in ("generate.draw", "program.text", "execute.stages", "execute.subject")
    )
    spent = 0.0
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    for index in range(task.start, task.stop):
        program = text.print_program(draw.case(task.profile, task.seed, index))
        module, args, kwargs, shapes = stages.as_exported(subject.prepare(ProgramSubject(program)))
        started = time.process_time()
        # A program that cannot be exported costs what it costs.
        with contextlib.suppress(Exception):
            export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
        spent += time.process_time() - started
    return spent


def run(session: Session, profile: str, seed: int, cases: int) -> Result:
    """Measure a campaign of `cases` cases. Two cores must be free for honest numbers.

    CPU seconds leave out the start of the processes, on both sides. Memory grows by the least-squares slope of a
    worker's resident memory, after its first cases.
    """
    say = session.live.say
    say(f"bare torch.export.export on {cases} programs, in workers recycled as a campaign's are")
    bare = _bare(profile, seed, cases)
    say(f"the campaign on the same {cases} programs, export stage with verdicts, one job")
    one, own_cpu = _campaign(profile, seed, cases, 1, session.folder)
    say("the same with two jobs")
    two, _ = _campaign(profile, seed, cases, 2, session.folder)
    say("all stages, a worker that is not recycled")
    with Pool(1, tasks_per_worker=cases + 1) as pool:
        tasks = [CaseTask(profile, seed, index, MEASURED_STAGES) for index in range(min(cases, 120))]
        results = [_answer(future.result()) for future in [pool.submit(run_case, task, TASK_SECONDS) for task in tasks]]
    campaign = sum(one.cpu_seconds.values()) + own_cpu
    seconds = [summary.seconds - summary.start_seconds for summary in (one, two)]
    memory = [result.rss_mb for result in results[len(results) // 4 :]]
    slope, peak = linear_regression(range(len(memory)), memory).slope * 1000, max(one.peak_rss_mb, two.peak_rss_mb)
    rates = _rates(results)
    record = {
        "torch": one.torch,
        "profile": profile,
        "seed": seed,
        "cases": cases,
        "campaign_cpu": campaign,
        "bare_cpu": bare,
        "programs_per_cpu_second": rates,
        "seconds_one_job": seconds[0],
        "seconds_two_jobs": seconds[1],
        "memory_slope_kb": slope,
        "memory_peak_mb": peak,
        "recycled_after": TASKS_PER_WORKER,
        "schema": "ddefuzz.bench.throughput/1",
    }
    rows = [
        (f"{bare / campaign:.0%}", "of the campaign's CPU seconds are torch's own export"),
        (
            f"{campaign / bare:.2f}",
            "CPU seconds of the campaign (export stage, verdicts included) over bare torch.export.export: "
            f"{campaign:.1f} / {bare:.1f} (target ≤ 1.5)",
        ),
        (
            f"{seconds[0] / seconds[1]:.2f}",
            f"speed-up of two jobs over one: {seconds[0]:.1f} s / {seconds[1]:.1f} s (target ≥ 1.8)",
        ),
        (f"{slope:.1f}", "10^3 bytes that a worker grows for each case, all stages"),
        (
            f"{peak:.1f}",
            f"10^6 bytes, the most that a worker held; recycled after {TASKS_PER_WORKER} cases "
            f"(limit {MEMORY_LIMIT_MB:g})",
        ),
        *((f"{rate:.1f}", f"programs for each CPU second: {name}") for name, rate in rates.items()),
    ]
    head = "{} cases of profile {}, seed {}, torch {}; the start of processes does not count anywhere"
    return Result(record, [prose(head, cases, profile, seed, one.torch), table(("", "what"), rows, right=("",))])


def _bare(profile: str, seed: int, cases: int) -> float:
    """CPU seconds of bare exports, in chunks as long as a worker lives. So both sides pay for the same number
    of cold first calls.
    """
    begins = range(0, cases, TASKS_PER_WORKER)
    with Pool(1, tasks_per_worker=1) as pool:
        tasks = (BareTask(profile, seed, begin, min(begin + TASKS_PER_WORKER, cases)) for begin in begins)
        return sum(_answer(pool.submit(run_bare, task, TASK_SECONDS).result()) for task in tasks)


def _campaign(profile: str, seed: int, cases: int, jobs: int, folder: Path) -> tuple[Summary, float]:
    """The summary, and the CPU seconds of this process: its loop, its database."""
    plan = Plan(profile, seed, Budget(cases=cases), jobs, ("export",), (EXPLICIT,), minimize=False)
    with Database.open(f"sqlite:///{folder / f'bench-{jobs}.db'}") as database:
        before = time.process_time()
        summary = start(plan, database, lambda event, tally: None, lambda: False)
        return summary, time.process_time() - before


def _answer(result: R | Lost) -> R:
    if isinstance(result, Lost):
        raise DdefuzzError(f"the benchmark lost its worker: {result.reason}")
    return result


def _rates(results: list[CaseResult]) -> dict[str, float]:
    """Programs per CPU second, by stage."""
    seconds: dict[str, float] = {"draw": sum(result.draw_seconds for result in results)}
    for result in results:
        for run in result.outcomes:
            if run.verdict:
                seconds[run.stage] = seconds.get(run.stage, 0.0) + run.cpu_seconds
    return {name: round(len(results) / spent, 1) for name, spent in seconds.items() if spent}
