"""The table of states."""

from __future__ import annotations

from itertools import product

import pytest

from ddefuzz.errors import InputError
from ddefuzz.findings.lifecycle import ROWS, STATES, State, check_transition, is_open, recurs

ALLOWED = {(row.state, after) for row in ROWS.values() for after in row.to}


@pytest.mark.parametrize(("before", "after"), sorted(set(product(STATES, STATES)) - ALLOWED))
def test_every_other_change_says_what_is_allowed(before: State, after: State) -> None:
    expected = "`findings undup dde-1` first" if before == "duplicate" else "one of "
    with pytest.raises(InputError, match=f"^dde-1: cannot go from '{before}' to '{after}', expected {expected}"):
        check_transition("dde-1", before, after)


def test_every_state_can_be_reached_and_left() -> None:
    assert {after for _, after in ALLOWED} == set(STATES)
    assert {before for before, _ in ALLOWED} == set(STATES) - {"duplicate"}


@pytest.mark.parametrize(
    ("state", "fixed_in", "torch", "expected"),
    [
        ("fixed", ("2.13.0",), "2.13.0+cpu", True),
        ("fixed", ("2.13.0+cu128",), "2.13.0+cpu", True),
        ("fixed", ("2.13.0",), "2.13.1+cpu", True),  # what is later has the fix
        ("fixed", ("2.13.0",), "2.14.0.dev20260101", True),
        ("fixed", ("2.14.1", "2.15.0"), "2.14.2", False),  # a release may miss what its successor has
        ("fixed", ("2.15.0",), "2.15.0", True),
        ("fixed", ("2.15.0",), "2.13.0", False),  # an older version, where it was never fixed
        ("fixed", (), "2.13.0", True),
        ("triaged", (), "2.13.0", False),
        ("new", ("2.15.0",), "2.15.0", False),
    ],
)
def test_only_what_was_fixed_in_that_version_or_before_recurs(
    state: State, fixed_in: tuple[str, ...], torch: str, expected: bool
) -> None:
    assert recurs(state, fixed_in, torch) is expected


@pytest.mark.parametrize(
    ("state", "fixed_in", "expected"),
    [
        ("new", (), True),
        ("fix-pending", (), True),
        ("fixed", ("2.15.0",), True),  # not in 2.13.0
        ("fixed", ("2.13.0",), False),
        ("fixed", ("2.13.0", "2.15.0"), False),
        ("fixed", (), False),
        ("by-design", (), False),
        ("duplicate", (), False),
    ],
)
def test_a_finding_is_open_until_it_is_fixed_everywhere(
    state: State, fixed_in: tuple[str, ...], expected: bool
) -> None:
    assert is_open(state, fixed_in, ["2.13.0+cpu", "2.15.0"]) is expected
