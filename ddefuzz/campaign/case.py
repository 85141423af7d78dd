"""One case, as a worker does it: draw the program, run it through the stages, judge and classify what failed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import torch

from ddefuzz.campaign.tasks import Answer, Ask, CaseResult, CaseTask, StageOutcome, StageReached
from ddefuzz.coverage.reach import reached
from ddefuzz.execute.journal import Entry
from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import EXPLICIT, SCREEN, Observation, Run, Runner
from ddefuzz.execute.worker import note
from ddefuzz.findings.model import Sighting
from ddefuzz.findings.sighted import sighting
from ddefuzz.generate.draw import generator_key
from ddefuzz.generate.make import program_of
from ddefuzz.generate.opinfo import entries
from ddefuzz.generate.origin import Draw
from ddefuzz.instrument.torch_api import require
from ddefuzz.oracles.program import Judged, judge_program
from ddefuzz.program.model import functions_in
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
        seen = see_screened(text, task, runner)
    else:
        seen = seen_of(text, judge_program(text, task.stages, task.semantics, runner))
    return CaseResult(
        task.index,
        digest(program),
        seen.outcomes,
        text,
        seen.sightings,
        seen.reached,
        drawn,
        time.process_time() - started,
        rss,
        origin,
        seen.screened,
        functions_in(program),
    )


def _note_step(index: int, step: str) -> None:
    note(Entry(index, "draw", step))


class Seen(NamedTuple):
    """A program's runs: how each ended, one sighting for each that failed, and what the explicit ones reached.

    `screened` are the keys of what the fake stage showed before the captures.
    """

    outcomes: tuple[StageOutcome, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    reached: tuple[StageReached, ...] = ()
    screened: tuple[str, ...] = ()


def seen_of(text: str, judged: Iterable[Judged]) -> Seen:
    """The judged runs of a program, as a campaign counts them."""
    outcomes: list[StageOutcome] = []
    sightings: list[Sighting] = []
    sites: list[StageReached] = []
    for one in judged:
        outcomes += (_outcome(run, "" if run is one.second else one.verdict) for run in one[:2] if run is not None)
        sightings += (sighting(failure, text, one.verdict, str(torch.__version__)) for failure in one.failures)
        if one.observation.semantics == EXPLICIT:
            sites.append(StageReached(one.observation.stage, reached(one.observation, one.failures)))
    return Seen(tuple(outcomes), tuple(sightings), tuple(sites))


def _outcome(run: Observation, judged: str) -> StageOutcome:
    return StageOutcome(run.stage, str(run.semantics), run.outcome, judged, run.cpu_seconds)


def see_screened(text: str, task: CaseTask, runner: Runner) -> Seen:
    """The fake stage first, which costs a fifth of any other: what it refuses for a new reason goes on, and some more.

    Only a capture makes a finding: what the fake stage refuses and a capture takes is an alarm of the fake stage alone.
    """
    screened = seen_of(text, judge_program(text, (SCREEN,), task.semantics, runner, compare=False))
    is_new = any(one.signature.key not in task.known for one in screened.sightings)
    if not (is_new or task.anyway):
        return screened._replace(
            sightings=tuple(one for one in screened.sightings if one.signature.key not in task.alarms)
        )
    captured = seen_of(text, judge_program(text, task.stages, task.semantics, runner))
    return Seen(
        screened.outcomes + captured.outcomes,
        captured.sightings,
        screened.reached + captured.reached,
        tuple(one.signature.key for one in screened.sightings),
    )
