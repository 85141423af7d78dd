"""The states of a finding: one table with their meaning, what replay expects, and the allowed changes.

As in syzbot, a finding is open until it is fixed in every tracked version of torch. If a bug comes back in a version in
which it was fixed, or in a later one, it becomes a new finding: the same signature with the next sequence number
(`recurs`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from packaging.version import Version

from ddefuzz.errors import InputError

State: TypeAlias = Literal[
    "new",
    "triaged",
    "reported",
    "fix-pending",
    "fixed",
    "by-design",
    "wont-fix",
    "duplicate",
    "invalid",
    "flaky",
]

Expects: TypeAlias = Literal["fails", "passes", "either"]
"""What replay expects of the programs of a finding. `either`: the result is shown and never makes a replay fail."""


class StateRow(NamedTuple):
    """One state. `followed_up` says whether campaigns minimize and confirm findings in this state.

    `decided` says whether a person has decided that a campaign need not fail on it. `to` are the states that may come
    next. `duplicate` is set by `findings dup` and left by `findings undup`, because it needs another finding.
    """

    state: State
    meaning: str
    followed_up: bool
    expects: Expects
    decided: bool
    to: tuple[State, ...]


_DECISIONS: tuple[State, ...] = ("reported", "fix-pending", "fixed", "by-design", "wont-fix", "duplicate", "invalid")

TABLE: tuple[StateRow, ...] = (
    StateRow("new", "not reviewed yet", True, "fails", False, ("triaged", *_DECISIONS, "flaky")),
    StateRow(
        "triaged",
        "reviewed, and the failure is real",
        True,
        "fails",
        True,
        ("new", *_DECISIONS, "flaky"),
    ),
    StateRow(
        "reported", "reported to PyTorch; its link names the issue", True, "fails", True, ("triaged", *_DECISIONS[1:])
    ),
    StateRow(
        "fix-pending",
        "a fix exists that no tracked version of torch has yet",
        False,
        "either",
        True,
        ("triaged", "reported", "fixed", "wont-fix"),
    ),
    StateRow(
        "fixed",
        "fixed in the versions that it names and in later ones; a failure there is a new finding",
        False,
        "passes",
        True,
        ("triaged", "reported", "fix-pending"),
    ),
    StateRow("by-design", "intended behaviour of PyTorch", False, "fails", True, ("new", "triaged", "reported")),
    StateRow("wont-fix", "a bug that nobody will fix", False, "fails", True, ("new", "triaged", "reported")),
    StateRow("duplicate", "the same bug as another finding", False, "fails", True, ()),
    StateRow("invalid", "no bug: ddefuzz or the program is wrong", False, "either", True, ("new", "triaged")),
    StateRow("flaky", "fails in some runs only", False, "either", True, ("new", "triaged", "invalid")),
)

ROWS: dict[State, StateRow] = {row.state: row for row in TABLE}
STATES: tuple[State, ...] = tuple(ROWS)


def check_transition(finding_id: str, before: State, after: State) -> None:
    """Raise `InputError` unless the table allows this change."""
    allowed = ROWS[before].to
    if after not in allowed:
        expected = f"one of {', '.join(allowed)}" if allowed else f"`findings undup {finding_id}` first"
        raise InputError(f"{finding_id}: cannot go from {before!r} to {after!r}, expected {expected}")


def said_of(state: State, fixed_in: tuple[str, ...]) -> str:
    """The state as lists show it: `fixed in 2.15.0`."""
    return f"{state} in {', '.join(fixed_in)}" if state == "fixed" and fixed_in else state


def recurs(state: State, fixed_in: tuple[str, ...], torch: str) -> bool:
    """Whether a sighting under `torch` is a return of a fixed bug, and not a sighting in a version before the fix."""
    return state == "fixed" and has_fix(fixed_in, torch)


def has_fix(fixed_in: Iterable[str], torch: str) -> bool:
    """Whether a version of torch has a fix: one that is named, or a later one than all of these.

    A finding that is fixed without a version is fixed in all versions. The build `2.13.0+cpu` counts as 2.13.0.
    """
    versions = tuple(fixed_in)
    return in_versions(versions, torch) or version_key(torch) > max(map(version_key, versions))


def in_versions(versions: Iterable[str], torch: str) -> bool:
    """Whether a version of torch is among these. None of them means all versions."""
    releases = {_release(version) for version in versions}
    return not releases or _release(torch) in releases


def is_open(state: State, fixed_in: tuple[str, ...], tracked: Iterable[str]) -> bool:
    """Whether there is still something to do: a bug that is not fixed in every tracked version of torch."""
    if state == "fixed":
        return any(not has_fix(fixed_in, version) for version in tracked)
    return state in ("new", "triaged", "reported", "fix-pending")


def version_key(torch: str) -> Version:
    """The key that sorts versions of torch: a nightly or candidate comes before its release. A text that is no version
    comes first.
    """
    try:
        return Version(torch)
    except ValueError:  # `InvalidVersion` too; numbers of thousands of digits
        return Version("0.dev0")


def _release(version: str) -> str:
    return version.partition("+")[0]
