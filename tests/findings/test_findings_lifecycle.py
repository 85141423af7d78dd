"""The table of state changes."""

from __future__ import annotations

from itertools import product

import pytest

from ddefuzz.errors import InputError
from ddefuzz.findings.lifecycle import MEANING, STATES, TRANSITIONS, State, check_transition, recurs


@pytest.mark.parametrize(("before", "after"), sorted(TRANSITIONS))
def test_every_change_can_be_undone(before: State, after: State) -> None:
    check_transition("dde-1", before, after)
    check_transition("dde-1", after, before)


@pytest.mark.parametrize(("before", "after"), sorted(set(product(STATES, STATES)) - TRANSITIONS))
def test_every_other_change_says_what_is_allowed(before: State, after: State) -> None:
    with pytest.raises(InputError, match=f"^dde-1: cannot go from '{before}' to '{after}', expected one of "):
        check_transition("dde-1", before, after)


def test_every_state_is_explained_and_can_be_reached() -> None:
    assert set(MEANING) == set(STATES)
    assert {after for _, after in TRANSITIONS} == set(STATES)


@pytest.mark.parametrize(
    ("state", "fixed_in", "torch", "expected"),
    [
        ("fixed", ("2.13.0",), "2.13.0+cpu", True),
        ("fixed", ("2.13.0+cu128",), "2.13.0+cpu", True),
        ("fixed", ("2.13.0",), "2.13.1+cpu", False),
        ("fixed", ("2.15.0",), "2.15.0", True),
        ("fixed", ("2.15.0",), "2.13.0", False),  # an older version, where it was never fixed
        ("fixed", (), "2.13.0", True),
        ("known", (), "2.13.0", False),
        ("open", ("2.15.0",), "2.15.0", False),
    ],
)
def test_only_what_was_fixed_in_that_version_recurs(
    state: State, fixed_in: tuple[str, ...], torch: str, expected: bool
) -> None:
    assert recurs(state, fixed_in, torch) is expected
