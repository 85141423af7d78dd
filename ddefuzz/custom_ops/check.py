"""Checks custom ops: finds them, and gives each to a worker. What is done is kept when it is interrupted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from ddefuzz import __version__
from ddefuzz.checking.acceptance import Acceptance
from ddefuzz.custom_ops.model import CHECKS, CheckName, ListTask, OpList, OpReport, OpsReport, OpTask
from ddefuzz.errors import InputError
from ddefuzz.execute.pool import Future, LostTask, Pool, Stopped, waited
from ddefuzz.execute.worker import Task
from ddefuzz.findings.database import Database
from ddefuzz.show.blocks import counted, time_left

START_SECONDS: Final = 120.0
"""How long the imports of the libraries may take."""

OVER_BUDGET: Final = 4.0
"""How many times its budget an op may take before its worker is ended: one call may take long."""

KEY_DIGITS: Final = 16


list_ops = Task("ddefuzz.custom_ops.worker:list_ops", ListTask, OpList)
check_one = Task("ddefuzz.custom_ops.worker:check_op", OpTask, OpReport)


def chosen_checks(names: Sequence[str], where: str) -> tuple[CheckName, ...]:
    """The checks of these names. Raises InputError for another name."""
    wrong = next((name for name in names if name not in CHECKS), None)
    if wrong is not None:
        raise InputError(f"{where}: found {wrong!r}, expected one of {', '.join(CHECKS)}")
    return tuple(name for name in CHECKS if name in names)


class Store(NamedTuple):
    """Where results are kept. `fresh` says that earlier ones are not used."""

    database: Database
    fresh: bool


def check_ops(
    pool: Pool,
    names: Sequence[str],
    options: OpTask,
    torch: str,
    store: Store | None,
    stopped: Stopped,
    tell: Callable[..., None],
) -> OpsReport:
    """The reports of all ops that the names mean. `options` has what is the same for all. `tell` gets a line of
    progress, and `is_last`.

    With a store, ops that were judged before are not checked again while no file and no option has changed. Raises
    InputError if a name means none, or a library does not load.
    """
    listed = waited(pool.submit(list_ops, ListTask(options.source, tuple(names)), START_SECONDS), stopped)
    if isinstance(listed, LostTask):
        raise InputError(f"the import of the libraries ends in {listed.outcome}: {listed.reason}")
    key = _key(options, torch, listed.files)
    known = {} if store is None or store.fresh else store.database.swept(key, OpReport)
    reports = {name: known[name] for name in listed.names if name in known}
    tasks = [msgspec.structs.replace(options, op=name) for name in listed.names if name not in known]
    left = deque((task, pool.submit(check_one, task, _seconds(options))) for task in tasks)
    kept, began, interrupted = len(reports), time.monotonic(), False
    before = f" ({kept} from before)" if kept else ""
    try:
        while left:
            task, future = left.popleft()
            report = _report(task, future, stopped)
            if report is None:
                careful = msgspec.structs.replace(task, careful=True)
                left.append((careful, pool.submit(check_one, careful, _seconds(options))))
                continue
            reports[task.op] = report
            if store is not None and not report.reason:
                store.database.save_swept(key, task.op, msgspec.json.encode(report).decode())
            seconds = (time.monotonic() - began) / (len(reports) - kept) * len(left)
            done = f"{len(reports)} of {counted(len(listed.names), 'op')}{before}, {time_left(seconds)}"
            tell(f"{done}, {task.op} {verdict(report)}", is_last=not left)
    except KeyboardInterrupt:
        interrupted = True
    return OpsReport(torch, tuple(reports[name] for name in listed.names if name in reports), interrupted)


def _key(options: OpTask, torch: str, files: str) -> str:
    """Everything that decides a result but the op."""
    decisive = f"{__version__} {torch} {files} {msgspec.json.encode(options).decode()}"
    return sha256(decisive.encode()).hexdigest()[:KEY_DIGITS]


NOT_SEEN: Final = "accepted, and did not occur"


def with_accepted(report: OpsReport, accepted: Sequence[Acceptance]) -> OpsReport:
    """The report, in which accepted problems say why. An acceptance names an op, and the key of a problem. A note says
    which of them did not occur.
    """
    why = {(one.target, one.key): str(one) for one in accepted}

    def marked(op: OpReport) -> OpReport:
        checks = [
            msgspec.structs.replace(
                check,
                problems=tuple(
                    msgspec.structs.replace(one, accepted=why.get((op.op, one.key), "")) for one in check.problems
                ),
            )
            for check in op.checks
        ]
        tried, seen = {check.name for check in op.checks if check.tried}, {one.key for one in op.problems}
        keys = (key for target, key in why if target == op.op and key not in seen)
        gone = [key for key in keys if key.partition(":")[0] in tried]
        notes = () if op.reason or op.is_cut else tuple(f"{NOT_SEEN}: {key}" for key in gone)
        return msgspec.structs.replace(op, checks=tuple(checks), notes=(*op.notes, *notes))

    return msgspec.structs.replace(report, ops=tuple(map(marked, report.ops)))


def _seconds(options: OpTask) -> float:
    return max(options.budget * OVER_BUDGET, 60.0)


def _report(task: OpTask, future: Future[OpReport], stopped: Stopped) -> OpReport | None:
    """The report of an op. None if the real kernel ended the worker, and the op is to be checked carefully."""
    try:
        report = waited(future, stopped, task.op)
    except InputError as error:
        return OpReport(task.op, reason=str(error))
    if not isinstance(report, LostTask):
        return report
    if report.outcome == "crash" and report.left.phase.call and not task.careful:
        return None
    where = f" {report.left.phase}" if str(report.left.phase) else ""
    return OpReport(task.op, reason=f"its worker ended: {report.reason}{where}")


def verdict(report: OpReport) -> str:
    """`ok`, `wrong: sizes, gradient`, or `not judged`."""
    if report.reason:
        return "not judged"
    names = dict.fromkeys(problem.check for problem in report.failing)
    accepted = len(report.problems) - len(report.failing)
    parts = [f"{accepted} accepted"] if accepted else []
    if report.is_cut:
        parts.append("not all was tried")
    if report.crashes:
        parts.append(f"the process ends in {counted(len(report.crashes), 'call')}")
    return (f"wrong: {', '.join(names)}" if names else "ok") + (f" ({', '.join(parts)})" if parts else "")
