"""How the cost of an export is counted and fitted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from ci.bench.command import group
from ci.bench.export_time import (
    WORKLOADS,
    Document,
    MeasureTask,
    Point,
    Series,
    growth,
    longest,
    run_measure,
    series_of,
    view,
)
from ddefuzz.errors import InputError
from ddefuzz.instrument.counting import pattern
from ddefuzz.oracles.growth import STEEP
from ddefuzz.show.markdown import markdown
from tests.bench.planted_growth import quadratic


def point(n: int, asked: int, seconds: float = 1.0) -> Point:
    return Point(
        workload="cat",
        n=n,
        torch="2.13.0",
        seconds=seconds,
        peak_mb=300.0,
        counts={"evaluate_expr": asked, "repeated": asked // 2},
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


def test_a_steep_count_is_named() -> None:
    steep = series_of([point(n, n * n) for n in (40, 5, 10, 20)])
    assert steep.steep == ("evaluate_expr", "repeated")
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


def test_the_page_has_counts_expressions_and_functions() -> None:
    text = markdown(view([series_of([point(n, 3 * n, 2.0) for n in (5, 10, 20)])]))
    assert "| cat | 2.13.0 | 20 | 2.00 | 0.00 (0.00 to 0.00) | 60 | 1.00 (1.00 to 1.00) | 50% | 300 |" in text
    assert "| cat | 2.13.0 | `u >= 0` | 60 | 30 |" in text
    assert "| cat | 2.13.0 | `torch/_refs/__init__.py:cat` | 60 |" in text


def test_earlier_runs_are_shown_together(tmp_path: Path) -> None:
    files = []
    for version in ("2.13.0", "2.15.0"):
        points = [msgspec.structs.replace(point(n, 3 * n), torch=version) for n in (5, 10, 20)]
        files.append(tmp_path / f"{version}.json")
        files[-1].write_bytes(msgspec.json.encode(Document((series_of(points),))))
    options = [part for file in files for part in ("--from", str(file))]
    shown = CliRunner().invoke(group, ["export-time", *options, "--format", "json"], catch_exceptions=False)
    assert shown.exit_code == 0
    document = msgspec.json.decode(shown.stdout, type=Document)
    assert [one.torch for one in document.series] == ["2.13.0", "2.15.0"]
    drawn = CliRunner().invoke(group, ["export-time", *options, "--format", "svg"], catch_exceptions=False).stdout
    assert drawn.startswith("<svg")
    assert "torch 2.15.0" in drawn
    files[0].write_text("{}")
    with pytest.raises(InputError, match=r"2.13.0.json: found Object missing required field"):
        CliRunner().invoke(group, ["export-time", *options], catch_exceptions=False)


def test_of_two_runs_the_longer_one_is_shown() -> None:
    short, long = series_of([point(5, 1)]), series_of([point(5, 1), point(10, 2)])
    assert longest([short, long]) == longest([long, short]) == (long,)


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_is_exported_and_agrees_with_eager(workload: str) -> None:
    one = run_measure(MeasureTask(workload, 3, "counted"))
    assert one.agrees
    assert one.counts["evaluate_expr"] > 0


def measured() -> Series:
    return series_of([run_measure(MeasureTask("cat", n, "counted")) for n in (4, 8, 16, 32)])


@pytest.mark.slow
def test_a_planted_quadratic_pass_is_named() -> None:
    with quadratic():
        series = measured()
    (fit,) = [one for one in series.growth if one.of == "_maybe_evaluate_static"]
    assert fit.exponent > STEEP
    assert "_maybe_evaluate_static" in series.steep


@pytest.mark.slow
def test_the_function_in_which_a_planted_pass_spends_its_time_is_named() -> None:
    with quadratic():
        series = series_of([run_measure(MeasureTask("cat", n, "sampled")) for n in (8, 16, 32, 64)])
    first = series.growing[0]
    assert first.fit.exponent > STEEP
    assert first.function.endswith("symbolic_shapes.py:evaluate_sym_node")  # it calls the planted one


@pytest.mark.slow
def test_without_the_fault_it_is_not_steep() -> None:
    assert "_maybe_evaluate_static" not in measured().steep
