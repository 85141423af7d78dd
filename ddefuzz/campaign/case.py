"""Run one case in a worker: draw the program, run it in its stages, judge and classify the failures."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import torch

from ddefuzz.campaign.tasks import NO_CASE, CaseResult, CaseTask, DescribeTask, StageOutcome, StageReached, Versions
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

    done = run_screened(text, task, runner) if task.screen else result_of(text, _captured(text, task, runner))
    return msgspec.structs.replace(
        done,
        index=task.index,
        digest=digest(program),
        draw_seconds=drawn,
        cpu_seconds=cpu_seconds() - started,
        rss_mb=rss,
        origin=origin,
        functions=functions_in(program),
    )


def _captured(text: str, task: CaseTask, runner: Runner) -> tuple[Judged, ...]:
    return judge_program(
        text, task.stages, task.semantics, runner, oracles=task.oracles, called=task.called, sampled=True
    )


def result_of(text: str, judged: Iterable[Judged]) -> CaseResult:
    """What the judged runs of a program are for a campaign: the outcome of each run, one sighting for each failure, and
    the guard sites of explicit runs.
    """
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
    return CaseResult(NO_CASE, "", tuple(outcomes), text, tuple(sightings), tuple(sites))


def _outcome(run: Observation, judged: str) -> StageOutcome:
    called = tuple(size for call in run.calls for size in (call.size, *call.same)) if run.outcome == "ok" else ()
    return StageOutcome(run.stage, str(run.semantics), run.outcome, judged, run.cpu_seconds, called)


def run_screened(text: str, task: CaseTask, runner: Runner) -> CaseResult:
    """Run the fake stage first, which costs a fifth of a capture. Capture the program if it fails there with a new
    signature.

    Every `SAMPLED`-th case is captured in any case. A failure is only a finding if a capture shows it. A failure that
    FakeTensorMode shows and a capture does not is a false alarm of the fake stage.
    """
    screened = result_of(text, judge_program(text, (SCREEN,), task.semantics, runner, compare=False))
    keys = tuple(one.signature.key for one in screened.sightings)
    if not (task.capture or any(key not in task.known for key in keys)):
        sightings = tuple(one for one in screened.sightings if one.signature.key not in task.alarms)
        return msgspec.structs.replace(screened, sightings=sightings)
    captured = result_of(text, _captured(text, task, runner))
    return msgspec.structs.replace(
        captured,
        outcomes=screened.outcomes + captured.outcomes,
        reached=screened.reached + captured.reached,
        screened=keys,
    )
