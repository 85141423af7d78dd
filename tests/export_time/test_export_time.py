"""How the cost of an export is counted and fitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from ddefuzz.cli.bench_export_time import export_time_page
from ddefuzz.cli.output import Page
from ddefuzz.export_time.measure import measured
from ddefuzz.export_time.model import KNOBS, STEEP, WORKLOADS, Point, growth, series_of
from ddefuzz.export_time.workloads import MAKE
from ddefuzz.instrument.counting import pattern
from ddefuzz.instrument.torch_api import EVALUATE_EXPR


def point(n: int, asked: int, knobs: str = "default", seconds: float = 1.0) -> Point:
    return Point(
        workload="cat",
        n=n,
        knobs=knobs,
        torch="2.13.0",
        seconds=seconds,
        peak_mb=300.0,
        counts={"evaluate_expr": asked, "repeated": asked // 2},
        hits={},
        nodes=n,
        assertions=n,
        graph="a" if knobs == "default" else "b",
        agrees=True,
        patterns={"u >= 0": (asked, asked // 2)},
        askers={"torch/_refs/__init__.py:cat": asked},
    )


@pytest.mark.parametrize("power", [1.0, 1.4, 2.0])
def test_the_exponent_of_a_power_is_found(power: float) -> None:
    fit = growth("x", [(n, n**power) for n in (5, 10, 20, 40, 80)])
    assert fit is not None
    assert fit.exponent == pytest.approx(power, abs=1e-3)
    assert fit.interval == pytest.approx((power, power), abs=1e-3)


def test_two_points_have_no_interval_and_one_no_exponent() -> None:
    two = growth("x", [(5, 5.0), (10, 20.0)])
    assert two is not None
    assert (two.exponent, two.interval) == (2.0, None)
    assert growth("x", [(5, 5.0), (10, 0.0)]) is None


def test_noise_widens_the_interval() -> None:
    fit = growth("x", [(5, 5.0), (10, 13.0), (20, 17.0), (40, 44.0)])
    assert fit is not None
    assert fit.interval is not None
    low, high = fit.interval
    assert low < 1.0 < high
    assert high - low > 0.3


def test_a_steep_count_is_named_with_its_site_and_pattern() -> None:
    steep = series_of([point(n, n * n) for n in (40, 5, 10, 20)])
    assert (steep.steep, steep.site, steep.pattern) == (
        ("evaluate_expr", "repeated"),
        "torch/_refs/__init__.py:cat",
        "u >= 0",
    )
    assert [one.n for one in steep.points] == [5, 10, 20, 40]
    assert series_of([point(n, 3 * n) for n in (5, 10, 20, 40)]).steep == ()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("Eq(u0 + u1 + u12, 4)", "Eq(u + …, 4)"),
        ("u7 >= 0", "u >= 0"),
        ("2*u0 + u1 + u2 >= 0", "2*u + … >= 0"),
        ("Max(1, u0) < u3", "Max(1, u) < u"),
    ],
)
def test_the_form_of_a_question(expression: str, expected: str) -> None:
    assert pattern(expression) == expected


def test_the_page_has_ratios_to_the_default() -> None:
    series = [
        series_of([point(n, 3 * n, name, seconds) for n in (5, 10, 20)])
        for name, seconds in (("default", 2.0), ("guard-free-2", 1.0))
    ]
    page = export_time_page(series, Page(100))
    assert "0.50 x default: another graph" in page
    assert max(map(len, page.splitlines())) <= 100


def test_every_workload_has_a_function() -> None:
    assert list(WORKLOADS) == list(MAKE)


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_is_exported_and_agrees_with_eager(workload: str) -> None:
    one = measured(workload, 3, "default", counted=True)
    assert one.agrees
    assert one.counts["evaluate_expr"] > 0
    assert one.nodes > 0


@pytest.fixture
def quadratic() -> Iterator[None]:
    """A planted fault: every evaluation evaluates all earlier expressions of the export again."""
    inner: Any = EVALUATE_EXPR.get()

    def planted(self: Any, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        earlier: list[Any] = vars(self).setdefault("planted", [])
        for expr in earlier:
            self._maybe_evaluate_static(expr)
        earlier.append(orig_expr)
        return inner(self, orig_expr, *args, **kwargs)

    with patch.object(EVALUATE_EXPR.owner(), EVALUATE_EXPR.name, planted):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("quadratic")
def test_a_planted_quadratic_pass_is_named() -> None:
    series = series_of([measured("cat", n, "guard-free-2", counted=True) for n in (4, 8, 16, 32)])
    (fit,) = [one for one in series.growth if one.of == "_maybe_evaluate_static"]
    assert fit.exponent > STEEP
    assert "_maybe_evaluate_static" in series.steep


@pytest.mark.slow
def test_without_the_fault_it_is_not_steep() -> None:
    series = series_of([measured("cat", n, "guard-free-2", counted=True) for n in (4, 8, 16, 32)])
    assert "_maybe_evaluate_static" not in series.steep


def test_the_knobs_are_all_combinations() -> None:
    assert {tuple(knobs) for knobs in KNOBS.values()} == {(level, off) for level in (0, 1, 2) for off in (False, True)}
