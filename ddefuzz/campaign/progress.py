"""Saves the counts of a running campaign from time to time, so that other processes can show its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from ddefuzz.campaign.summary import Tally
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Progress, stamp

EVERY_SECONDS = 10.0
"""The least time between two records of one campaign."""


@dataclass(slots=True)
class ProgressLog:
    """Where the counts of one campaign go. `seconds` are those since its start, `now` is the current date."""

    database: Database
    campaign: int
    seconds: Callable[[], float]
    now: Callable[[], datetime]
    due: float = 0.0

    def save_if_due(self, tally: Tally) -> None:
        """Save the counts, unless they were saved a moment ago."""
        if self.seconds() >= self.due:
            self.save(tally)

    def save(self, tally: Tally) -> None:
        """Save the counts."""
        seconds, sites = self.seconds(), tally.ledger.count()
        self.due = seconds + EVERY_SECONDS
        counts = Progress(
            when=stamp(self.now()),
            cases=len(tally.digests),
            seconds=round(seconds, 3),
            cpu_seconds=round(tally.total_cpu_seconds(), 3),
            fallback_sites=sites.fallback,
            dde_sites=sites.dde,
            findings=len(tally.findings),
        )
        self.database.add_progress(self.campaign, counts)
