"""Tasks for workers in tests. They are in a module because a worker has to import them."""

from __future__ import annotations

import os

from ddefuzz.campaign.tasks import CaseResult, CaseTask
from ddefuzz.execute.journal import Entry
from ddefuzz.execute.worker import note

EIGHT_GB = 8_000_000_000


def allocate(task: CaseTask) -> CaseResult:
    """As if a case wanted 8 GB."""
    note(Entry(task.index, "fake"))
    return CaseResult(task.index, str(len(bytearray(EIGHT_GB))))


def process_of(word: str) -> str:
    """The word, and who said it."""
    return f"{word} {os.getpid()}"
