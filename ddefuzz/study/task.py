"""The tasks of a worker of the study, for a process that does not import torch."""

from __future__ import annotations

from ddefuzz.execute.protocol import Subject
from ddefuzz.execute.worker import late
from ddefuzz.study.model import Group, Plain


def plain_export(subject: Subject) -> Plain:
    """A plain export."""
    ended: Plain = late("ddefuzz.study.plain").plain_export(subject)
    return ended


def plain_draft(subject: Subject) -> Plain:
    """torch's draft_export."""
    ended: Plain = late("ddefuzz.study.plain").plain_draft(subject)
    return ended


def names_of(group: Group) -> tuple[str, ...]:
    """The names of the models of a group."""
    found: tuple[str, ...] = late(group.module).names()
    return found
