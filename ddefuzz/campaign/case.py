"""One case, as a worker does it: draw the program, run it through the stages, judge and classify what failed."""

from __future__ import annotations

import time
from functools import partial

import msgspec
import torch

from ddefuzz.campaign.tasks import Answer, Ask, CaseResult, CaseTask, StageOutcome
from ddefuzz.classify.classify import classify
from ddefuzz.classify.op import failing_ops
from ddefuzz.execute.journal import Entry
from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import (
    EXPLICIT,
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
from ddefuzz.generate.draw import case as draw_case
from ddefuzz.generate.draw import generator_key
from ddefuzz.instrument.torch_api import require
from ddefuzz.oracles.capture import judge
from ddefuzz.oracles.verdict import needs_second_run, verdict
from ddefuzz.program.text import digest, print_program


def describe(ask: Ask) -> Answer:
    """The versions here, and whether this torch can be watched at all: an UnsupportedError is better than blindness."""
    require()
    return Answer(generator_key(ask.profile, ask.seed), str(torch.__version__))


def run_case(task: CaseTask) -> CaseResult:
    """Draw a case and put it through its stages; the journal is told of each thing before it is done."""
    started = time.process_time()
    note(Entry(task.index, "draw"))
    program = draw_case(task.profile, task.seed, task.index, partial(_note_step, task.index))
    text = print_program(program)
    drawn = time.process_time() - started

    rss = 0.0

    def runner(run: Run) -> Observation:
        nonlocal rss
        note(Entry(task.index, run.stage, text, semantics=str(run.semantics)))
        observation = observe(run)
        rss = max(rss, observation.peak_rss_mb)
        return observation

    outcomes, sightings = judge_program(text, task.stages, task.semantics, runner)
    return CaseResult(task.index, digest(program), outcomes, sightings, drawn, time.process_time() - started, rss)


def _note_step(index: int, step: str) -> None:
    note(Entry(index, "draw", step))


def judge_program(
    text: str,
    stages: tuple[Stage, ...],
    semantics: tuple[Semantics, ...],
    runner: Runner,
) -> tuple[tuple[StageOutcome, ...], tuple[Sighting, ...]]:
    """Run a program in every stage and semantics: how each run ended, and one sighting for each failing run."""
    outcomes: list[StageOutcome] = []
    sightings: list[Sighting] = []
    for stage in stages:
        for mechanism in semantics:
            seen, judged = _run_stage(text, stage, mechanism, runner)
            for observation in seen:
                of_this = judged if observation is seen[0] else ""
                outcomes.append(
                    StageOutcome(
                        stage, str(observation.semantics), observation.outcome, of_this, observation.cpu_seconds
                    )
                )
            sightings += _sightings(text, seen[0], judged)
    return tuple(outcomes), tuple(sightings)


def _run_stage(text: str, stage: Stage, semantics: Semantics, runner: Runner) -> tuple[list[Observation], str]:
    run = Run(ProgramSubject(text), stage, semantics, graph=True)
    seen = [runner(run)]
    if semantics != EXPLICIT:
        return seen, ""
    if needs_second_run(seen[0]):
        seen.append(runner(msgspec.structs.replace(run, semantics=SIZE_OBLIVIOUS)))
    return seen, verdict(seen[0], *seen[1:])


def _sightings(text: str, observation: Observation, judged: str) -> list[Sighting]:
    found = []
    for failure in judge([observation]):
        classified = classify(failure)
        found.append(
            Sighting(
                signature=classified.signature,
                cause=classified.cause,
                failure=failure,
                verdict=judged,
                ops=failing_ops(observation),
                torch=str(torch.__version__),
                program=text,
            )
        )
    return found
