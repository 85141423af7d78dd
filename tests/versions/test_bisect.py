"""The search for the version in which a finding changed, over statuses that are given."""

from __future__ import annotations

import pytest

from ddefuzz.versions.bisect import Bisection, bisected
from ddefuzz.versions.model import Cell, Status

STATUSES: dict[str, Status] = {"f": "fails", "p": "passes", "m": "moved", "-": "not judged"}


def searched(statuses: str) -> Bisection:
    """The search among versions 0, 1, 2 … that have these statuses, by their first letters."""
    return bisected("dde-1", [str(at) for at in range(len(statuses))], lambda at: Cell(STATUSES[statuses[at]]))


@pytest.mark.parametrize(
    ("statuses", "before", "after"),
    [
        ("fffpp", "2", "3"),
        ("fpppp", "0", "1"),
        ("ppppf", "3", "4"),
        ("fm", "0", "1"),
        ("--fff", "1", "2"),  # older versions have no such op
        ("ff-p", "1", "3"),
        ("f---p", "0", "4"),
        ("f-f-p-p", "2", "4"),
    ],
)
def test_the_change_is_between_two_versions(statuses: str, before: str, after: str) -> None:
    found = searched(statuses)
    assert (found.before, found.after) == (before, after)
    assert STATUSES[statuses[int(after)]] in str(found)


def test_few_versions_are_run() -> None:
    assert len(searched("f" * 200 + "p" * 300).runs) <= 11


def test_the_same_at_both_ends_is_no_change() -> None:
    assert str(searched("fpf")) == "dde-1: fails in the oldest and in the newest: no change to look for"
