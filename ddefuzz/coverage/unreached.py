"""Why a guard site of torch's source is not reached undecided, where reading that source gave the reason."""

from __future__ import annotations

from typing import NamedTuple

from ddefuzz.coverage.inventory import GuardCall


class Unreached(NamedTuple):
    """A reason; it is that of every call in `file` whose function is `where` or whose text has `where` in it."""

    file: str
    where: str
    reason: str


UNREACHED: tuple[Unreached, ...] = ()
"""For torch 2.13.0; the first row that fits is taken. A site that is reached needs none: its row is then ignored."""


def reason_for(call: GuardCall) -> str:
    """The reason, empty where none is known."""
    for row in UNREACHED:
        if row.file == call.file and (row.where == call.function or row.where in call.text):
            return row.reason
    return ""
