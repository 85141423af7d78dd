"""The tasks of a worker, for a process that does not import torch."""

from __future__ import annotations

from ddefuzz.checking.changes import Candidate, Described, Trialed
from ddefuzz.execute.protocol import Subject
from ddefuzz.execute.worker import late


def try_change(candidate: Candidate) -> Trialed:
    """`trial.try_change` as a task."""
    tried: Trialed = late("ddefuzz.checking.trial").try_change(candidate)
    return tried


def describe(subject: Subject) -> Described:
    """`trial.describe` as a task."""
    described: Described = late("ddefuzz.checking.trial").describe(subject)
    return described
