"""Minimize on request: all findings of a database again, or one finding, program file or model of a user."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from ddefuzz.answers.model import NOT_JUDGED, Control
from ddefuzz.campaign.tasks import (
    TAKEN,
    TRIED,
    ControlTask,
    MinimizeResult,
    MinimizeTask,
    run_confirm,
    run_control,
    run_minimize,
    smallest_so_far,
    suspected,
)
from ddefuzz.classify.evidence import failing_ops
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature
from ddefuzz.errors import InputError
from ddefuzz.execute.engine import Workers
from ddefuzz.execute.pool import Future, LostTask, Pool
from ddefuzz.execute.protocol import (
    CAPTURE_STAGES,
    EXPLICIT,
    CallableSubject,
    Observation,
    ProgramSubject,
    Run,
    Runner,
    Stage,
)
from ddefuzz.execute.worker import Task, late
from ddefuzz.files import is_file
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Confirmation, Finding
from ddefuzz.internal import guarded
from ddefuzz.minimize.order import sort_key
from ddefuzz.ops import catalogue
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.oracles.keys import check_trust
from ddefuzz.oracles.program import CAPTURE, Suspect, judge_program, kept, observe, shows, suspect_of
from ddefuzz.oracles.table import NAMES, row_of
from ddefuzz.program.text import is_key, print_program

MOST_AVOIDED = 5
"""How often a minimization is repeated without the candidate that ended its worker."""

AHEAD = 4
"""How many further minimizations are submitted while a finding waits for its confirmation and control runs."""

COLD_REPLAYS = 3
"""How often the smallest program of one finding, file or model is confirmed."""

FIRST_STAGES = CAPTURE_STAGES[:3]
"""Where a program or model is tried, unless a stage is named."""

Status: TypeAlias = Literal["smaller", "same", "not shown", "lost"]
"""`not shown`: neither the new nor the old smallest program shows the signature in a fresh process."""

Listener: TypeAlias = Callable[[int, int], None]
"""Gets the number of captures so far and of the operations that are left, with each smaller program."""


class FollowUp(NamedTuple):
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
) -> Iterator[FollowUp]:
    """Minimize each finding again, from its smallest program so far, confirm and control it; in the order given.

    A finding keeps that program if no smaller one shows its signature. Workers minimize the next findings meanwhile.
    """
    begun: deque[tuple[Finding, MinimizeTask, Future[Any]]] = deque()

    def begin(finding: Finding) -> None:
        program = finding.minimal or finding.original or ""
        task = MinimizeTask(
            _suspect(finding, program), finding.shown_ops, max_attempts=max_attempts, finding=finding.id
        )
        begun.append((finding, task, workers.submit(run_minimize, task, timeout)))

    def ended() -> FollowUp:
        finding, task, future = begun.popleft()
        with guarded(finding.id):
            renewed = _renewed(finding, _minimized(task, future, workers, journal, timeout), workers, timeout)
            if renewed.status != "not shown" or finding.minimal is None or finding.original is None:
                return renewed
            # The smallest program of a merged finding may fail in another stage. Start again from the original.
            begin(msgspec.structs.replace(finding, minimal=None))
            finding, task, future = begun.pop()
            return _renewed(finding, _minimized(task, future, workers, journal, timeout), workers, timeout)
        return FollowUp(finding, "lost", None)

    for finding in findings:
        begin(finding)
        if len(begun) > AHEAD:
            yield ended()
    while begun:
        yield ended()


def save_renewed(database: Database, renewed: FollowUp) -> None:
    """Save what was confirmed."""
    if renewed.shown is None or renewed.result is None:
        return
    name, result = renewed.finding.id, renewed.result
    with database.transaction():
        if renewed.status == "smaller":
            database.set_minimal(name, result.program, steps=result.steps, attempts=result.attempts)
        database.set_confirmed(name, 1, 1, renewed.shown)
        database.set_control(name, renewed.control)


def _suspect(finding: Finding, program: str) -> Suspect:
    if finding.evidence is None:
        raise AssertionError(f"{finding.id} cannot be minimized")
    return suspect_of(program, finding.signature, finding.evidence)


def _minimized(
    task: MinimizeTask, future: Future[Any], workers: Workers, journal: Path, timeout: float
) -> MinimizeResult | None:
    """The result. After a crash the minimization is repeated without the candidate that crashed."""
    result: MinimizeResult | LostTask = future.result()
    while isinstance(result, LostTask):
        best, culprit = smallest_so_far(task, journal), suspected(task, journal)
        again = culprit is not None and culprit not in task.avoid and len(task.avoid) < MOST_AVOIDED
        if result.outcome != "crash" or culprit is None or not again:
            return best
        start = msgspec.structs.replace(task.suspect, program=best.program) if best else task.suspect
        task = msgspec.structs.replace(task, suspect=start, avoid=(*task.avoid, culprit))
        result = workers.submit(run_minimize, task, timeout).result()
    return result


def _renewed(finding: Finding, result: MinimizeResult | None, workers: Workers, timeout: float) -> FollowUp:
    if result is None:
        return FollowUp(finding, "lost", None)
    shown = _shown(finding, result.program, workers, timeout)
    status: Status = "same" if result.program == finding.minimal else "smaller"
    if shown is None and status == "smaller" and finding.minimal is not None:
        result = msgspec.structs.replace(result, program=finding.minimal, steps=finding.steps or result.steps)
        shown, status = _shown(finding, finding.minimal, workers, timeout), "same"
    if shown is None:
        return FollowUp(finding, "not shown", result)
    return FollowUp(finding, status, result, shown, _control(result.program, shown, workers, timeout))


def _shown(finding: Finding, program: str, workers: Workers, timeout: float) -> Failure | None:
    result = workers.submit(run_confirm, _suspect(finding, program), timeout, cold=True).result()
    return None if isinstance(result, LostTask) else result.shown


def _control(program: str, shown: Failure, workers: Workers | Pool, timeout: float) -> Control:
    task = ControlTask(program, shown, failing_ops(shown.observation, program))
    result = workers.submit(run_control, task, timeout).result()
    return NOT_JUDGED if isinstance(result, LostTask) else result.control


class Outcome(msgspec.Struct, frozen=True):
    """The smallest program of a finding, file or model, and how many fresh processes show its signature."""

    id: str | None
    key: str
    stage: Stage
    steps: int
    attempts: int
    exhausted: bool
    confirmed: Confirmation
    program: str
    schema: str = "ddefuzz.minimize/1"


def outcome_of(renewed: FollowUp) -> Outcome:
    """The outcome for a finding of which all are minimized again. A lost one has the program that it had."""
    finding = renewed.finding
    before = MinimizeResult(finding.minimal or finding.original or "", finding.steps or 0, 0, exhausted=True)
    shown = Confirmation(int(renewed.shown is not None), 1)
    return _outcome(finding.id, finding.signature, finding.stage or CAPTURE_STAGES[0], renewed.result or before, shown)


def _outcome(
    name: str | None, signature: Signature, stage: Stage, result: MinimizeResult, confirmed: Confirmation
) -> Outcome:
    return Outcome(
        id=name,
        key=signature.key,
        stage=stage,
        steps=result.steps,
        attempts=result.attempts,
        exhausted=result.exhausted,
        confirmed=confirmed,
        program=result.program,
    )


def minimize_start(
    start: MinimizeTask,
    pool: Pool,
    timeout: float,
    listen: Listener,
    stopped: Callable[[], bool],
    stored: tuple[Database, Finding] | None = None,
) -> Outcome:
    """Minimize a program, one capture at a time, and confirm it. `timeout` is for each capture.

    Each smaller program of a `stored` finding is saved at once, so that an interrupt loses nothing. If `stopped`, it
    raises KeyboardInterrupt before the next capture.
    """
    attempts = 0

    def progress(what: str, text: str, steps: int) -> None:
        nonlocal attempts
        attempts += what == TRIED
        if what == TAKEN:
            if stored is not None:
                _save(*stored, MinimizeResult(text, steps, attempts, exhausted=False))
            listen(attempts, steps)

    def unless_stopped(run: Run, runner: Runner) -> Observation:
        if stopped():
            raise KeyboardInterrupt
        return runner(run)

    runner = partial(unless_stopped, runner=partial(pool.observe, timeout=timeout, by=observe))
    cold = partial(unless_stopped, runner=partial(pool.observe_cold, timeout=timeout, by=observe))
    # Only this needs torch. A command that minimizes nothing must not import it.
    result: MinimizeResult = late("ddefuzz.campaign.case").smallest(start, runner, progress)
    suspect = start.suspect
    replays = [shows(suspect, result.program, cold) for _ in range(COLD_REPLAYS)]
    shown = [failure for failure in replays if failure is not None]
    if stored is not None:
        database, finding = stored
        _save(database, finding, result)
        if database.get(finding.id).minimal == result.program:  # the stored program may be smaller
            first = shown[0] if shown else None
            database.set_confirmed(finding.id, len(shown), COLD_REPLAYS, first)
            if first is not None:
                database.set_control(finding.id, _control(result.program, first, pool, timeout))
    name, confirmed = None if stored is None else stored[1].id, Confirmation(len(shown), COLD_REPLAYS)
    return _outcome(name, suspect.signature, suspect.stage, result, confirmed)


def _save(database: Database, finding: Finding, best: MinimizeResult) -> None:
    """Save a program that is smaller than the finding's smallest one."""

    def order(text: str) -> tuple[object, ...]:
        return sort_key(catalogue.parse(text, finding.id).program)

    if finding.minimal is None or is_key(best.program) or order(best.program) <= order(finding.minimal):
        database.set_minimal(finding.id, best.program, steps=best.steps, attempts=best.attempts)


def start_of_finding(finding: Finding, max_attempts: int, *, from_original: bool, trust: bool) -> MinimizeTask:
    """The smallest or original program of a finding. Raises InputError if it has none, or no failure is stored."""
    text = finding.original if from_original or finding.minimal is None else finding.minimal
    if text is None:
        raise InputError(
            f"{finding.id}: found a finding of user code, expected one with a program: user code is not minimized"
        )
    failure = finding.evidence if text == finding.minimal else finding.failure
    if failure is None:
        raise InputError(
            f"{finding.id}: found no failure stored with this finding, expected one: it says what to minimize for"
        )
    check_trust(text, trust=trust)
    if not is_key(text):
        catalogue.parse(text, f"{finding.id}.py")
    return MinimizeTask(suspect_of(text, finding.signature, failure, trust=trust), finding.ops, max_attempts)


def start_of_file(path: Path, stage: Stage | None, pool: Pool, timeout: float, max_attempts: int) -> MinimizeTask:
    """The program of a file, and its failure in the first stage that fails. Captured programs are called."""
    text = print_program(catalogue.read(path).program)
    stages = (stage,) if stage else FIRST_STAGES
    runner: Runner = partial(pool.observe, timeout=timeout, by=observe)
    runs_in_eager = runner(Run(ProgramSubject(text), "eager")).outcome == "ok"
    start = _start(text, stages, runner, max_attempts, lambda _: runs_in_eager, NAMES)
    if start is None:
        raise InputError(f"{path}: found a program that does not fail in {', '.join(stages)}, expected one that does")
    return start


def _start(
    text: str,
    stages: tuple[Stage, ...],
    runner: Runner,
    max_attempts: int,
    fits: Callable[[Signature], bool],
    oracles: tuple[str, ...] = CAPTURE,
) -> MinimizeTask | None:
    """The first failure of a program in these stages whose signature fits."""
    for judged in judge_program(text, stages, (EXPLICIT,), runner, oracles=oracles, compare=False, called=stages):
        for failed in judged.failures:
            if fits(failed.signature):
                suspect = suspect_of(text, failed.signature, kept(failed.failure))
                return MinimizeTask(suspect, failing_ops(failed.failure.observation, text), max_attempts)
    return None


def model_named(target: str) -> CallableSubject | None:
    """The user's model, if the target is FILE:NAME or package.module:NAME."""
    file, colon, name = target.rpartition(":")
    return CallableSubject(file, name=name) if colon and name and not is_file(Path(target)) else None


record = Task("ddefuzz.execute.recording:recorded", CallableSubject, str)


def start_of_model(
    subject: CallableSubject, stage: Stage | None, pool: Pool, timeout: float, max_attempts: int
) -> MinimizeTask:
    """The calls of torch that lead to the failure of a model, as a program with the same signature."""
    named = f"{subject.path}:{subject.name}"
    stages = (stage,) if stage else FIRST_STAGES
    runner: Runner = partial(pool.observe, timeout=timeout, by=observe)
    observations = [runner(Run(subject, each)) for each in ("eager", *stages)]
    wanted = [classify(failure).signature for failure in judge(observations)]
    if observations[0].outcome != "ok" or not wanted:
        raise InputError(f"{named}: found a model that does not fail in {', '.join(stages)}, expected one that does")
    text = pool.submit(record, subject, timeout).result()
    if isinstance(text, LostTask) or not text:
        raise InputError(
            f"{named}: found no call of torch that fails when sizes are propagated ({wanted[0]}), expected one: "
            "a branch of your own code cannot be made a program"
        )
    catalogue.parse(text, named)
    start = _start(text, stages, runner, max_attempts, wanted.__contains__)
    if start is None:
        raise InputError(
            f"{named}: found calls of torch that do not show {wanted[0]} without your code, expected some that do"
        )
    return start
