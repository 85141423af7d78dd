"""The tasks of a worker of the study, for a process that does not import torch."""

from __future__ import annotations

from ddefuzz.checking.study import Group, Plain
from ddefuzz.execute.protocol import Subject
from ddefuzz.execute.worker import late


def plain_export(subject: Subject) -> Plain:
    """A plain export."""
    ended: Plain = late("ddefuzz.checking.plain_export").plain_export(subject)
    return ended


def plain_draft(subject: Subject) -> Plain:
    """torch's draft_export."""
    ended: Plain = late("ddefuzz.checking.plain_export").plain_draft(subject)
    return ended


def names_of(group: Group) -> tuple[str, ...]:
    """The names of the models of a group."""
    found: tuple[str, ...] = late(group.module).names()
    return found
