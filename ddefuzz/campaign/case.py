"""What a worker does for a campaign: run a case (draw the program, run it in its stages, judge the failures), and
follow up a finding (minimize its program, confirm it in a fresh process, make control runs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import msgspec
import torch

from ddefuzz.answers.control import control, first_source, without_sources
from ddefuzz.answers.model import NOT_JUDGED
from ddefuzz.campaign.tasks import (
    INSPECTED,
    NO_CASE,
    TAKEN,
    TOGETHER,
    TRIED,
    BatchResult,
    CaseBatch,
    CaseResult,
    CaseTask,
    ConfirmResult,
    ControlResult,
    ControlTask,
    DescribeTask,
    MinimizeResult,
    MinimizeTask,
    StageOutcome,
    StageReached,
    Versions,
)
from ddefuzz.execute.journal import Entry
from ddefuzz.execute.limit import cpu_seconds
from ddefuzz.execute.protocol import EXPLICIT, SCREEN, Observation, ProgramSubject, Run, Runner
from ddefuzz.execute.together import observe_together
from ddefuzz.execute.worker import note
from ddefuzz.findings.ledger import reached
from ddefuzz.findings.model import Sighting, sighting, slim
from ddefuzz.generate.draw import generator_key
from ddefuzz.generate.make import program_of
from ddefuzz.generate.opinfo import entries
from ddefuzz.generate.profiles import Draw, Origin
from ddefuzz.instrument.torch_api import require
from ddefuzz.internal import guarded
from ddefuzz.minimize.eager import deprecated, inspect, inspector
from ddefuzz.minimize.minimizer import minimize
from ddefuzz.minimize.order import operations
from ddefuzz.minimize.rewrite import StandIn
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles import table
from ddefuzz.oracles.acceptance import classes
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.keys_run import smallest_case
from ddefuzz.oracles.program import (
    CAPTURE,
    JudgedRun,
    Suspect,
    at_example,
    calls_in,
    judge_program,
    observe,
    safe,
    shows,
)
from ddefuzz.program.model import Expr, Program, functions_in
from ddefuzz.program.text import digest, is_key, print_program


def describe(task: DescribeTask) -> Versions:
    """The versions in this worker. Raises UnsupportedError if this torch cannot be watched."""
    require()
    return Versions(generator_key(task.profile, task.seed), str(torch.__version__), tuple(entries()), torch.__path__[0])


class _CaseProgram(NamedTuple):
    """The program of a case, its text, its origin, and the CPU seconds that drawing took."""

    program: Program
    text: str
    origin: Origin
    cpu_seconds: float


def _drawn(task: CaseTask) -> _CaseProgram:
    started = cpu_seconds()
    note(Entry(task.index, "draw"))
    program, origin = program_of(
        task.profile,
        task.seed,
        task.index,
        task.origin or Draw(task.index),
        lambda step: note(Entry(task.index, "draw", step)),
    )
    if any(table.own_stage(stage) is not None for stage in task.stages):
        program = replace(program, options=())  # such a stage compares captures that options make different
    return _CaseProgram(program, print_program(program), origin, cpu_seconds() - started)


def run_case(task: CaseTask) -> CaseResult:
    """Draw a case and run it in its stages. The journal is written before each thing is done."""
    return _run(task, _drawn(task))


def _run(task: CaseTask, drawn: _CaseProgram, known: Mapping[Run, Observation] | None = None) -> CaseResult:
    """Run a drawn case in its stages, except for the runs whose observations are known."""
    started, text, rss = cpu_seconds(), drawn.text, 0.0

    def runner(run: Run) -> Observation:
        nonlocal rss
        tried = run.subject.text if isinstance(run.subject, ProgramSubject) else text
        note(Entry(task.index, run.stage, tried, semantics=str(run.semantics)))
        observation = known[run] if known and run in known else observe(run)
        rss = max(rss, observation.peak_rss_mb)
        return observation

    done = run_screened(text, task, runner) if task.screen else result_of(text, _captured(text, task, runner), runner)
    return msgspec.structs.replace(
        done,
        index=task.index,
        digest=digest(drawn.program),
        draw_seconds=drawn.cpu_seconds,
        cpu_seconds=cpu_seconds() - started + drawn.cpu_seconds,
        rss_mb=rss,
        origin=drawn.origin,
        functions=functions_in(drawn.program),
    )


def run_batch(batch: CaseBatch) -> BatchResult:
    """Draw cases, and call them in inductor together. Then judge each as a case alone.

    A case whose run in inductor shows no failure is not run in the stages before it. Each case has an equal part of the
    CPU seconds that they spend together.
    """
    drawn = [(task, _drawn(task)) for task in batch.tasks]
    runs: dict[Run, CaseTask] = {}
    for task, program in drawn:
        subject = ProgramSubject(program.text)
        calls = calls_in(TOGETHER, subject, task.oracles, task.called)
        runs.setdefault(Run(subject, TOGETHER, graph=True, calls=calls, seed=task.seed), task)

    def begin(run: Run) -> None:
        text = run.subject.text if isinstance(run.subject, ProgramSubject) else ""
        note(Entry(runs[run].index, run.stage, text, semantics=str(run.semantics)))

    started = cpu_seconds()
    seen = observe_together(tuple(runs), begin)
    each = (cpu_seconds() - started) / len(drawn)
    known = {run: msgspec.structs.replace(one, cpu_seconds=each) for run, one in zip(runs, seen, strict=True)}
    passed = {
        run.subject
        for run, one in known.items()
        if isinstance(run.subject, ProgramSubject)
        and not table.shows_failure(OracleInput(run.subject.text, one), runs[run].oracles)
    }
    results = []
    for task, program in drawn:
        needed = (TOGETHER,) if ProgramSubject(program.text) in passed else task.stages
        result = _run(msgspec.structs.replace(task, stages=needed), program, known)
        results.append(msgspec.structs.replace(result, cpu_seconds=result.cpu_seconds + each))
    return BatchResult(tuple(results))


def _captured(text: str, task: CaseTask, runner: Runner) -> tuple[JudgedRun, ...]:
    return judge_program(
        text,
        task.stages,
        task.semantics,
        runner,
        oracles=task.oracles,
        called=task.called,
        sampled=True,
        seed=task.seed,
    )


def result_of(text: str, judged: Iterable[JudgedRun], runner: Runner) -> CaseResult:
    """What the judged runs of a program are for a campaign: the outcome of each run, one sighting for each failure, and
    the guard sites of explicit runs. A failure at drawn sizes is one of the program with these as its example.
    """
    outcomes: list[StageOutcome] = []
    sightings: list[Sighting] = []
    sites: list[StageReached] = []
    for in_stage in judged:
        outcomes += (
            _outcome(text, run, "" if run is in_stage.second else in_stage.verdict)
            for run in in_stage[:2]
            if run is not None
        )
        for failure in in_stage.failures:
            with guarded(in_stage.observation.stage), guarded("recording"):
                shown, program = at_example(failure, text, safe(runner))
                sightings.append(sighting(shown, program, in_stage.verdict, str(torch.__version__)))
        if in_stage.observation.semantics == EXPLICIT:
            with guarded(in_stage.observation.stage), guarded("guard sites"):
                sites.append(StageReached(in_stage.observation.stage, reached(in_stage.observation, in_stage.failures)))
    return CaseResult(NO_CASE, "", tuple(outcomes), text, tuple(sightings), tuple(sites))


def _outcome(text: str, run: Observation, judged: str) -> StageOutcome:
    called = tuple(size for call in run.calls for size in (call.size, *call.same)) if run.outcome == "ok" else ()
    accepted: tuple[str, ...] = ()
    with guarded(run.stage), guarded("accepted differences"):
        accepted = tuple(sorted(classes(OracleInput(text, run)))) if called else ()
    return StageOutcome(run.stage, str(run.semantics), run.outcome, judged, run.cpu_seconds, called, accepted)


def run_screened(text: str, task: CaseTask, runner: Runner) -> CaseResult:
    """Run the fake stage first, which costs a fifth of a capture. Capture the program if it fails there with a new
    signature.

    Every `SAMPLED`-th case is captured in any case. A failure is only a finding if a capture shows it. A failure that
    FakeTensorMode shows and a capture does not is a false alarm of the fake stage.
    """
    screened = result_of(text, judge_program(text, (SCREEN,), task.semantics, runner, compare=False), runner)
    keys = tuple(one.signature.key for one in screened.sightings)
    if not (task.capture or any(key not in task.known for key in keys)):
        sightings = tuple(one for one in screened.sightings if one.signature.key not in task.alarms)
        return msgspec.structs.replace(screened, sightings=sightings)
    captured = result_of(text, _captured(text, task, runner), runner)
    return msgspec.structs.replace(
        captured,
        outcomes=screened.outcomes + captured.outcomes,
        reached=screened.reached + captured.reached,
        screened=keys,
    )


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
    """The smallest case of a key function. Its steps are its tensors."""
    attempts = 0

    def accepts(candidate: str) -> bool:
        nonlocal attempts
        if attempts >= max_attempts:
            return False
        attempts += 1
        return shown(candidate)

    best, tensors = smallest_case(text, accepts)
    return MinimizeResult(best, tensors, attempts, attempts >= max_attempts, cpu_seconds() - started)


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
    also = result_of(
        best.program, judge_program(best.program, task.also, (suspect.semantics,), noted, oracles=oracles), noted
    )
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
