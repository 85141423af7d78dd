"""What a campaign asks of its workers and what they answer, as records; nothing here imports torch."""

from __future__ import annotations

import msgspec

from ddefuzz.classify.failure import Failure
from ddefuzz.control.model import Control
from ddefuzz.coverage.reach import Reached
from ddefuzz.execute.protocol import EXPLICIT, Semantics, Stage
from ddefuzz.execute.worker import late
from ddefuzz.findings.model import Sighting
from ddefuzz.generate.origin import Draw, Origin
from ddefuzz.oracles.program import Suspect


class CaseTask(msgspec.Struct, frozen=True):
    """Which case to do: it is made where it is run, from its profile, seed, index and origin (None: drawn).

    With `screen`, the stages are only gone through if `anyway` is set or the fake stage fails, with another signature
    than those whose keys are `known`. Of these, captures have taken what shows the `alarms`.
    """

    profile: str
    seed: int
    index: int
    stages: tuple[Stage, ...]
    semantics: tuple[Semantics, ...] = (EXPLICIT,)
    origin: Origin | None = None
    screen: bool = False
    anyway: bool = True
    known: frozenset[str] = frozenset()
    alarms: frozenset[str] = frozenset()


class StageOutcome(msgspec.Struct, frozen=True):
    """How one run ended; `verdict` is set on the explicit run, which stands for the comparison of both mechanisms."""

    stage: Stage
    semantics: str
    outcome: str
    verdict: str
    cpu_seconds: float


class StageReached(msgspec.Struct, frozen=True):
    """The guard sites that the explicit run in one stage reached."""

    stage: Stage
    reached: tuple[Reached, ...]


class CaseResult(msgspec.Struct, frozen=True):
    """What one case did: its digest, how each run ended, what failed, classified, and which guard sites it reached.

    `program` is its text, empty where it was lost while it was drawn. `draw_seconds` and `cpu_seconds` are CPU seconds
    of the worker: for drawing, and for everything. `screened` are the keys of what the fake stage showed ahead of a
    capture, `functions` what the program calls.
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


class MinimizeTask(msgspec.Struct, frozen=True):
    """Make `suspect` smaller, in at most `max_attempts` captures; `ops` are tried on their own first.

    What is found is run through the stages `also` as well. `finding` is the name under which the journal keeps what was
    reached, should the worker be lost. The programs `avoid` are not tried: they ended a worker.
    """

    suspect: Suspect
    ops: tuple[str, ...] = ()
    max_attempts: int = 30
    finding: str = ""
    avoid: tuple[str, ...] = ()
    also: tuple[Stage, ...] = ()


class MinimizeResult(msgspec.Struct, frozen=True):
    """The smallest program and its number of operations; `sightings` are what it showed in other stages."""

    program: str
    steps: int
    attempts: int
    exhausted: bool
    cpu_seconds: float = 0.0
    sightings: tuple[Sighting, ...] = ()


class ConfirmResult(msgspec.Struct, frozen=True):
    """The failure that a process that had captured nothing before saw, if it is the same."""

    shown: Failure | None = None
    cpu_seconds: float = 0.0


class ControlTask(msgspec.Struct, frozen=True):
    """See whether what `program` shows is about data; `shown` is its failure, `ops` are the functions that fail."""

    program: str
    shown: Failure
    ops: tuple[str, ...] = ()


class ControlResult(msgspec.Struct, frozen=True):
    """What the control runs showed."""

    control: Control
    cpu_seconds: float = 0.0


class Ask(msgspec.Struct, frozen=True):
    """What a worker is asked about itself before the first case."""

    profile: str
    seed: int


class Answer(msgspec.Struct, frozen=True):
    """What decides a campaign's cases and observations: the generator's key (see `generate.draw`) and torch.

    `samples` are the ops that torch has samples of, `package` is the folder of its Python source.
    """

    generator: str
    torch: str
    samples: tuple[str, ...] = ()
    package: str = ""


def describe(ask: Ask) -> Answer:
    """The versions in the workers; raises UnsupportedError where this torch cannot be watched."""
    result: Answer = late("ddefuzz.campaign.case").describe(ask)
    return result


def run_case(task: CaseTask) -> CaseResult:
    """Draw a case and put it through its stages."""
    result: CaseResult = late("ddefuzz.campaign.case").run_case(task)
    return result


def run_minimize(task: MinimizeTask) -> MinimizeResult:
    """Make a suspect's program as small as its signature allows, and see what it does in other stages."""
    result: MinimizeResult = late("ddefuzz.campaign.follow_up").run_minimize(task)
    return result


def run_confirm(suspect: Suspect) -> ConfirmResult:
    """Run a suspect's program as it is."""
    result: ConfirmResult = late("ddefuzz.campaign.follow_up").run_confirm(suspect)
    return result


def run_control(task: ControlTask) -> ControlResult:
    """Capture a smallest program with static and with backed sizes."""
    result: ControlResult = late("ddefuzz.campaign.follow_up").run_control(task)
    return result
