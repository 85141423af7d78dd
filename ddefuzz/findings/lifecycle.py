"""The states of a finding, and the table of allowed changes between them. Every change can be undone.

As in syzbot, a finding is open until it is fixed in every tracked version. If a bug comes back in a version in which it
was fixed, it becomes a new finding: the same signature with the next sequence number (`recurs`).
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from ddefuzz.errors import InputError

State: TypeAlias = Literal["open", "known", "fixed", "ignored", "dup"]
STATES: tuple[State, ...] = get_args(State)

MEANING: dict[State, str] = {
    "open": "not reviewed yet",
    "known": "reviewed and accepted as a bug; expected to fail until it is fixed",
    "fixed": "fixed in the versions that it names; a failure in one of them is a new finding",
    "ignored": "not worth reporting, such as intended behaviour",
    "dup": "the same bug as another finding",
}

TRANSITIONS: frozenset[tuple[State, State]] = frozenset(
    {
        ("open", "known"),
        ("known", "open"),
        ("open", "fixed"),
        ("fixed", "open"),
        ("known", "fixed"),
        ("fixed", "known"),
        ("open", "ignored"),
        ("ignored", "open"),
        ("known", "ignored"),
        ("ignored", "known"),
        ("open", "dup"),
        ("dup", "open"),
        ("known", "dup"),
        ("dup", "known"),
        ("ignored", "dup"),
        ("dup", "ignored"),
    }
)
"""Allowed changes, as (from, to). For every change the reverse change is allowed too."""


def check_transition(finding_id: str, before: State, after: State) -> None:
    """Raise `InputError` unless the table allows this change."""
    if (before, after) not in TRANSITIONS:
        allowed = sorted(to for start, to in TRANSITIONS if start == before)
        raise InputError(f"{finding_id}: cannot go from {before!r} to {after!r}, expected one of {', '.join(allowed)}")


def recurs(state: State, fixed_in: tuple[str, ...], torch: str) -> bool:
    """Whether a sighting under `torch` is a return of a fixed bug, and not a sighting in a version before the fix.

    A finding that is fixed without a version is fixed in all versions. The build `2.13.0+cpu` counts as 2.13.0.
    """
    return state == "fixed" and (not fixed_in or _release(torch) in map(_release, fixed_in))


def _release(version: str) -> str:
    return version.partition("+")[0]
