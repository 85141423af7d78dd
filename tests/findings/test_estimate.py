"""Species estimates, against values computed by hand and those that scikit-bio's tests take from EstimateS."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddefuzz.findings.guard_sites import chao1, chao1_interval, chao1_variance, estimate, good_turing

SINGLES_AND_DOUBLES = [0, 1, 1, 4, 2, 5, 2, 4, 1, 2]
NO_SINGLES = [0, 2, 2, 4, 5, 0]
NO_DOUBLES = [0, 1, 1, 4, 5, 0]


@pytest.mark.parametrize(
    ("cases", "total", "low", "high"),
    [
        (SINGLES_AND_DOUBLES, 9.75, 9.07, 17.45),
        (NO_SINGLES, 4, 4, 4.95),
        (NO_DOUBLES, 5, 4.08, 17.27),
        ([1, 2, 3], 3, 3, 3),
    ],
)
def test_chao1_agrees_with_estimates(cases: list[int], total: float, low: float, high: float) -> None:
    found = estimate(cases)
    assert found.total == total
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


def test_by_hand() -> None:
    # S = 10, f1 = 4, f2 = 1: 10 + 4*3/(2*2); 4*3/4 + 4*49/16 + 16*1*9/(4*16).
    assert chao1(10, 4, 1) == 13
    assert chao1_variance(10, 4, 1) == 3 + 12.25 + 2.25
    # f2 = 0: 10 + 4*3/2; 4*3/2 + 4*49/4 - 256/(4*16).
    assert chao1(10, 4, 0) == 16
    assert chao1_variance(10, 4, 0) == 6 + 49 - 4
    # T = 3, var/T² = 17.5/9: K = exp(1.96 √log(2.9444)) = 7.665.
    assert chao1_interval(10, 4, 1, 20) == pytest.approx((10 + 3 / 7.665, 10 + 3 * 7.665), rel=1e-3)
    assert good_turing(4, 20) == 0.2


def test_of_nothing_nothing_is_known() -> None:
    nothing = estimate([])
    assert (nothing.seen, nothing.next_new, nothing.total, nothing.low, nothing.high) == (0, None, 0, 0, 0)


@given(st.lists(st.integers(0, 5) | st.integers(0, 10_000), max_size=300))
def test_there_are_at_least_as_many_as_were_seen(cases: list[int]) -> None:
    found = estimate(cases)
    assert found.seen <= found.low <= found.high
    assert found.seen <= found.total
    assert not found.once or found.low <= found.total <= found.high
    assert found.next_new is None or 0 <= found.next_new <= 1
