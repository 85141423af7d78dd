"""The tasks of a campaign's workers and their results, and what a worker's journal says of a task that was lost.

Nothing here imports torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from ddefuzz.answers.model import Control
from ddefuzz.classify.failure import Failure
from ddefuzz.errors import ProgramError
from ddefuzz.execute.journal import Entry, entries, last_of_case
from ddefuzz.execute.pool import LostTask, lost_observation
from ddefuzz.execute.protocol import CHEAP_TO_CALL, EXPLICIT, Observation, ProgramSubject, Run, Semantics, Stage
from ddefuzz.execute.worker import Task
from ddefuzz.findings.ledger import SiteVisit
from ddefuzz.findings.model import Sighting, sighting
from ddefuzz.generate.profiles import Draw, Origin
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles.program import CAPTURE, Suspect, tried_of
from ddefuzz.oracles.table import stages as every_stage
from ddefuzz.program.sizes import CallSize
from ddefuzz.program.text import digest

NO_CASE = -1
"""The `case` in the journal for work that is not a case."""

TOGETHER: Final[Stage] = "inductor"
"""The stage in which several cases are called together."""

INSPECTED, TRIED, TAKEN = "inspect", "minimize", "smaller"
"""The `stage` in the journal for a candidate: run in eager, captured, and shown to have the signature."""


def lost_case(task: CaseTask, lost: LostTask, journal: Path, torch: str) -> CaseResult:
    """The result of a case that ended its worker, with one sighting of the crash or hang.

    A case that an exception of ddefuzz ended is not judged. One that was still being drawn has no sighting: eager ended
    the process, and nothing was captured. A run with forced answers, by which an oracle looks for the place to blame,
    says nothing of torch.
    """
    doing = last_of_case(journal, task.index) or Entry(task.index, "draw")
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


def shown_by_loss(suspect: Suspect, lost: LostTask) -> Failure | None:
    """The failure by which the loss of a confirmation shows the suspected signature; None if it does not."""
    run = Run(ProgramSubject(suspect.program), suspect.stage, suspect.semantics, calls=suspect.calls)
    failures = tried_of(lost_observation(run, lost)).failures
    return next((one.failure for one in failures if one.signature == suspect.signature), None)


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


def running(batch: CaseBatch, journal: Path) -> CaseTask | None:
    """The case of a batch that was running when its worker was lost; None if no worker has begun the batch."""
    cases = {task.index: task for task in batch.tasks}
    last = None
    for entry in entries(journal):
        last = cases.get(entry.case, last)
    return last


def _entries(task: MinimizeTask, journal: Path) -> list[Entry]:
    return [entry for entry in entries(journal) if entry.finding == task.finding]


def lost_in(task: MinimizeTask, journal: Path) -> str:
    """The other stage in which the smallest program of a finding was lost. Empty if the minimization itself was."""
    last = _entries(task, journal)[-1:]
    return last[0].stage if last and last[0].stage in every_stage() else ""


def smallest_so_far(task: MinimizeTask, journal: Path) -> MinimizeResult | None:
    """The smallest program that a lost minimization had reached, None if there is none."""
    of_this = _entries(task, journal)
    taken = [entry for entry in of_this if entry.stage == TAKEN]
    if not taken:
        return None
    attempts = sum(entry.stage == TRIED for entry in of_this)
    return MinimizeResult(taken[-1].program, taken[-1].step, attempts, exhausted=True)


def suspected(task: MinimizeTask, journal: Path) -> str | None:
    """The candidate that was running when a minimization lost its worker, None if there was none."""
    last = _entries(task, journal)[-1:]
    return last[0].program if last and last[0].stage in {INSPECTED, TRIED} else None


class CaseTask(msgspec.Struct, frozen=True):
    """A case to run. The worker makes its program from profile, seed, index and origin (None: drawn).

    With `screen`, the stages are run only if `capture` is set or the fake stage fails with a signature that is not
    among `known`. `alarms` are those of the known signatures that only the fake stage showed. The `oracles` judge what
    is captured. What the stages `called` capture is called.
    """

    profile: str
    seed: int
    index: int
    stages: tuple[Stage, ...]
    semantics: tuple[Semantics, ...] = (EXPLICIT,)
    origin: Origin | None = None
    screen: bool = False
    capture: bool = True
    known: frozenset[str] = frozenset()
    alarms: frozenset[str] = frozenset()
    oracles: tuple[str, ...] = CAPTURE
    called: tuple[Stage, ...] = CHEAP_TO_CALL


class CaseBatch(msgspec.Struct, frozen=True):
    """Cases that are called in inductor together."""

    tasks: tuple[CaseTask, ...]


class StageOutcome(msgspec.Struct, frozen=True):
    """How one run ended. `verdict` compares explicit and size-oblivious semantics, and is set on the explicit run.
    `called` are the sizes at which the captured program was called, `accepted` the classes of differences from eager
    that are accepted (`oracles.acceptance`).
    """

    stage: Stage
    semantics: str
    outcome: str
    verdict: str
    cpu_seconds: float
    called: tuple[CallSize, ...] = ()
    accepted: tuple[str, ...] = ()


class StageReached(msgspec.Struct, frozen=True):
    """The guard sites that the explicit run in one stage reached."""

    stage: Stage
    reached: tuple[SiteVisit, ...]


class CaseResult(msgspec.Struct, frozen=True):
    """The results of one case: its digest, the outcome of each run, the classified failures, and the guard sites
    reached.

    `program` is its text, or empty if it was lost while it was drawn. `draw_seconds` and `cpu_seconds` are CPU seconds
    of the worker, for drawing and in total. `screened` are the keys of the signatures that the fake stage showed before
    a capture. `functions` are those that the program calls.
    """

    index: int
    digest: str
    outcomes: tuple[StageOutcome, ...] = ()
    program: str = ""
    sightings: tuple[Sighting, ...] = ()
    reached: tuple[StageReached, ...] = ()
    draw_seconds: float = 0.0
    cpu_seconds: float = 0.0
    rss_mb: float = 0.0
    origin: Origin = Draw(0)
    screened: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


class BatchResult(msgspec.Struct, frozen=True):
    """The results of the cases of a batch, in order."""

    results: tuple[CaseResult, ...]


class MinimizeTask(msgspec.Struct, frozen=True):
    """Minimize `suspect`, in at most `max_attempts` captures. The functions `ops` are tried alone first.

    The result is also run in the stages `also`. `finding` is the name under which the journal records progress, in case
    the worker is lost. The programs `avoid` are not tried, because they ended a worker.
    """

    suspect: Suspect
    ops: tuple[str, ...] = ()
    max_attempts: int = 30
    finding: str = ""
    avoid: tuple[str, ...] = ()
    also: tuple[Stage, ...] = ()


class MinimizeResult(msgspec.Struct, frozen=True):
    """The smallest program and its number of operations. `sightings` are its failures in other stages."""

    program: str
    steps: int
    attempts: int
    exhausted: bool
    cpu_seconds: float = 0.0
    sightings: tuple[Sighting, ...] = ()


class ConfirmResult(msgspec.Struct, frozen=True):
    """The failure in a process that had captured nothing before, if it is the same one."""

    shown: Failure | None = None
    cpu_seconds: float = 0.0


class ControlTask(msgspec.Struct, frozen=True):
    """Test whether the failure `shown` of `program` depends on data. `ops` are the functions that fail."""

    program: str
    shown: Failure
    ops: tuple[str, ...] = ()


class ControlResult(msgspec.Struct, frozen=True):
    """The results of the control runs."""

    control: Control
    cpu_seconds: float = 0.0


class DescribeTask(msgspec.Struct, frozen=True):
    """Return the versions in a worker. It runs before the first case."""

    profile: str
    seed: int


class Versions(msgspec.Struct, frozen=True):
    """What a campaign's cases and observations depend on: the generator's key (see `generate.draw`) and torch.

    `samples` are the ops that torch has samples of. `package` is the folder of its Python source.
    """

    generator: str
    torch: str
    samples: tuple[str, ...] = ()
    package: str = ""


describe = Task("ddefuzz.campaign.case:describe", DescribeTask, Versions)
run_case = Task("ddefuzz.campaign.case:run_case", CaseTask, CaseResult)
run_batch = Task("ddefuzz.campaign.case:run_batch", CaseBatch, BatchResult)
run_minimize = Task("ddefuzz.campaign.case:run_minimize", MinimizeTask, MinimizeResult)
run_confirm = Task("ddefuzz.campaign.case:run_confirm", Suspect, ConfirmResult)
run_control = Task("ddefuzz.campaign.case:run_control", ControlTask, ControlResult)
