"""Divides a budget between drawing cases and following up their findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ddefuzz.campaign.budget import Budget

FOLLOW_UP_SHARE: Final = 0.5
"""The fraction of CPU time for minimizing and confirming, as long as there is something to draw."""

FIRST_GUESS: Final = 0.5
"""CPU seconds of one follow-up, before any was measured."""


@dataclass(slots=True)
class Pace:
    """The cost of follow-ups so far, and the estimate for those that wait."""

    budget: Budget
    jobs: int
    spent: float = 0.0
    done: int = 0

    def followed(self, cpu_seconds: float) -> None:
        """Count a minimization or a confirmation."""
        self.spent += cpu_seconds
        self.done += 1

    def is_turn_of_follow_ups(self, cpu_seconds: float) -> bool:
        """Whether follow-ups have had less than their share of all CPU seconds so far."""
        return self.spent <= FOLLOW_UP_SHARE * cpu_seconds

    def may_draw(self, seconds: float, cpu_seconds: float, waiting: int) -> bool:
        """Whether the budget allows more than the `waiting` follow-ups."""
        needed = waiting * (self.spent / self.done if self.done else FIRST_GUESS)
        budget = self.budget
        if budget.cpu_seconds is not None and budget.cpu_seconds - cpu_seconds <= needed:
            return False
        if budget.drawing_seconds is None:
            return True
        # Workers also start and wait, so a second of wall-clock time gives less than `jobs` CPU seconds.
        a_second = cpu_seconds / seconds if cpu_seconds else self.jobs
        return budget.drawing_seconds - seconds > needed / a_second
