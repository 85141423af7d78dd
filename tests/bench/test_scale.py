"""What more CPU would bring: expected numbers of sites, what they cost, and how many workers drivers keep busy."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import combinations
from math import comb
from pathlib import Path
from statistics import mean

import pytest

from ci.bench.scale import Counts, Limit, Service
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.findings.model import Progress, stamp
from ddefuzz.findings.url import DatabaseUrl, parse_url
from tests.bench.typed_bench import invoked

REACHED = ({0}, {0, 1}, {0, 1, 2, 3}, {4, 5}, {5})  # the cases that reach each of five sites, of six cases
COUNTS = Counts("sites", tuple(map(len, REACHED)), 6, 2.0)


@pytest.mark.parametrize("drawn", [1, 2, 3, 4, 5, 6])
def test_sites_of_fewer_cases_are_the_mean_over_all_ways_to_draw_them(drawn: int) -> None:
    ways = list(combinations(range(6), drawn))
    assert len(ways) == comb(6, drawn)
    counted = mean(sum(bool(cases & set(way)) for cases in REACHED) for way in ways)
    assert COUNTS.reached(drawn) == pytest.approx(counted)


def test_more_cases_bring_less_and_less_up_to_the_estimate() -> None:
    known = COUNTS.estimated
    assert known.total > known.seen == COUNTS.reached(6)
    many = [COUNTS.reached(cases) for cases in (6, 12, 24, 48, 10**6)]
    assert many == sorted(many)
    assert many[-1] == pytest.approx(known.total)
    assert COUNTS.cost(2) < COUNTS.cost(10) < COUNTS.cost(20)
    cases = round(COUNTS.cpu_for(0.9) / COUNTS.cpu_seconds)
    assert COUNTS.reached(cases - 1) < 0.9 * known.total <= COUNTS.reached(cases)


def test_without_a_site_that_was_seen_once_there_is_none_more() -> None:
    counts = Counts("sites", (2, 3, 4), 10, 1.0)
    assert (counts.reached(10), counts.reached(1000), counts.cost(10)) == (3, 3, float("inf"))


def test_drivers_or_the_database_limit_the_workers() -> None:
    service = Service(case=400.0, driver=2.0, store=0.5, follow_up=1.0)
    assert service.limit(2) == Limit(2, 400.0, "drivers")
    assert service.limit(8) == Limit(8, 800.0, "database")
    assert service.rate(100, 2) == pytest.approx(250)
    assert service.rate(10_000, 2) == pytest.approx(1000)


def _recorded(path: Path, numbers: Iterable[int]) -> DatabaseUrl:
    """A database with one campaign, sites that so many of its cases reached, and its counts at three times."""
    url = parse_url(f"sqlite:///{path}")
    when = datetime(2026, 11, 30, tzinfo=UTC)
    with Database.open(url) as database:
        number = database.start_campaign(profile="default", seed=0, generator="1", options={}, when=when)
        sites = [
            SiteRecord("Python", "torch/a.py", line, "f", "guard_or_false", {"False": cases}, cases=cases)
            for line, cases in enumerate(numbers)
        ]
        sites.append(SiteRecord("C++", "g", 0, "g", "guard_bool", raised=3, cases=3, blamed=("g",)))
        database.add_sites("2.13.0+cpu", sites, campaign=number)
        for minute in (1, 2, 3):
            database.add_progress(
                number,
                Progress(
                    when=stamp(when + timedelta(minutes=minute)), cases=minute * 20, seconds=60.0 * minute,
                    cpu_seconds=50.0 * minute, fallback_sites=minute, dde_sites=1, findings=minute,
                ),
            )  # fmt: skip
    return url


def test_a_campaign_is_read_and_drawn(tmp_path: Path) -> None:
    url = _recorded(tmp_path / "one.db", (1, 1, 2, 40))
    picture = tmp_path / "scale.svg"
    said = json.loads(invoked("scale", "--db", str(url), "--format", "json", "--output", f"svg={picture}"))
    fallbacks, errors = said["sites"]
    assert (fallbacks["seen"], errors["seen"]) == (4, 1)
    assert fallbacks["total"] == pytest.approx(4 + 2 * 1 / (2 * 2))
    assert (said["cases"], said["cpu_seconds"], said["torch"]) == (60, 150.0, "2.13.0+cpu")
    assert "call sites of errors" in picture.read_text()


def test_a_database_of_no_campaign_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/none.db"
    Database.open(parse_url(url)).close()
    with pytest.raises(InputError, match="found 0 campaigns, and sites of 0 versions of torch, expected one of each"):
        invoked("scale", "--db", url)
