"""Minimize findings again, each from its smallest program so far.

A finding keeps that program if no smaller one shows its signature.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from ddefuzz.answers.model import NOT_JUDGED, Control
from ddefuzz.campaign.lost import smallest_so_far, suspected
from ddefuzz.campaign.tasks import (
    ControlTask,
    MinimizeResult,
    MinimizeTask,
    Workers,
    run_confirm,
    run_control,
    run_minimize,
)
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.op import failing_ops
from ddefuzz.execute.pool import Future, Lost
from ddefuzz.findings.model import Finding
from ddefuzz.internal import guarded
from ddefuzz.oracles.program import Suspect, suspect_of
from ddefuzz.oracles.table import row_of

MOST_AVOIDED = 5
"""How often a minimization is repeated without the candidate that ended its worker."""

AHEAD = 4
"""How many further minimizations are submitted while a finding waits for its confirmation and control runs."""

Status: TypeAlias = Literal["smaller", "same", "not shown", "lost"]
"""`not shown`: neither the new nor the old smallest program shows the signature in a fresh process."""


class Renewed(NamedTuple):
    """The result for a finding: its smallest program, the failure in a fresh process, and the control runs.

    `result` is None if the worker was lost before it found a program. `shown` is None if the program does not show the
    signature.
    """

    finding: Finding
    status: Status
    result: MinimizeResult | None
    shown: Failure | None = None
    control: Control = NOT_JUDGED


def can_be_minimized(finding: Finding) -> bool:
    """Whether the finding has a program and a failure to start from."""
    has_program = (finding.minimal or finding.original) is not None
    return has_program and finding.evidence is not None and not row_of(finding.kind).deadly


def renew(
    findings: Iterable[Finding], workers: Workers, journal: Path, *, max_attempts: int, timeout: float
) -> Iterator[Renewed]:
    """Minimize, confirm and control each finding, in the order given.

    The workers minimize the next findings meanwhile.
    """
    begun: deque[tuple[Finding, MinimizeTask, Future[Any]]] = deque()

    def ended() -> Renewed:
        finding, task, future = begun.popleft()
        with guarded(finding.id):
            return renewed(finding, task, future)
        return Renewed(finding, "lost", None)

    def renewed(finding: Finding, task: MinimizeTask, future: Future[Any]) -> Renewed:
        found = _renewed(finding, _minimized(task, future, workers, journal, timeout), workers, timeout)
        if found.status != "not shown" or finding.minimal is None or finding.original is None:
            return found
        # The smallest program of a merged finding may fail in another stage. Start again from the original.
        without_minimal = msgspec.structs.replace(finding, minimal=None)
        task = _task(without_minimal, max_attempts)
        future = workers.submit(run_minimize, task, timeout)
        return _renewed(without_minimal, _minimized(task, future, workers, journal, timeout), workers, timeout)

    for finding in findings:
        task = _task(finding, max_attempts)
        begun.append((finding, task, workers.submit(run_minimize, task, timeout)))
        if len(begun) > AHEAD:
            yield ended()
    while begun:
        yield ended()


def _task(finding: Finding, max_attempts: int) -> MinimizeTask:
    suspect = _suspect(finding, finding.minimal or finding.original or "")
    return MinimizeTask(suspect, finding.shown_ops, max_attempts=max_attempts, finding=finding.id)


def _suspect(finding: Finding, program: str) -> Suspect:
    if finding.evidence is None:
        raise AssertionError(f"{finding.id} cannot be minimized")
    return suspect_of(program, finding.signature, finding.evidence)


def _minimized(
    task: MinimizeTask, future: Future[Any], workers: Workers, journal: Path, timeout: float
) -> MinimizeResult | None:
    """The result. After a crash the minimization is repeated without the candidate that crashed."""
    result: MinimizeResult | Lost = future.result()
    while isinstance(result, Lost):
        best, culprit = smallest_so_far(task, journal), suspected(task, journal)
        again = culprit is not None and culprit not in task.avoid and len(task.avoid) < MOST_AVOIDED
        if result.outcome != "crash" or culprit is None or not again:
            return best
        start = msgspec.structs.replace(task.suspect, program=best.program) if best else task.suspect
        task = msgspec.structs.replace(task, suspect=start, avoid=(*task.avoid, culprit))
        result = workers.submit(run_minimize, task, timeout).result()
    return result


def _renewed(finding: Finding, result: MinimizeResult | None, workers: Workers, timeout: float) -> Renewed:
    if result is None:
        return Renewed(finding, "lost", None)
    shown = _shown(finding, result.program, workers, timeout)
    status: Status = "same" if result.program == finding.minimal else "smaller"
    if shown is None and status == "smaller" and finding.minimal is not None:
        result = msgspec.structs.replace(result, program=finding.minimal, steps=finding.steps or result.steps)
        shown, status = _shown(finding, finding.minimal, workers, timeout), "same"
    if shown is None:
        return Renewed(finding, "not shown", result)
    task = ControlTask(result.program, shown, failing_ops(shown.observation, result.program))
    control = workers.submit(run_control, task, timeout).result()
    return Renewed(finding, status, result, shown, NOT_JUDGED if isinstance(control, Lost) else control.control)


def _shown(finding: Finding, program: str, workers: Workers, timeout: float) -> Failure | None:
    seen = workers.submit(run_confirm, _suspect(finding, program), timeout, cold=True).result()
    return None if isinstance(seen, Lost) else seen.shown
