"""What campaigns cost compared with torch itself: captures, calls and judging, in ratios measured in one session."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import warnings
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from ci.bench.command import Result, Session, ratios
from ddefuzz.campaign.launch import start
from ddefuzz.campaign.plan import Budget, Plan
from ddefuzz.campaign.summary import Summary
from ddefuzz.errors import DdefuzzError
from ddefuzz.execute.pool import TASKS_PER_WORKER, LostTask, Pool
from ddefuzz.execute.protocol import EXPLICIT, FRONTENDS, STAGES, ProgramSubject, Stage
from ddefuzz.execute.worker import late
from ddefuzz.findings.database import Database
from ddefuzz.oracles import agreement
from ddefuzz.oracles.program import CAPTURE
from ddefuzz.oracles.table import NAMES
from ddefuzz.show.blocks import Block, prose, table

TASK_SECONDS = 600.0
MEASURED_STAGES: tuple[Stage, ...] = tuple(stage for stage in STAGES if stage not in ("eager", "inductor"))

MEMORY_LIMIT_MB = 700.0


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
    draw, printed, stages, subject = (
        late(f"ddefuzz.{name}") for name in ("generate.draw", "program.text", "execute.stages", "execute.subject")
    )
    spent = 0.0
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    for index in range(task.start, task.stop):
        text = printed.print_program(draw.case(task.profile, task.seed, index))
        module, args, kwargs, shapes = stages.as_exported(subject.prepare(ProgramSubject(text)))
        started = time.process_time()
        # A program that cannot be exported costs what it costs.
        with contextlib.suppress(Exception):
            export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
        spent += time.process_time() - started
    return spent


def run(session: Session, profile: str, seed: int, cases: int) -> Result:
    """Measure a campaign of `cases` cases. Two cores must be free for honest numbers.

    CPU seconds leave out the start of the processes, on both sides.
    """
    say = session.live.say
    say(f"bare torch.export.export on {cases} programs, in workers recycled as a campaign's are")
    # In chunks as long as a worker lives. So both sides pay for the same number of cold first calls.
    begins = range(0, cases, TASKS_PER_WORKER)
    chunks = (BareTask(profile, seed, begin, min(begin + TASKS_PER_WORKER, cases)) for begin in begins)
    with Pool(1, tasks_per_worker=1) as pool:
        answers = [session.answer(pool.submit(run_bare, chunk, TASK_SECONDS)) for chunk in chunks]
    if lost := [one.reason for one in answers if isinstance(one, LostTask)]:
        raise DdefuzzError(f"the benchmark lost its worker: {lost[0]}")
    bare = sum(one for one in answers if not isinstance(one, LostTask))
    say(f"the campaign on the same {cases} programs, export stage with verdicts, one job")
    alone, own_cpu = _campaign(session, _plan(profile, seed, cases, 1))
    say("the same with two jobs")
    two, _ = _campaign(session, _plan(profile, seed, cases, 2))
    say("the same in all stages")
    every, _ = _campaign(session, replace(_plan(profile, seed, cases, 1), stages=MEASURED_STAGES))
    campaign = sum(alone.cpu_seconds.values()) + own_cpu
    seconds = [summary.seconds - summary.start_seconds for summary in (alone, two)]
    rates = {name: round(cases / spent, 1) for name, spent in every.cpu_seconds.items() if spent}
    peak = max(summary.peak_rss_mb for summary in (alone, two, every))
    record = {
        "torch": alone.torch,
        "profile": profile,
        "seed": seed,
        "cases": cases,
        "campaign_cpu": campaign,
        "bare_cpu": bare,
        "programs_per_cpu_second": rates,
        "seconds_one_job": seconds[0],
        "seconds_two_jobs": seconds[1],
        "memory_peak_mb": peak,
        "recycled_after": TASKS_PER_WORKER,
        "schema": "ddefuzz.bench.throughput/2",
    }
    export = "CPU seconds of the campaign (export stage, verdicts included) over bare torch.export.export"
    rows = [
        (campaign / bare, f"{export}: {campaign:.1f} / {bare:.1f} (target ≤ 1.5)"),
        (bare / campaign, "of the campaign's CPU seconds are torch's own export"),
        (seconds[0] / seconds[1], f"speed-up of two jobs: {seconds[0]:.1f} s / {seconds[1]:.1f} s (target ≥ 1.8)"),
    ]
    numbers = [
        (
            f"{peak:.1f}",
            f"10^6 bytes, the most of a worker, which has {TASKS_PER_WORKER} cases (≤ {MEMORY_LIMIT_MB:g})",
        ),
        *((f"{rate:.1f}", f"programs for each CPU second: {name}") for name, rate in rates.items()),
    ]
    head = prose(
        "{} cases of profile {}, seed {}, torch {}; processes start for free", cases, profile, seed, alone.torch
    )
    return Result(record, [head, ratios(rows), table(("", "what"), numbers, right=("",))])


def _plan(profile: str, seed: int, cases: int, jobs: int) -> Plan:
    return Plan(profile, seed, Budget(cases=cases), jobs, ("export",), (EXPLICIT,), minimize=False)


def _campaign(session: Session, plan: Plan) -> tuple[Summary, float]:
    """The summary, and the CPU seconds of this process: its loop, its database."""
    with (
        tempfile.TemporaryDirectory(dir=session.folder) as folder,
        Database.open(f"sqlite:///{folder}/bench.db") as database,
    ):
        before = time.process_time()
        summary = start(plan, database, lambda event, tally: None, session.stopped)
    if summary.interrupted:
        raise KeyboardInterrupt
    return summary, time.process_time() - before


ALONE, AGREEMENT, ALL = "capture", agreement.ORACLE.name, "all"

SIDES: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {ALONE: CAPTURE, AGREEMENT: (*CAPTURE, AGREEMENT), ALL: NAMES}
)
"""The oracles of each measurement: none but the capture oracle, agreement too, all."""


def run_calls(session: Session, cases: int, seed: int, profile: str) -> Result:
    """Measure campaigns with the same cases, each in one of the stages whose captured programs are called, in turn."""
    seconds: dict[str, dict[str, float]] = {}
    for side, oracles in SIDES.items():
        session.live.say(f"{cases} programs of profile {profile}, oracles: {side}")
        plan = replace(_plan(profile, seed, cases, 1), stages=FRONTENDS, in_turn=True, oracles=oracles)
        summary, _ = _campaign(session, plan)
        seconds[side] = {stage: summary.cpu_seconds.get(stage, 0.0) for stage in FRONTENDS}
    called: dict[str, int] = {stage: one.programs for stage, one in summary.calls.items()}
    head = {"torch": summary.torch, "profile": profile, "seed": seed, "cases": cases, "called": called}
    return Result({**head, "seconds": seconds, "schema": "ddefuzz.bench.calls/3"}, view_calls(head, seconds))


def view_calls(head: dict[str, Any], seconds: dict[str, dict[str, float]]) -> list[Block]:
    """The ratios, and those of each stage."""
    whole = {side: sum(spent.values()) for side, spent in seconds.items()}
    rows = [
        (whole[AGREEMENT] / whole[ALONE], "CPU seconds with calls and agreement over capture alone (target ≤ 1.5)"),
        (whole[ALL] / whole[ALONE], "CPU seconds with calls and all oracles over capture alone"),
    ]
    rows += [
        (
            seconds[ALL][stage] / spent,
            f"{stage}, all oracles: {seconds[ALL][stage]:.1f} / {spent:.1f}; "
            f"{head['called'].get(stage, 0) / seconds[ALL][stage]:.1f} programs called for each CPU second",
        )
        for stage, spent in seconds[ALONE].items()
        if spent and seconds[ALL][stage]
    ]
    text = "{} programs of profile {}, seed {}, torch {}"
    return [prose(text, *(head[name] for name in ("cases", "profile", "seed", "torch"))), ratios(rows)]
