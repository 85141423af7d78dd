"""Budgets and shards: parsing, errors, and that shards partition the cases."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddefuzz.campaign.guide import Shard
from ddefuzz.campaign.plan import Budget, Plan, parse_budget, parse_shard
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Semantics


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


def plan(budget: Budget, shard: Shard, share: bool = False) -> Plan:
    return Plan("default", 1, budget, 1, ("export",), (Semantics(),), shard, share=share, round_size=4)


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/b", "1/0", f"1/{'9' * 5000}"])
def test_what_is_no_shard_says_what_one_is(text: str) -> None:
    with pytest.raises(InputError, match=r"--shard: found .* expected i/n"):
        parse_shard(text)


@settings(deadline=None, database=None, derandomize=True)
@given(total=st.integers(1, 7), cases=st.integers(1, 60))
def test_shards_share_out_every_case_once(total: int, cases: int) -> None:
    for share in (False, True):
        parts = [list(plan(Budget(cases=cases), Shard(index, total), share).cases()) for index in range(1, total + 1)]
        assert sorted(case for part in parts for case in part) == list(range(cases))
        assert all(part == sorted(part) for part in parts)


def test_a_time_budget_has_no_last_case() -> None:
    assert list(islice(plan(Budget(seconds=1), Shard(2, 2)).cases(), 3)) == [1, 3, 5]


def test_the_rounds_of_shards_that_share_change_hands() -> None:
    assert [Shard(1, 3).round(number) for number in range(4)] == [0, 4, 8, 9]
    assert list(islice(plan(Budget(seconds=1), Shard(2, 2), share=True).cases(), 5)) == [4, 5, 6, 7, 8]


def test_drawing_stops_before_the_budget_ends() -> None:
    assert Budget(seconds=60).drawing_seconds == 55
    assert Budget(seconds=10).drawing_seconds == 9
    assert Budget(cases=3).drawing_seconds is None
