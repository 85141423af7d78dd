"""The budget is shared between drawing and follow-ups."""

from __future__ import annotations

from ddefuzz.campaign.campaign import FIRST_GUESS, Pace
from ddefuzz.campaign.plan import Budget


def test_follow_ups_have_half_of_the_time() -> None:
    pace = Pace(Budget(cases=10), 2)
    assert pace.is_turn_of_follow_ups(0.0)
    pace.followed(3.0)
    assert not pace.is_turn_of_follow_ups(5.9)
    assert pace.is_turn_of_follow_ups(6.0)


def test_a_number_of_cases_is_always_drawn() -> None:
    assert Pace(Budget(cases=10), 2).may_draw(1e9, 1e9, 1000)


def test_drawing_ends_when_what_waits_needs_the_rest_of_the_seconds() -> None:
    pace = Pace(Budget(seconds=100), 2)
    assert pace.may_draw(94.9, 0.0, 0)
    assert not pace.may_draw(95.0, 0.0, 0)
    pace.followed(1.0)
    pace.followed(3.0)
    assert pace.may_draw(84.9, 0.0, 10)
    assert not pace.may_draw(85.0, 0.0, 10)


def test_what_waits_takes_as_long_as_cpu_seconds_have_taken() -> None:
    pace = Pace(Budget(seconds=100), 2)
    pace.followed(2.0)
    assert pace.may_draw(74.0, 74.0, 10)
    assert not pace.may_draw(76.0, 76.0, 10)


def test_drawing_ends_when_what_waits_needs_the_rest_of_the_cpu_seconds() -> None:
    pace = Pace(Budget(cpu_seconds=600), 2)
    assert pace.may_draw(1e9, 599.0, 0)
    assert not pace.may_draw(0.0, 600.0, 0)
    assert pace.may_draw(0.0, 599.0 - 10 * FIRST_GUESS, 10)
    assert not pace.may_draw(0.0, 600.0 - 10 * FIRST_GUESS, 10)
