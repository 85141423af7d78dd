"""Follow up a finding in a worker: minimize its program, confirm it in a fresh process, make control runs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ddefuzz.answers.control import control, without_sources
from ddefuzz.answers.model import NOT_JUDGED
from ddefuzz.campaign.case import seen_of
from ddefuzz.campaign.lost import INSPECTED, NO_CASE, TAKEN, TRIED
from ddefuzz.campaign.tasks import ConfirmResult, ControlResult, ControlTask, MinimizeResult, MinimizeTask
from ddefuzz.execute.journal import Entry
from ddefuzz.execute.limit import cpu_seconds
from ddefuzz.execute.protocol import SCREEN, Observation, Run, Runner
from ddefuzz.execute.sources import first_source
from ddefuzz.execute.worker import note
from ddefuzz.findings.model import slim
from ddefuzz.keys.case import is_key
from ddefuzz.minimize.eager import deprecated, inspect, inspector
from ddefuzz.minimize.facts import StandIn
from ddefuzz.minimize.keys import smallest_case
from ddefuzz.minimize.minimizer import Minimized, minimize
from ddefuzz.minimize.order import operations
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles import table
from ddefuzz.oracles.program import CAPTURE, Suspect, judge_program, observe, shows
from ddefuzz.program.model import Expr, Program
from ddefuzz.program.text import print_program


def run_minimize(task: MinimizeTask, runner: Runner = observe) -> MinimizeResult:
    """Make the suspect's program as small as its signature allows.

    If the fake stage shows the same signature, candidates run there, for a fifth of the cost. The result then has to
    show the signature in the suspect's own stage too. At the end it is run in other stages.
    """
    started = cpu_seconds()
    suspect = task.suspect
    if is_key(suspect.program):
        return _smallest_key(task, runner)
    screened = msgspec.structs.replace(suspect, stage=SCREEN)
    found = None
    if suspect.stage != SCREEN and not suspect.calls and shows(screened, suspect.program, runner):
        found = _smallest(task, screened, runner)
        if not shows(suspect, print_program(found.program), runner):
            found = None
    found = found or _smallest(task, suspect, runner)
    text = print_program(found.program)
    # The journal keeps the result in case another stage ends the process.
    note(Entry(NO_CASE, TAKEN, text, operations(found.program), finding=task.finding))

    def noted(run: Run) -> Observation:
        note(Entry(NO_CASE, run.stage, text, finding=task.finding))
        return runner(run)

    oracles = table.NAMES if suspect.calls else CAPTURE
    also = seen_of(text, judge_program(text, task.also, (suspect.semantics,), noted, oracles=oracles))
    return MinimizeResult(
        program=text,
        steps=operations(found.program),
        attempts=found.attempts,
        exhausted=found.exhausted,
        cpu_seconds=cpu_seconds() - started,
        sightings=also.sightings,
    )


def _smallest_key(task: MinimizeTask, runner: Runner) -> MinimizeResult:
    started = cpu_seconds()

    def accepts(text: str) -> bool:
        note(Entry(NO_CASE, TRIED, text, finding=task.finding))
        return shows(task.suspect, text, runner) is not None

    found = smallest_case(task.suspect.program, accepts, task.max_attempts)
    return MinimizeResult(found.text, found.tensors, found.attempts, found.exhausted, cpu_seconds() - started)


def _smallest(task: MinimizeTask, suspect: Suspect, runner: Runner) -> Minimized:
    def accepts(candidate: Program) -> bool:
        text = print_program(candidate)
        note(Entry(NO_CASE, TRIED, text, finding=task.finding))
        return shows(suspect, text, runner) is not None

    def improved(best: Program) -> None:
        if suspect == task.suspect:
            note(Entry(NO_CASE, TAKEN, print_program(best), operations(best), finding=task.finding))

    def looked_at(candidate: Program) -> Mapping[Expr, StandIn] | None:
        text = print_program(candidate)
        if text in task.avoid:
            return None
        note(Entry(NO_CASE, INSPECTED, text, finding=task.finding))
        return inspect_it(candidate)

    start = parse(suspect.program, "<program>").program
    inspect_it = inspector(start)
    return minimize(
        start,
        accepts,
        max_attempts=task.max_attempts,
        inspect=looked_at,
        deprecated=deprecated,
        failing_functions=task.ops,
        on_improvement=improved,
    )


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
    found = control(program, task.shown, task.ops, lambda one: without_sources(one, inspect, first_source), runner)
    return ControlResult(found, cpu_seconds() - started)
