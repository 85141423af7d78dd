"""What is asked of a campaign, and which case comes next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddefuzz.campaign.budget import WHOLE, Budget, Shard
from ddefuzz.execute.protocol import Semantics, Stage

CASE_SECONDS = 30.0
"""Limit of one case in all its stages, unless a plan has its own."""

ANYWAY = 16
"""With a screen, every sixteenth case (of each stage) is captured even if the fake stage takes it."""

SLOW_TO_START: frozenset[Stage] = frozenset({"inductor"})
"""Stages that cases which the screen refuses, and findings of other stages, are spared.

The first use costs 2.5 CPU seconds in every process.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is asked of a campaign. `start` is the first case, for one that is resumed.

    With `in_turn` each case goes through one of the stages, by its index; else through all of them. With `screen` only
    if the fake stage refuses it, and every `ANYWAY`-th case besides. `guided` cases come from a `Guide`.
    """

    profile: str
    seed: int
    budget: Budget
    jobs: int
    stages: tuple[Stage, ...]
    semantics: tuple[Semantics, ...]
    shard: Shard = WHOLE
    start: int = 0
    minimize: bool = True
    case_seconds: float = CASE_SECONDS
    in_turn: bool = False
    screen: bool = False
    guided: bool = False

    def captures_anyway(self, index: int) -> bool:
        """Whether a case goes through its stages whatever the screen says: each stage has its turn in that, too."""
        return index // len(self.stages) % ANYWAY == 0

    def stages_of(self, index: int) -> tuple[Stage, ...]:
        """The stages that a case goes through; what the screen refuses, other stages show as well as the slow ones."""
        if not self.in_turn:
            return self.stages
        stages = self.stages
        if self.screen and not self.captures_anyway(index):
            stages = tuple(stage for stage in stages if stage not in SLOW_TO_START) or stages
        return (stages[index % len(stages)],)


class Upcoming:
    """The cases that are to come: the next one's `index`, None when there is none, which stays until it is taken."""

    def __init__(self, indices: Iterator[int]) -> None:
        self._indices = indices
        self.index = next(indices, None)

    def take(self) -> int:
        """The next case, which must be there."""
        assert self.index is not None
        taken, self.index = self.index, next(self._indices, None)
        return taken
