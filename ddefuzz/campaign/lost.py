"""Recover the results of a task whose worker crashed or timed out, from its journal."""

from __future__ import annotations

from pathlib import Path

from ddefuzz.campaign.tasks import CaseResult, CaseTask, MinimizeResult, MinimizeTask, StageOutcome
from ddefuzz.classify.failure import Failure
from ddefuzz.errors import ProgramError
from ddefuzz.execute.journal import Entry, entries, last_of_case
from ddefuzz.execute.pool import Lost, lost_observation
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, Semantics, Stage
from ddefuzz.findings.model import Sighting
from ddefuzz.findings.sighted import sighting
from ddefuzz.generate.origin import Draw
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles.program import Suspect, tried_of
from ddefuzz.oracles.table import stages as every_stage
from ddefuzz.program.text import digest

NO_CASE = -1
"""The `case` in the journal for work that is not a case."""

INSPECTED, TRIED, TAKEN = "inspect", "minimize", "smaller"
"""The `stage` in the journal for a candidate that is run in eager, for one that is captured, and for one that showed
the signature.
"""


def lost_case(task: CaseTask, lost: Lost, journal: Path, torch: str) -> CaseResult:
    """The result of a case that ended its worker, with one sighting of the crash or hang.

    A case that an exception of ddefuzz ended is not judged. One that was still being drawn has no sighting: eager ended
    the process, and nothing was captured. A run with forced answers, by which an oracle looks for the place to blame,
    says nothing of torch.
    """
    doing = _doing(task, journal)
    stage, semantics = _run_of(task, doing)
    drawn = doing.stage in every_stage()
    run = Run(ProgramSubject(doing.program), stage, semantics)
    observation = lost_observation(run, lost)
    outcome = StageOutcome(stage, str(semantics), observation.outcome, "", 0.0)
    forced = drawn and " with " in doing.semantics
    sightings = sightings_of(observation, doing.program, torch) if drawn and not forced else ()
    return CaseResult(
        task.index,
        _digest(doing, lost.outcome),
        (outcome,),
        sightings=sightings,
        origin=task.origin or Draw(task.index),
    )


def sightings_of(observation: Observation, program: str, torch: str) -> tuple[Sighting, ...]:
    """The crash or timeout as a sighting of the program that ran."""
    return tuple(sighting(failure, program, "fails", torch) for failure in tried_of(observation).failures)


def shown_by_loss(suspect: Suspect, lost: Lost) -> Failure | None:
    """The failure by which the loss of a confirmation shows the suspected signature; None if it does not."""
    run = Run(ProgramSubject(suspect.program), suspect.stage, suspect.semantics, calls=suspect.calls)
    found = tried_of(lost_observation(run, lost)).failures
    return next((one.failure for one in found if one.signature == suspect.signature), None)


def _doing(task: CaseTask, journal: Path) -> Entry:
    return last_of_case(journal, task.index) or Entry(task.index, "draw")


def _run_of(task: CaseTask, doing: Entry) -> tuple[Stage, Semantics]:
    stage: Stage = next((name for name in every_stage() if name == doing.stage), "eager")
    return stage, next((one for one in task.semantics if str(one) == doing.semantics), Semantics())


def _digest(doing: Entry, ended: str) -> str:
    """The digest that the program has without the loss. So a campaign's digests do not depend on losses."""
    try:
        return digest(parse(doing.program, "<journal>").program) if doing.stage in every_stage() else f"lost {ended}"
    except ProgramError:
        return f"lost {ended}"


def was_begun(case: int, journal: Path) -> bool:
    """Whether a worker has started the case. A case that was lost before can be submitted again."""
    return last_of_case(journal, case) is not None


def lost_in(task: MinimizeTask, journal: Path) -> str:
    """The other stage in which the smallest program of a finding was lost. Empty if the minimization itself was."""
    stages = [entry.stage for entry in entries(journal) if entry.finding == task.finding]
    return stages[-1] if stages and stages[-1] in every_stage() else ""


def smallest_so_far(task: MinimizeTask, journal: Path) -> MinimizeResult | None:
    """The smallest program that a lost minimization had reached, None if there is none."""
    of_this = [entry for entry in entries(journal) if entry.finding == task.finding]
    taken = [entry for entry in of_this if entry.stage == TAKEN]
    if not taken:
        return None
    attempts = sum(entry.stage == TRIED for entry in of_this)
    return MinimizeResult(taken[-1].program, taken[-1].step, attempts, exhausted=True)


def suspected(task: MinimizeTask, journal: Path) -> str | None:
    """The candidate that was running when a minimization lost its worker, None if there was none."""
    of_this = [entry for entry in entries(journal) if entry.finding == task.finding]
    return of_this[-1].program if of_this and of_this[-1].stage in {INSPECTED, TRIED} else None
