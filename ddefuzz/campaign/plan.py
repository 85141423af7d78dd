"""The options of a campaign, and the order of its cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddefuzz.campaign.budget import WHOLE, Budget, Shard
from ddefuzz.campaign.guide import CalledCase, Case
from ddefuzz.campaign.tasks import CaseTask
from ddefuzz.execute.protocol import CHEAP_TO_CALL, Semantics, Stage
from ddefuzz.findings.known import NONE, Now
from ddefuzz.generate.origin import CAPTURES, Draw
from ddefuzz.oracles.oracle import Oracle, OwnStage
from ddefuzz.oracles.program import CAPTURE, Suspect, called_of
from ddefuzz.oracles.table import ORACLES, calls_of, own_stage

CASE_SECONDS = 30.0
"""Time limit of one case in all its stages, unless a plan sets its own."""

MINIMIZE_SECONDS = 60.0
CONFIRM_SECONDS = 30.0
"""Time limit of a confirmation, and of the control runs after it."""

SAMPLED = 16
"""With screening, every sixteenth case (of each stage) is captured even if it passes the fake stage."""

CALLED = 7
"""Every seventh case is for the oracles that call captured programs. It is not run in the fake stage first. Each stage
gets its turn: 7 has no divisor in common with the number of stages.
"""

CALLED_IN_INDUCTOR = 50
"""Every fiftieth of these cases is called in inductor, which compiles C++ for about 10 CPU seconds: one case in 350. It
is run by dynamo's eager backend first, and not in inductor if that fails.
"""

SLOWER = 6
"""How much longer a task may take in which inductor compiles C++."""

SLOW_TO_START: frozenset[Stage] = frozenset({"inductor"})
"""Stages that are skipped for cases that fail in the fake stage, and for findings of other stages.

The first use costs 2.5 CPU seconds in every process.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a campaign.

    With `in_turn` each case is run in one of the stages, by its index, else in all of them. With `screen` a case is
    captured only if it fails in the fake stage; every `SAMPLED`-th case is captured in any case. With `guided` the
    cases come from a `Guide`. `oracles` judge what is captured; if one of them calls it, every `CALLED`-th case is
    captured and called without the fake stage.

    `known` has the findings that a list of known findings has: they are not new, and not minimized. Those whose
    decision has expired are new again.
    """

    profile: str
    seed: int
    budget: Budget
    jobs: int
    stages: tuple[Stage, ...]
    semantics: tuple[Semantics, ...]
    shard: Shard = WHOLE
    minimize: bool = True
    case_seconds: float = CASE_SECONDS
    in_turn: bool = False
    screen: bool = False
    guided: bool = False
    oracles: tuple[str, ...] = CAPTURE
    known: Now = NONE

    def is_sampled(self, index: int) -> bool:
        """Whether a case is captured independently of the fake stage. Each stage is sampled equally."""
        return index // len(self.stages) % SAMPLED == 0

    def is_called(self, index: int) -> bool:
        """Whether a case is for the oracles that call what was captured, or that have stages of their own."""
        wanted = calls_of(self.oracles) or any(oracle.stages for oracle in self._others())
        return index % CALLED == 0 and bool(wanted and called_of(self.stages))

    def called_case(self, index: int) -> CalledCase | None:
        """A case for the oracles that call what was captured; None for all other cases."""
        return CalledCase(Draw(index, profile=CAPTURES), self.stages_of(index)[-1]) if self.is_called(index) else None

    def task_of(self, index: int, case: Case | None) -> CaseTask:
        """The task of a case, which the guide has chosen, if there is one."""
        called = self.called_case(index)
        return CaseTask(
            profile=self.profile,
            seed=self.seed,
            index=index,
            stages=self.stages_of(index),
            semantics=self.semantics,
            origin=case.origin if case is not None else (None if called is None else called.fresh),
            screen=self.screen and called is None,
            capture=self.is_sampled(index),
            known=case.known if case is not None else frozenset(),
            alarms=case.alarms if case is not None else frozenset(),
            oracles=self.oracles,
            called=(*CHEAP_TO_CALL, *(("inductor",) if self.calls_inductor(index) else ())),
        )

    def calls_inductor(self, index: int) -> bool:
        """Whether a case is called in inductor. Campaigns with the stage `compile` do that too, because inductor is the
        default backend of torch.compile. If inductor is the only stage, all cases for these oracles are called.
        """
        wanted = self.is_called(index) and not {"compile", "inductor"}.isdisjoint(self.stages)
        return wanted and (
            self.stages == ("inductor",) or index // CALLED % CALLED_IN_INDUCTOR == CALLED_IN_INDUCTOR - 1
        )

    def own_stage_of(self, index: int) -> OwnStage | None:
        """The stage in which an oracle makes its own run of a case; None for all other cases. It is every called case
        if only that oracle is chosen besides the capture oracle.
        """
        others, number = self._others(), index // CALLED
        for stages in (oracle.stages for oracle in others if self.is_called(index)):
            for stage in stages[number // (stages[0].every or 1) % len(stages) :][:1] if stages else ():
                chosen = stage.every and not set(stage.beside).isdisjoint(self.stages)
                if chosen and (len(others) == 1 or number % stage.every == stage.turn):
                    return stage
        return None

    def _others(self) -> tuple[Oracle, ...]:
        return tuple(one for one in ORACLES if one.name in self.oracles and one.name not in CAPTURE)

    def seconds_of(self, task: CaseTask) -> float:
        """The CPU seconds that a case may take."""
        return self.case_seconds * max(SLOWER if "inductor" in task.called else 1, *map(_slower, task.stages))

    def stages_of(self, index: int) -> tuple[Stage, ...]:
        """The stages of a case.

        A case that is captured because it fails in the fake stage skips the slow stages: other stages show the same
        failure.
        """
        stages = self.stages
        if self.calls_inductor(index):
            return (*(stage for stage in stages if stage == "compile"), "inductor")
        own = self.own_stage_of(index)
        if own is not None:
            return (own.name,)
        if self.is_called(index):
            stages = tuple(stage for stage in stages if stage in CHEAP_TO_CALL)
        if not self.in_turn:
            return stages
        if self.screen and not self.is_sampled(index):
            stages = tuple(stage for stage in stages if stage not in SLOW_TO_START) or stages
        return (stages[index % len(stages)],)


def confirm_seconds(suspect: Suspect) -> float:
    """The CPU seconds that a confirmation may take."""
    return CONFIRM_SECONDS * (SLOWER if suspect.stage == "inductor" and suspect.calls else _slower(suspect.stage))


def _slower(stage: Stage) -> int:
    own = own_stage(stage)
    return 1 if own is None else own.slower


class Upcoming:
    """The cases to come. `index` is the next one, None if there is none."""

    def __init__(self, indices: Iterator[int]) -> None:
        self._indices = indices
        self.index = next(indices, None)

    def take(self) -> int:
        """Return the next case, which must exist, and advance."""
        assert self.index is not None
        taken, self.index = self.index, next(self._indices, None)
        return taken
