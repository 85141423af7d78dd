"""Run one case in a worker: draw the program, run it in its stages, judge and classify the failures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from ddefuzz.campaign.tasks import CaseResult, CaseTask, DescribeTask, StageOutcome, StageReached, Versions
from ddefuzz.coverage.ledger import reached
from ddefuzz.execute.journal import Entry
from ddefuzz.execute.limit import cpu_seconds
from ddefuzz.execute.protocol import EXPLICIT, SCREEN, Observation, ProgramSubject, Run, Runner
from ddefuzz.execute.worker import note
from ddefuzz.findings.model import Sighting, sighting
from ddefuzz.generate.draw import generator_key
from ddefuzz.generate.make import program_of
from ddefuzz.generate.opinfo import entries
from ddefuzz.generate.origin import Draw
from ddefuzz.instrument.torch_api import require
from ddefuzz.internal import guarded
from ddefuzz.oracles.program import Judged, judge_program, observe
from ddefuzz.program.model import functions_in
from ddefuzz.program.text import digest, print_program


def describe(task: DescribeTask) -> Versions:
    """The versions in this worker. Raises UnsupportedError if this torch cannot be watched."""
    require()
    return Versions(generator_key(task.profile, task.seed), str(torch.__version__), tuple(entries()), torch.__path__[0])


def run_case(task: CaseTask) -> CaseResult:
    """Draw a case and run it in its stages. The journal is written before each thing is done."""
    started = cpu_seconds()
    note(Entry(task.index, "draw"))
    program, origin = program_of(
        task.profile,
        task.seed,
        task.index,
        task.origin or Draw(task.index),
        lambda step: note(Entry(task.index, "draw", step)),
    )
    text = print_program(program)
    drawn = cpu_seconds() - started

    rss = 0.0

    def runner(run: Run) -> Observation:
        nonlocal rss
        tried = run.subject.text if isinstance(run.subject, ProgramSubject) else text
        note(Entry(task.index, run.stage, tried, semantics=str(run.semantics)))
        observation = observe(run)
        rss = max(rss, observation.peak_rss_mb)
        return observation

    seen = see_screened(text, task, runner) if task.screen else seen_of(text, _captured(text, task, runner))
    return CaseResult(
        task.index,
        digest(program),
        seen.outcomes,
        text,
        seen.sightings,
        seen.reached,
        drawn,
        cpu_seconds() - started,
        rss,
        origin,
        seen.screened,
        functions_in(program),
    )


def _captured(text: str, task: CaseTask, runner: Runner) -> tuple[Judged, ...]:
    return judge_program(
        text, task.stages, task.semantics, runner, oracles=task.oracles, called=task.called, sampled=True
    )


class Seen(NamedTuple):
    """The results of a program: the outcome of each run, one sighting for each failure, and the guard sites of explicit
    runs.

    `screened` are the keys of the signatures that the fake stage showed before the captures.
    """

    outcomes: tuple[StageOutcome, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    reached: tuple[StageReached, ...] = ()
    screened: tuple[str, ...] = ()


def seen_of(text: str, judged: Iterable[Judged]) -> Seen:
    """Convert the judged runs of a program to the records of a campaign."""
    outcomes: list[StageOutcome] = []
    sightings: list[Sighting] = []
    sites: list[StageReached] = []
    for one in judged:
        outcomes += (_outcome(run, "" if run is one.second else one.verdict) for run in one[:2] if run is not None)
        for failure in one.failures:
            with guarded(one.observation.stage), guarded("recording"):
                sightings.append(sighting(failure, text, one.verdict, str(torch.__version__)))
        if one.observation.semantics == EXPLICIT:
            with guarded(one.observation.stage), guarded("guard sites"):
                sites.append(StageReached(one.observation.stage, reached(one.observation, one.failures)))
    return Seen(tuple(outcomes), tuple(sightings), tuple(sites))


def _outcome(run: Observation, judged: str) -> StageOutcome:
    called = tuple(size for call in run.calls for size in (call.size, *call.same)) if run.outcome == "ok" else ()
    return StageOutcome(run.stage, str(run.semantics), run.outcome, judged, run.cpu_seconds, called)


def see_screened(text: str, task: CaseTask, runner: Runner) -> Seen:
    """Run the fake stage first, which costs a fifth of a capture. Capture the program if it fails there with a new
    signature.

    Every `SAMPLED`-th case is captured in any case. A failure is only a finding if a capture shows it. A failure that
    FakeTensorMode shows and a capture does not is a false alarm of the fake stage.
    """
    screened = seen_of(text, judge_program(text, (SCREEN,), task.semantics, runner, compare=False))
    is_new = any(one.signature.key not in task.known for one in screened.sightings)
    if not (is_new or task.capture):
        return screened._replace(
            sightings=tuple(one for one in screened.sightings if one.signature.key not in task.alarms)
        )
    captured = seen_of(text, _captured(text, task, runner))
    return Seen(
        screened.outcomes + captured.outcomes,
        captured.sightings,
        screened.reached + captured.reached,
        tuple(one.signature.key for one in screened.sightings),
    )
