"""Start a sweep: the workers and their versions, the ops, then the loop. Run upstream's own test on request."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from ddefuzz.execute.pool import Lost, Pool, Stopped, first_answer, waited
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.findings.database import Database
from ddefuzz.oracles.program import CAPTURE
from ddefuzz.sweep.census import Census, Upstream, compared, rows_of, totals_of
from ddefuzz.sweep.sweep import Listener, Sweep, selected
from ddefuzz.sweep.tasks import (
    Caps,
    DescribeTask,
    UpstreamResult,
    UpstreamTask,
    Versions,
    describe,
    run_upstream,
)

START_SECONDS = 180.0
"""How long the workers may take to import torch and its OpInfo."""

OPS_PER_WORKER = 60
"""A worker is replaced after this many ops. torch keeps something of each capture, and importing OpInfo takes 3 s."""

TEST_SECONDS = 120.0

FEW_SAMPLES = 4
"""Of an op that upstream does not list, so that its own test passes with all of them there."""

Note: TypeAlias = Callable[[str], None]

DEFAULT_CAPS = Caps()


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a sweep: which ops (globs; all if empty), how much of each, the number of processes, and the
    oracles that judge what is captured.
    """

    globs: tuple[str, ...] = ()
    caps: Caps = DEFAULT_CAPS
    jobs: int = 1
    fresh: bool = False
    upstream: bool = False
    oracles: tuple[str, ...] = CAPTURE


def sweep(plan: Plan, database: Database, listen: Listener, note: Note, stopped: Stopped) -> Census:
    """Sweep, and combine the results of this run and of earlier runs."""
    begun = time.monotonic()
    with (
        TemporaryDirectory(prefix="journal-", dir=scratch_folder()) as folder,
        Pool(plan.jobs, Path(folder), tasks_per_worker=OPS_PER_WORKER) as pool,
    ):
        versions = first_answer(pool.submit(describe, DescribeTask(plan.upstream), START_SECONDS), stopped)
        running = Sweep(
            ops=selected(versions, plan.globs),
            caps=plan.caps,
            jobs=plan.jobs,
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
    )


def _compared(running: Sweep, versions: Versions, pool: Pool, note: Note, stopped: Stopped) -> Upstream:
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
        tests[op] = UpstreamResult(op, "lost", message=result.reason) if isinstance(result, Lost) else result
    return compared(swept, versions.listed, versions.skipped, tests)
