"""Faults of workers: killed, stopped or out of memory during a capture. The campaign goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddefuzz.campaign.campaign import Event
from ddefuzz.campaign.launch import start
from ddefuzz.campaign.plan import CASE_SECONDS, Budget, Plan
from ddefuzz.campaign.summary import Summary, Tally
from ddefuzz.campaign.tasks import run_case
from ddefuzz.execute import engine
from ddefuzz.execute.engine import LocalWorkers
from ddefuzz.execute.journal import entries, left_by
from ddefuzz.execute.pool import Future, Pool
from ddefuzz.execute.protocol import EXPLICIT, STAGES
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding
from ddefuzz.ops.catalogue import parse
from ddefuzz.program.text import digest
from tests.campaign.faulty_tasks import allocate, process_of
from tests.campaign.real_campaign import workers

CASES = 6


def run(
    folder: Path, act: Callable[[], bool] = lambda: False, case_seconds: float = CASE_SECONDS
) -> tuple[Summary, tuple[Finding, ...], list[str]]:
    """A small campaign with one worker; `act` is called again and again until it returns True."""
    lines: list[str] = []
    acted = False

    def listen(event: Event, tally: Tally) -> None:
        assert tally is not None
        if event[0] == "lost":
            lines.append(event[1])

    def stopped() -> bool:
        nonlocal acted
        acted = acted or act()
        return False

    plan = Plan(
        "default", 7, Budget(cases=CASES), 1, ("export",), (EXPLICIT,), minimize=False, case_seconds=case_seconds
    )
    with Database.open(f"sqlite:///{folder / 'ddefuzz.db'}") as database:
        summary = start(plan, database, listen, stopped)
        return summary, database.findings(), lines


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return run(tmp_path_factory.mktemp("undisturbed"))[0]


def phases_files() -> list[Path]:
    """What tasks that run, and those that were lost, left of their phases."""
    return list(scratch_folder().glob("phases-*"))


class Signalled:
    """Sends a signal to the worker once it captures a program: it is held still to look.

    A loss in eager, while ddefuzz reads a captured program, or with a forced answer is no finding.
    """

    def __init__(self, number: signal.Signals) -> None:
        self.number = number
        self.earlier = set(phases_files())

    def __call__(self) -> bool:
        found = workers(os.getpid())
        journals = list(scratch_folder().glob("journal-*"))
        if not found or not journals:
            return False
        worker = found[0]
        worker.suspend()
        doing = [entry for entry in entries(journals[0]) if entry.worker == worker.pid]
        parts = {left_by(path).phase.part for path in phases_files() if path not in self.earlier}
        captures = bool(doing) and doing[-1].stage in STAGES and " with " not in doing[-1].semantics
        captures = captures and parts == {"capture"}
        if captures and self.number is not signal.SIGSTOP:
            worker.send_signal(self.number)
        if not captures or self.number is not signal.SIGSTOP:
            worker.resume()
        return captures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "kind", "reason"),
    [
        (signal.SIGSEGV, "crash", "SIGSEGV (Segmentation fault)"),
        (signal.SIGKILL, "crash", "SIGKILL (Killed)"),
        pytest.param(signal.SIGSTOP, "timeout", "stopped after 20 s by the clock", marks=pytest.mark.long),
    ],
)
def test_a_worker_that_is_lost_is_a_finding_with_the_program_that_it_captured(
    tmp_path: Path,
    undisturbed: Summary,
    number: signal.Signals,
    kind: str,
    reason: str,
) -> None:
    seconds = 4 if number is signal.SIGSTOP else CASE_SECONDS
    summary, findings, _ = run(tmp_path, Signalled(number), seconds)
    assert summary.digests == undisturbed.digests
    assert summary.lost == 1
    (lost,) = [finding for finding in findings if finding.kind in ("crash", "timeout")]
    assert lost.kind == kind
    assert lost.failure is not None
    assert lost.failure.evidence == reason
    assert lost.original is not None
    assert digest(parse(lost.original, "original.py").program) in undisturbed.digests


@pytest.mark.slow
def test_an_allocation_of_eight_gigabytes_fails_without_ending_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Summary
) -> None:
    class Greedy(LocalWorkers):
        """In the place of case 2, eight gigabytes."""

        def submit(
            self, function: Callable[[Any], Any], argument: Any, timeout: float, *, cold: bool = False
        ) -> Future[Any]:
            greedy = function is run_case and argument.index == 2
            return super().submit(allocate if greedy else function, argument, timeout, cold=cold)

    monkeypatch.setattr(engine, "LocalWorkers", Greedy)
    summary, findings, lines = run(tmp_path)
    assert (summary.lost, lines) == (1, [])
    assert [finding for finding in findings if finding.kind in ("crash", "timeout")] == []
    assert summary.digests[:2] + summary.digests[3:] == undisturbed.digests[:2] + undisturbed.digests[3:]


@pytest.mark.slow
def test_a_pool_whose_idle_worker_is_killed_has_a_new_one_for_the_next_task() -> None:
    with Pool(1) as pool:
        assert pool.submit(process_of, "first", 60).result() == f"first {workers(os.getpid())[0].pid}"
        (idle,) = workers(os.getpid())
        idle.kill()
        idle.wait(60)
        # Whether the loss is noticed before or after the next task is handed out is a matter of milliseconds.
        second = pool.submit(process_of, "second", 60).result()
        assert isinstance(second, str) or second.outcome == "crash"
        third = pool.submit(process_of, "third", 60).result()
        assert third == f"third {workers(os.getpid())[0].pid}"
