"""One case, as a worker does it: draw the program, run it through the stages, judge and classify what failed."""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

import msgspec
import torch

from ddefuzz.campaign.tasks import Answer, Ask, CaseResult, CaseTask, StageOutcome, StageReached
from ddefuzz.classify.classify import Classified, classify
from ddefuzz.classify.op import failing_ops
from ddefuzz.coverage.reach import reached
from ddefuzz.execute.journal import Entry
from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import (
    CHEAP_TO_CALL,
    EXPLICIT,
    SCREEN,
    SIZE_OBLIVIOUS,
    Observation,
    ProgramSubject,
    Run,
    Runner,
    Semantics,
    Stage,
)
from ddefuzz.execute.worker import note
from ddefuzz.findings.model import Sighting
from ddefuzz.generate.draw import generator_key
from ddefuzz.generate.make import program_of
from ddefuzz.generate.opinfo import entries
from ddefuzz.generate.origin import Draw
from ddefuzz.instrument.torch_api import require
from ddefuzz.oracles.capture import judge
from ddefuzz.oracles.verdict import needs_second_run, verdict
from ddefuzz.program.model import functions_in
from ddefuzz.program.sizes import CallSize
from ddefuzz.program.text import digest, print_program


def describe(ask: Ask) -> Answer:
    """The versions here, and whether this torch can be watched at all: an UnsupportedError is better than blindness."""
    require()
    return Answer(generator_key(ask.profile, ask.seed), str(torch.__version__), tuple(entries()), torch.__path__[0])


def run_case(task: CaseTask) -> CaseResult:
    """Draw a case and put it through its stages; the journal is told of each thing before it is done."""
    started = time.process_time()
    note(Entry(task.index, "draw"))
    program, origin = program_of(
        task.profile, task.seed, task.index, task.origin or Draw(task.index), partial(_note_step, task.index)
    )
    text = print_program(program)
    drawn = time.process_time() - started

    rss = 0.0

    def runner(run: Run) -> Observation:
        nonlocal rss
        note(Entry(task.index, run.stage, text, semantics=str(run.semantics)))
        observation = observe(run)
        rss = max(rss, observation.peak_rss_mb)
        return observation

    if task.screen:
        judged = judge_screened(text, task, runner)
    else:
        judged = judge_program(text, task.stages, task.semantics, runner)
    return CaseResult(
        task.index,
        digest(program),
        judged.outcomes,
        text,
        judged.sightings,
        judged.reached,
        drawn,
        time.process_time() - started,
        rss,
        origin,
        judged.screened,
        functions_in(program),
    )


def _note_step(index: int, step: str) -> None:
    note(Entry(index, "draw", step))


class Judged(NamedTuple):
    """A program's runs: how each ended, one sighting for each that failed, and what the explicit ones reached.

    `screened` are the keys of what the fake stage showed before the captures.
    """

    outcomes: tuple[StageOutcome, ...]
    sightings: tuple[Sighting, ...]
    reached: tuple[StageReached, ...]
    screened: tuple[str, ...] = ()


def judge_program(
    text: str,
    stages: tuple[Stage, ...],
    semantics: tuple[Semantics, ...],
    runner: Runner,
    *,
    compare: bool = True,
) -> Judged:
    """Run a program in every stage and semantics; without `compare` nothing is judged beside the old mechanism."""
    outcomes: list[StageOutcome] = []
    sightings: list[Sighting] = []
    sites: list[StageReached] = []
    for stage in stages:
        for mechanism in semantics:
            seen, judged = _run_stage(text, stage, mechanism, runner, compare=compare)
            for observation in seen:
                of_this = judged if observation is seen[0] else ""
                outcomes.append(
                    StageOutcome(
                        stage, str(observation.semantics), observation.outcome, of_this, observation.cpu_seconds
                    )
                )
            failures = tuple(map(classify, judge([seen[0]])))
            sightings += (_sighting(text, seen[0], judged, failure) for failure in failures)
            if mechanism == EXPLICIT:
                sites.append(StageReached(stage, reached(seen[0], failures)))
    return Judged(tuple(outcomes), tuple(sightings), tuple(sites))


def judge_screened(text: str, task: CaseTask, runner: Runner) -> Judged:
    """The fake stage first, which costs a fifth of any other: what it refuses for a new reason goes on, and some more.

    Only a capture makes a finding: what the fake stage refuses and a capture takes is an alarm of the fake stage alone.
    """
    screened = judge_program(text, (SCREEN,), task.semantics, runner, compare=False)
    is_new = any(one.signature.key not in task.known for one in screened.sightings)
    if not (is_new or task.anyway):
        return screened._replace(
            sightings=tuple(one for one in screened.sightings if one.signature.key not in task.alarms)
        )
    captured = judge_program(text, task.stages, task.semantics, runner)
    return Judged(
        screened.outcomes + captured.outcomes,
        captured.sightings,
        screened.reached + captured.reached,
        tuple(one.signature.key for one in screened.sightings),
    )


def _run_stage(
    text: str, stage: Stage, semantics: Semantics, runner: Runner, *, compare: bool
) -> tuple[list[Observation], str]:
    calls: tuple[CallSize, ...] = ("example",) if compare and stage in CHEAP_TO_CALL else ()
    run = Run(ProgramSubject(text), stage, semantics, graph=compare, calls=calls)
    seen = [runner(run)]
    if semantics != EXPLICIT or not compare:
        return seen, ""
    if needs_second_run(seen[0]):
        seen.append(runner(msgspec.structs.replace(run, semantics=SIZE_OBLIVIOUS)))
    return seen, verdict(seen[0], *seen[1:])


def _sighting(text: str, observation: Observation, judged: str, failure: Classified) -> Sighting:
    return Sighting(
        signature=failure.signature,
        cause=failure.cause,
        failure=failure.failure,
        verdict=judged,
        ops=failing_ops(observation, text),
        torch=str(torch.__version__),
        program=text,
    )
