"""The runs of `ddefuzz check`: each capture once, one that continues after undecided guards, and control runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from ddefuzz.checking.check import CaseRuns, failures_of
from ddefuzz.checking.continued import continued
from ddefuzz.checking.static import control_of
from ddefuzz.cli.progress import LiveLine
from ddefuzz.errors import InputError
from ddefuzz.execute.pool import Future, Lost, Pool, lost_observation
from ddefuzz.execute.protocol import (
    STAGES,
    TRACED,
    CallableSubject,
    Observation,
    ProgramSubject,
    Run,
    Runner,
    Semantics,
    Stage,
    Subject,
)
from ddefuzz.internal import guarded
from ddefuzz.ops import catalogue
from ddefuzz.oracles.capture import KINDS
from ddefuzz.oracles.program import Trial, Tried, called_of, calls_in, judge_run, tried_of
from ddefuzz.oracles.table import NAMES
from ddefuzz.program.text import read_program

START_SECONDS = 120.0
"""How long the user's module may take to import, torch with it."""

SAVED = ".pt2"

POLL_SECONDS = 0.1


class Target(msgspec.Struct, frozen=True):
    """One thing to check: its name in the page, its subject, and the file that its frames name."""

    case: str
    subject: Subject
    file: str


class Planned(NamedTuple):
    """A capture to do, and its result when it is there."""

    target: Target
    run: Run
    future: Future[Tried]


Refused: TypeAlias = dict[str, InputError]
"""Why the cases that cannot be built, or not any more, cannot."""


@contextmanager
def of_one(case: str, refused: Refused) -> Iterator[None]:
    """What one case cannot be built for ends the block only."""
    try:
        yield
    except InputError as error:
        refused.setdefault(case, error)


def targets_of(pool: Pool, target: str, case: str | None, unbacked: str) -> list[Target]:
    """The targets that TARGET names. User code is imported only in a worker."""
    file, _, name = target.rpartition(":") if ":" in target and not Path(target).exists() else (target, "", "")
    path = Path(file)
    is_module = not path.is_file() and path.suffix not in (".py", SAVED) and all(map(str.isidentifier, file.split(".")))
    if not path.is_file() and not (is_module and name):
        raise InputError(
            f"{file}: found no such file, expected a program, FILE:NAME, package.module:NAME, "
            f"a saved program ({SAVED}) or a file with a list CASES"
        )
    if name or path.suffix == SAVED:
        if case is not None:
            raise InputError(f"{target}: found both a name and --case {case}, expected one of them")
        subject = CallableSubject(file, name=name or None, unbacked=unbacked)
        return [Target(name or path.stem, subject, file)]
    text = read_program(path)
    if text is not None:
        if case is not None or unbacked:
            found = f"--case {case}" if case is not None else f"--unbacked {unbacked}"
            raise InputError(f"{file}: found a program and {found}, expected user code")
        catalogue.parse(text, file)
        return [Target(path.stem, ProgramSubject(text), "<program>")]
    ids = pool.submit(list_cases, file, START_SECONDS).result()
    if isinstance(ids, Lost):
        raise InputError(f"{file}: found a module whose import ends in {ids.outcome}: {ids.reason}")
    if case is not None and case not in ids:
        near = ", ".join(get_close_matches(case, ids) or ids[:5])
        raise InputError(f"{file}: found no case {case!r} among {len(ids)}, expected one such as {near}")
    return [Target(one, CallableSubject(file, case=one, unbacked=unbacked), file) for one in ids if case in (None, one)]


def list_cases(path: str) -> tuple[str, ...]:
    """The ids of a module's CASES. It runs as a task of a worker."""
    # Imported here, because this command must not import torch.
    from ddefuzz.execute.user_code import case_ids  # noqa: PLC0415

    return case_ids(path)


def run_cases(
    pool: Pool,
    targets: Sequence[Target],
    stages: tuple[Stage, ...],
    semantics: tuple[Semantics, ...],
    timeout: float,
    live: LiveLine,
) -> tuple[list[CaseRuns], Refused]:
    """All captures of all targets, then what is needed to explain those that fail.

    Raises InputError if no target can be built.
    """
    refused: Refused = {}
    others = semantics if len(semantics) > 1 else ()
    planned = [
        Planned(target, run, pool.submit(judge_run, Trial(run, NAMES, others), timeout))
        for target in targets
        for run in _captures(target, stages, semantics)
    ]
    tried: dict[str, list[Tried]] = {target.case: [] for target in targets}
    for one in planned:
        seen = _tried(one, live, refused)
        tried[one.target.case].append(seen)
        if one.run.stage != "eager" and one.target.case not in refused:
            live.say(f"{one.target.case}: {one.run.stage} {_ended(seen.observation)}")

    if refused and len(refused) == len(targets):
        raise next(iter(refused.values()))

    def runner(run: Run) -> Observation:
        started = time.monotonic()

        def update(_: float) -> None:
            live.update(f"{run.stage}: looking for further problems, {time.monotonic() - started:.0f} s")

        found = _waited(pool.submit(judge_run, Trial(run, others=()), timeout), update)
        return lost_observation(run, found) if isinstance(found, Lost) else found.observation

    explained = []
    for target in targets:
        found = CaseRuns(target.case, tuple(tried[target.case]))
        with of_one(target.case, refused), guarded(target.case):
            found = _explained(target, found.tried, runner)
        explained.append(found)
    return explained, refused


def _tried(planned: Planned, live: LiveLine, refused: Refused) -> Tried:
    run = planned.run
    with of_one(planned.target.case, refused), guarded(planned.target.case) as guard:
        found = _waited(planned.future, lambda seconds: live.update(_doing(planned, seconds)))
        return tried_of(lost_observation(run, found)) if isinstance(found, Lost) else found
    reason = guard.reason or str(refused[planned.target.case])
    return Tried(Observation(run.stage, run.semantics, "not-judged", reason))


def _captures(target: Target, stages: tuple[Stage, ...], semantics: tuple[Semantics, ...]) -> list[Run]:
    return [
        Run(
            target.subject,
            stage,
            one,
            graph=stage in TRACED and len(semantics) > 1,
            calls=calls_in(stage, target.subject, NAMES, called_of(stages)),
        )
        for stage in stages
        for one in (semantics if stage in TRACED else semantics[:1])
    ]


def _explained(target: Target, tried: tuple[Tried, ...], runner: Runner) -> CaseRuns:
    failures = [one for one in failures_of(tried) if one.failure.kind in KINDS]
    more: list[Observation] = []
    met: set[str] = set()
    controls = {}
    for one in failures:
        key, stage = one.signature.key, one.failure.observation.stage
        if key in met:
            continue
        met.add(key)
        if stage == "eager":
            continue
        if one.signature.kind == "dde":
            more.append(continued(target.subject, stage, runner))
            continue
        control = control_of(target.subject, one, runner)
        if control is not None:
            controls[key] = control
    return CaseRuns(target.case, tried, tuple(more), tuple(controls.items()))


def _waited(future: Future[Tried], update: Callable[[float], None]) -> Tried | Lost:
    started = time.monotonic()
    while not future.done():
        time.sleep(POLL_SECONDS)
        update(time.monotonic() - started)
    return future.result()


def _doing(planned: Planned, seconds: float) -> str:
    return f"{planned.target.case}: {planned.run.stage}, {seconds:.0f} s"


def _ended(seen: Observation) -> str:
    done = "done" if seen.stage not in STAGES else "captured"
    return f"{done if seen.outcome == 'ok' else seen.outcome} in {seen.seconds:.1f} s"
