"""Budgets and shards: parsing, errors, and that shards partition the cases."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddefuzz.campaign.plan import Budget, Shard, parse_budget, parse_shard
from ddefuzz.errors import InputError


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("60s", Budget(seconds=60)),
        ("10m", Budget(seconds=600)),
        ("1h30m", Budget(seconds=5400)),
        ("1.5s", Budget(seconds=1.5)),
        ("400x", Budget(cases=400)),
    ],
)
def test_budgets(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize(
    "text",
    [
        "",
        "60",
        "x",
        "0x",
        "0s",
        "-5s",
        "10 m",
        "1d",
        "5m10",
        "\u0661s",
        "9" * 5000 + "x",
        "9" * 5000 + "s",
        "1s" * 5000,
    ],
)
def test_what_is_no_budget_says_what_one_is(text: str) -> None:
    with pytest.raises(InputError, match=r"--budget: found .* expected a time such as 90s"):
        parse_budget(text)


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/b", "1/0", f"1/{'9' * 5000}"])
def test_what_is_no_shard_says_what_one_is(text: str) -> None:
    with pytest.raises(InputError, match=r"--shard: found .* expected i/n"):
        parse_shard(text)


@settings(deadline=None, database=None, derandomize=True)
@given(total=st.integers(1, 7), cases=st.integers(1, 60))
def test_shards_share_out_every_case_once(total: int, cases: int) -> None:
    budget = Budget(cases=cases)
    shares = [list(Shard(index, total).cases(budget)) for index in range(1, total + 1)]
    assert sorted(case for share in shares for case in share) == list(range(cases))


def test_a_time_budget_has_no_last_case() -> None:
    assert list(islice(Shard(2, 2).cases(Budget(seconds=1)), 3)) == [1, 3, 5]


def test_drawing_stops_before_the_budget_ends() -> None:
    assert Budget(seconds=60).drawing_seconds == 55
    assert Budget(seconds=10).drawing_seconds == 9
    assert Budget(cases=3).drawing_seconds is None
