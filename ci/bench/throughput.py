"""The cost of a campaign compared with the cost of torch itself: ratios measured side by side in one session."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
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
from ddefuzz.show.blocks import Block, prose, table

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


class Throughput(msgspec.Struct, frozen=True):
    """The result. CPU seconds leave out the start of the processes, on both sides.

    `memory_slope_kb` is the least-squares growth of a worker's resident memory per case, in 10^3 bytes, after
    its first cases. `memory_peak_mb` is the maximum of any worker in the campaigns, in 10^6 bytes.
    """

    torch: str
    profile: str
    seed: int
    cases: int
    campaign_cpu: float
    bare_cpu: float
    programs_per_cpu_second: dict[str, float]
    seconds_one_job: float
    seconds_two_jobs: float
    memory_slope_kb: float
    memory_peak_mb: float
    recycled_after: int
    schema: str = "ddefuzz.bench.throughput/1"


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
    """Measure a campaign of `cases` cases. Two cores must be free for honest numbers."""
    say, folder = session.live.say, session.folder
    say(f"bare torch.export.export on {cases} programs, in workers recycled as a campaign's are")
    bare = _bare(profile, seed, cases)
    say(f"the campaign on the same {cases} programs, export stage with verdicts, one job")
    one, own_cpu = _campaign(profile, seed, cases, 1, folder)
    say("the same with two jobs")
    two, _ = _campaign(profile, seed, cases, 2, folder)
    say("all stages, a worker that is not recycled")
    results = _cases(profile, seed, min(cases, 120))
    memory = [result.rss_mb for result in results[len(results) // 4 :]]
    record = Throughput(
        torch=one.torch,
        profile=profile,
        seed=seed,
        cases=cases,
        campaign_cpu=sum(one.cpu_seconds.values()) + own_cpu,
        bare_cpu=bare,
        programs_per_cpu_second=_rates(results),
        seconds_one_job=one.seconds - one.start_seconds,
        seconds_two_jobs=two.seconds - two.start_seconds,
        memory_slope_kb=linear_regression(range(len(memory)), memory).slope * 1000,
        memory_peak_mb=max(one.peak_rss_mb, two.peak_rss_mb),
        recycled_after=TASKS_PER_WORKER,
    )
    return Result(record, list(view(record)))


def view(record: Throughput) -> Iterator[Block]:
    """Each number with its meaning."""
    yield prose(
        "{} cases of profile {}, seed {}, torch {}; the start of processes does not count anywhere",
        record.cases,
        record.profile,
        record.seed,
        record.torch,
    )
    rows = [
        (f"{record.bare_cpu / record.campaign_cpu:.0%}", "of the campaign's CPU seconds are torch's own export"),
        (
            f"{record.campaign_cpu / record.bare_cpu:.2f}",
            "CPU seconds of the campaign (export stage, verdicts included) over bare torch.export.export: "
            f"{record.campaign_cpu:.1f} / {record.bare_cpu:.1f} (target ≤ 1.5)",
        ),
        (
            f"{record.seconds_one_job / record.seconds_two_jobs:.2f}",
            f"speed-up of two jobs over one: {record.seconds_one_job:.1f} s / {record.seconds_two_jobs:.1f} s "
            "(target ≥ 1.8)",
        ),
        (f"{record.memory_slope_kb:.1f}", "10^3 bytes that a worker grows for each case, all stages"),
        (
            f"{record.memory_peak_mb:.1f}",
            f"10^6 bytes, the most that a worker held; recycled after {record.recycled_after} cases "
            f"(limit {MEMORY_LIMIT_MB:g})",
        ),
        *(
            (f"{rate:.1f}", f"programs for each CPU second: {name}")
            for name, rate in record.programs_per_cpu_second.items()
        ),
    ]
    yield table(("", "what"), rows, right=("",))


def _bare(profile: str, seed: int, cases: int) -> float:
    """CPU seconds of bare exports, in chunks as long as a worker lives. So both sides pay for the same number
    of cold first calls.
    """
    chunks = [(begin, min(begin + TASKS_PER_WORKER, cases)) for begin in range(0, cases, TASKS_PER_WORKER)]
    total = 0.0
    with Pool(1, tasks_per_worker=1) as pool:
        for begin, end in chunks:
            total += _got(pool.submit(run_bare, BareTask(profile, seed, begin, end), TASK_SECONDS).result())
    return total


def _campaign(profile: str, seed: int, cases: int, jobs: int, folder: Path) -> tuple[Summary, float]:
    """The summary, and the CPU seconds of this process: its loop, its database."""
    plan = Plan(profile, seed, Budget(cases=cases), jobs, ("export",), (EXPLICIT,), minimize=False)
    stamp = datetime.now(UTC).strftime("%H%M%S%f")
    with Database.open(f"sqlite:///{folder / f'bench-{jobs}-{stamp}.db'}") as database:
        before = time.process_time()
        summary = start(plan, database, lambda event, tally: None, lambda: False)
        return summary, time.process_time() - before


def _cases(profile: str, seed: int, cases: int) -> list[CaseResult]:
    with Pool(1, tasks_per_worker=cases + 1) as pool:
        tasks = [CaseTask(profile, seed, index, MEASURED_STAGES) for index in range(cases)]
        return [_got(future.result()) for future in [pool.submit(run_case, task, TASK_SECONDS) for task in tasks]]


def _got(result: R | Lost) -> R:
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
