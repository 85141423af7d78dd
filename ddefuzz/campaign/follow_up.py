"""Follow up a finding in a worker: minimize its program, confirm it in a fresh process, make control runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from ddefuzz.answers.control import control, first_source, without_sources
from ddefuzz.answers.model import NOT_JUDGED
from ddefuzz.campaign.case import result_of
from ddefuzz.campaign.tasks import (
    INSPECTED,
    NO_CASE,
    TAKEN,
    TRIED,
    ConfirmResult,
    ControlResult,
    ControlTask,
    MinimizeResult,
    MinimizeTask,
)
from ddefuzz.execute.journal import Entry
from ddefuzz.execute.limit import cpu_seconds
from ddefuzz.execute.protocol import SCREEN, Observation, Run, Runner
from ddefuzz.execute.worker import note
from ddefuzz.findings.model import slim
from ddefuzz.keys.case import Tensors, is_key, parse_key, print_key
from ddefuzz.keys.properties import PROPERTIES, smallest_of
from ddefuzz.minimize.eager import deprecated, inspect, inspector
from ddefuzz.minimize.facts import StandIn
from ddefuzz.minimize.minimizer import minimize
from ddefuzz.minimize.order import operations
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles import table
from ddefuzz.oracles.program import CAPTURE, Suspect, judge_program, observe, shows
from ddefuzz.program.model import Expr, Program
from ddefuzz.program.text import print_program

Progress: TypeAlias = Callable[[str, str, int], None]
"""Gets what is done with a candidate (INSPECTED, TRIED or TAKEN), its text, and its operations once it is TAKEN."""


def smallest(task: MinimizeTask, runner: Runner, progress: Progress) -> MinimizeResult:
    """The smallest program, or case of a key function, that shows the suspected signature.

    `progress` is called before each candidate is run, and with each that is smaller.
    """
    started = cpu_seconds()
    suspect = task.suspect

    def shown(text: str) -> bool:
        progress(TRIED, text, 0)
        return shows(suspect, text, runner) is not None

    if is_key(suspect.program):
        return _smallest_key(suspect.program, shown, task.max_attempts, started)

    def looked_at(candidate: Program) -> Mapping[Expr, StandIn] | None:
        text = print_program(candidate)
        if text in task.avoid:
            return None
        progress(INSPECTED, text, 0)
        return inspect_it(candidate)

    start = parse(suspect.program, "<program>").program
    inspect_it = inspector(start)
    best = minimize(
        start,
        lambda candidate: shown(print_program(candidate)),
        max_attempts=task.max_attempts,
        inspect=looked_at,
        deprecated=deprecated,
        failing_functions=task.ops,
        on_improvement=lambda better: progress(TAKEN, print_program(better), operations(better)),
    )
    return MinimizeResult(
        print_program(best.program),
        operations(best.program),
        best.attempts,
        best.exhausted,
        cpu_seconds() - started,
    )


def _smallest_key(text: str, shown: Callable[[str], bool], max_attempts: int, started: float) -> MinimizeResult:
    """The smallest case, with the tensors that the property's own simplifications make. Its steps are its tensors."""
    case, attempts = parse_key(text, "<key>"), 0

    def accepts(tensors: Tensors) -> bool:
        nonlocal attempts
        if attempts >= max_attempts:
            return False
        attempts += 1
        return shown(print_key(msgspec.structs.replace(case, tensors=tensors)))

    best = smallest_of(case.tensors, accepts, PROPERTIES[case.violates].simpler)
    program = print_key(msgspec.structs.replace(case, tensors=best))
    return MinimizeResult(program, len(best), attempts, attempts >= max_attempts, cpu_seconds() - started)


def run_minimize(task: MinimizeTask, runner: Runner = observe) -> MinimizeResult:
    """Make the suspect's program as small as its signature allows.

    If the fake stage shows the same signature, candidates run there, for a fifth of the cost. The result then has to
    show the signature in the suspect's own stage too. At the end it is run in other stages.
    """
    started = cpu_seconds()
    suspect = task.suspect

    def journal(stage: str, text: str, steps: int) -> None:
        note(Entry(NO_CASE, stage, text, steps, finding=task.finding))

    def journal_screened(stage: str, text: str, steps: int) -> None:
        if stage != TAKEN:  # the suspect's own stage has not shown it yet
            journal(stage, text, steps)

    if is_key(suspect.program):
        return smallest(task, runner, journal)
    screened = msgspec.structs.replace(suspect, stage=SCREEN)
    best = None
    if suspect.stage != SCREEN and not suspect.calls and shows(screened, suspect.program, runner):
        best = smallest(msgspec.structs.replace(task, suspect=screened), runner, journal_screened)
        if not shows(suspect, best.program, runner):
            best = None
    best = best or smallest(task, runner, journal)
    # The journal keeps the result in case another stage ends the process.
    journal(TAKEN, best.program, best.steps)

    def noted(run: Run) -> Observation:
        journal(run.stage, best.program, 0)
        return runner(run)

    oracles = table.NAMES if suspect.calls else CAPTURE
    also = result_of(best.program, judge_program(best.program, task.also, (suspect.semantics,), noted, oracles=oracles))
    return msgspec.structs.replace(best, cpu_seconds=cpu_seconds() - started, sightings=also.sightings)


def run_confirm(suspect: Suspect, runner: Runner = observe) -> ConfirmResult:
    """Run the suspect's program as it is. This has to be a fresh process."""
    started = cpu_seconds()
    shown = shows(suspect, suspect.program, runner)
    return ConfirmResult(shown and slim(shown), cpu_seconds() - started)


def run_control(task: ControlTask, runner: Runner = observe) -> ControlResult:
    """Capture the program in forms in which no size depends on data, in the stage in which it fails."""
    started = cpu_seconds()
    if is_key(task.program):
        return ControlResult(NOT_JUDGED, cpu_seconds() - started)
    program = parse(task.program, "<program>").program
    result = control(program, task.shown, task.ops, lambda form: without_sources(form, inspect, first_source), runner)
    return ControlResult(result, cpu_seconds() - started)
