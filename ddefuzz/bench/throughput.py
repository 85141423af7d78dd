"""The cost of a campaign compared with the cost of torch itself: ratios measured side by side in one session."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ddefuzz.campaign.launch import start
from ddefuzz.campaign.plan import Budget, Plan
from ddefuzz.campaign.summary import Summary
from ddefuzz.campaign.tasks import CaseResult, CaseTask, run_case
from ddefuzz.errors import DdefuzzError
from ddefuzz.execute.pool import TASKS_PER_WORKER, Lost, Pool
from ddefuzz.execute.protocol import EXPLICIT, STAGES, Stage
from ddefuzz.execute.worker import late
from ddefuzz.findings.database import Database

TASK_SECONDS = 600.0
MEASURED_STAGES: tuple[Stage, ...] = tuple(stage for stage in STAGES if stage not in ("eager", "inductor"))

MEMORY_LIMIT_MB = 700.0


class BareTask(msgspec.Struct, frozen=True):
    """Call `torch.export.export` on these cases, and nothing else."""

    profile: str
    seed: int
    start: int
    stop: int


class BareResult(msgspec.Struct, frozen=True):
    """CPU seconds inside `torch.export.export`, successful or not."""

    cpu_seconds: float


class Throughput(msgspec.Struct, frozen=True):
    """The result of `measure`. CPU seconds leave out the start of the processes, on both sides.

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

    @property
    def ratio(self) -> float:
        """CPU seconds of the campaign over those of bare exports of the same programs."""
        return self.campaign_cpu / self.bare_cpu

    @property
    def torch_share(self) -> float:
        """The fraction of the campaign's CPU seconds that bare exports of the same programs need: torch's
        own work.
        """
        return self.bare_cpu / self.campaign_cpu

    @property
    def speed_up(self) -> float:
        """The speed-up of two jobs over one."""
        return self.seconds_one_job / self.seconds_two_jobs


def run_bare(task: BareTask) -> BareResult:
    """The worker's side of the comparison."""
    # Imported in the worker only, so that this process does not import torch.
    result: BareResult = late("ddefuzz.bench.bare").run_bare(task)
    return result


def measure(profile: str, seed: int, cases: int, folder: Path, say: Callable[[str], None]) -> Throughput:
    """Measure a campaign of `cases` cases; `folder` is for its databases. Two cores must be free for honest numbers."""
    say(f"bare torch.export.export on {cases} programs, in workers recycled as a campaign's are")
    bare = _bare(profile, seed, cases)
    say(f"the campaign on the same {cases} programs, export stage with verdicts, one job")
    one, own_cpu = _campaign(profile, seed, cases, 1, folder)
    say("the same with two jobs")
    two, _ = _campaign(profile, seed, cases, 2, folder)
    say("all stages, a worker that is not recycled")
    results = _cases(profile, seed, min(cases, 120))
    return Throughput(
        torch=one.torch,
        profile=profile,
        seed=seed,
        cases=cases,
        campaign_cpu=sum(one.cpu_seconds.values()) + own_cpu,
        bare_cpu=bare,
        programs_per_cpu_second=_rates(results),
        seconds_one_job=one.seconds - one.start_seconds,
        seconds_two_jobs=two.seconds - two.start_seconds,
        memory_slope_kb=_slope([result.rss_mb for result in results[len(results) // 4 :]]) * 1000,
        memory_peak_mb=max(one.peak_rss_mb, two.peak_rss_mb),
        recycled_after=TASKS_PER_WORKER,
    )


def _bare(profile: str, seed: int, cases: int) -> float:
    """CPU seconds of bare exports, in chunks as long as a worker lives. So both sides pay for the same number
    of cold first calls.
    """
    chunks = [(begin, min(begin + TASKS_PER_WORKER, cases)) for begin in range(0, cases, TASKS_PER_WORKER)]
    total = 0.0
    with Pool(1, tasks_per_worker=1) as pool:
        for begin, end in chunks:
            result = _got(pool.submit(run_bare, BareTask(profile, seed, begin, end), TASK_SECONDS).result())
            total += result.cpu_seconds
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


def _got(result: Any) -> Any:
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


def _slope(values: list[float]) -> float:
    """Least squares over equally spaced values."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    above = sum((place - middle) * (value - mean) for place, value in enumerate(values))
    below = sum((place - middle) ** 2 for place in range(len(values)))
    return above / below
