"""A case whose worker died or hung: what its journal says that it was doing becomes the observation."""

from __future__ import annotations

from pathlib import Path

from ddefuzz.campaign.tasks import CaseResult, CaseTask, StageOutcome
from ddefuzz.classify.classify import classify
from ddefuzz.execute.journal import Entry, last_of_case
from ddefuzz.execute.pool import Lost
from ddefuzz.execute.protocol import STAGES, Observation, Semantics, Stage
from ddefuzz.findings.model import Sighting
from ddefuzz.oracles.capture import judge


def lost_case(task: CaseTask, lost: Lost, journal: Path, torch: str) -> CaseResult:
    """The result of a case that ended its worker, with one sighting of the crash or hang.

    A case that was still being drawn has no program yet: its last step is the evidence, in the stage `eager`.
    """
    doing = last_of_case(journal, task.index) or Entry(task.index, "draw")
    stage: Stage = next((name for name in STAGES if name == doing.stage), "eager")
    semantics = next((one for one in task.semantics if str(one) == doing.semantics), Semantics())
    drawn = doing.stage in STAGES
    reason = lost.reason if drawn else f"{lost.reason} while drawing {doing.program or 'the first step'}"
    observation = Observation(stage, semantics, lost.outcome, reason)
    outcome = StageOutcome(stage, str(semantics), lost.outcome, "", 0.0)
    sightings = tuple(
        Sighting(
            signature=classified.signature,
            cause=classified.cause,
            failure=classified.failure,
            verdict="open",
            ops=(),
            torch=torch,
            program=doing.program if drawn else None,
        )
        for classified in map(classify, judge([observation]))
    )
    return CaseResult(task.index, f"lost {lost.outcome}", (outcome,), sightings)
