"""How the cost of an export is counted and fitted."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from click.testing import CliRunner

from ci.bench.command import group
from ci.bench.export_time import SCHEMA, view
from ci.bench.export_time_model import (
    KNOBS,
    WORKLOADS,
    Point,
    Profiled,
    growth,
    hottest_of,
    longest,
    sampled,
    series_of,
    speedscope,
)
from ci.bench.export_time_run import MAKE, measured
from ddefuzz.errors import InputError
from ddefuzz.instrument.counting import pattern
from ddefuzz.oracles.growth import STEEP
from ddefuzz.show.markdown import markdown
from tests.bench.planted_growth import quadratic


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


def test_the_document_has_counts_questions_ratios_and_hot_functions() -> None:
    series = [
        series_of([point(n, 3 * n, name, seconds) for n in (5, 10, 20)])
        for name, seconds in (("default", 2.0), ("guard-free-2", 1.0))
    ]
    text = markdown(view(series, {"cat n=20": {"torch/fx/graph.py:emit": 0.25}}))
    assert "| cat | 2.13.0 | 20 | 2.00 | 0.00 (0.00 to 0.00) | 60 | 1.00 (1.00 to 1.00) | 50% | 300 |" in text
    assert "| cat | 2.13.0 | `u >= 0` | 60 | 30 |" in text
    assert "| cat | 2.13.0 | `torch/_refs/__init__.py:cat` | 60 |" in text
    assert "| cat | 2.13.0 | 20 | guard-free-2 | 1.00 | 0.50 | 60 | another graph |" in text
    assert "| cat n=20 | `torch/fx/graph.py:emit` | 25% |" in text


def test_earlier_runs_are_shown_together(tmp_path: Path) -> None:
    files = []
    for version in ("2.13.0", "2.15.0"):
        points = [msgspec.structs.replace(point(n, 3 * n), torch=version) for n in (5, 10, 20)]
        document = {"schema": SCHEMA, "series": [{"points": points}], "hottest": {}}
        files.append(tmp_path / f"{version}.json")
        files[-1].write_bytes(msgspec.json.encode(document))
    options = [part for file in files for part in ("--from", str(file))]
    shown = CliRunner().invoke(group, ["export-time", *options, "--format", "json"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert msgspec.json.decode(shown.stdout)["torch"] == "2.13.0, 2.15.0"
    drawn = CliRunner().invoke(group, ["export-time", *options, "--format", "svg"], catch_exceptions=False).stdout
    assert drawn.startswith("<svg")
    assert "torch 2.15.0" in drawn
    files[0].write_text("{}")
    with pytest.raises(InputError, match=r"2.13.0.json: found Object missing required field"):
        CliRunner().invoke(group, ["export-time", *options], catch_exceptions=False)


SPEEDSCOPE = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "name": {"type": "string"},
        "exporter": {"type": "string"},
        "activeProfileIndex": {"type": "integer", "minimum": 0},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {
                "frames": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "additionalProperties": False,
                        "properties": {
                            "name": {"type": "string"},
                            "file": {"type": "string"},
                            "line": {"type": "number"},
                            "col": {"type": "number"},
                        },
                    },
                }
            },
        },
        "profiles": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["type", "name", "unit", "startValue", "endValue", "samples", "weights"],
                "additionalProperties": False,
                "properties": {
                    "type": {"const": "sampled"},
                    "name": {"type": "string"},
                    "unit": {"enum": ["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]},
                    "startValue": {"type": "number"},
                    "endValue": {"type": "number"},
                    "samples": {
                        "type": "array",
                        "items": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                    },
                    "weights": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}},
                },
            },
        },
    },
}
"""What speedscope's own description of its format (src/lib/file-format-spec.ts) says about sampled profiles."""


def test_a_sampled_run_is_a_file_in_speedscopes_format() -> None:
    with sampled() as samples:
        while not samples.stacks:
            sum(number * number for number in range(10_000))
    numbers: dict[tuple[str, str, int], int] = {}
    stacks = tuple((tuple(numbers.setdefault(one, len(numbers)) for one in stack), s) for stack, s in samples.stacks)
    file = json.loads(json.dumps(speedscope({"one": Profiled(tuple(numbers), stacks)}, "ddefuzz")))
    jsonschema.validate(file, SPEEDSCOPE)
    (profile,) = file["profiles"]
    assert len(profile["samples"]) == len(profile["weights"]) > 0
    assert profile["endValue"] == pytest.approx(sum(profile["weights"]))
    assert max(at for stack in profile["samples"] for at in stack) < len(file["shared"]["frames"])
    assert all(profile["samples"])


def test_of_two_runs_the_longer_one_is_shown() -> None:
    short, long = series_of([point(5, 1)]), series_of([point(5, 1), point(10, 2)])
    other = series_of([point(20, 1, knobs="guard-free-1")])
    assert longest([short, long, other]) == (long,)
    assert longest([long, short]) == (long,)


def test_samples_are_named_by_their_functions() -> None:
    def busy() -> int:
        return sum(number * number for number in range(3_000_000))

    with sampled() as samples:
        busy()
    assert any(stack[-1][0].endswith(("busy", "<genexpr>")) for stack, _ in samples.stacks)
    one = Profiled((("f", "a.py", 1), ("g", "b.py", 2)), (((0,), 0.5), ((0, 1), 1.5)))
    assert hottest_of(one) == {"b.py:g": 0.75, "a.py:f": 0.25}
    file = speedscope({"first": one, "second": Profiled((("g", "b.py", 2),), (((0,), 1.0),))}, "ddefuzz")
    assert file["shared"]["frames"] == [
        {"name": "f", "file": "a.py", "line": 1},
        {"name": "g", "file": "b.py", "line": 2},
    ]
    first, second = file["profiles"]
    assert (first["type"], first["samples"], first["weights"], first["endValue"]) == (
        "sampled",
        [[0], [0, 1]],
        [0.5, 1.5],
        2.0,
    )
    assert second["samples"] == [[1]]


def test_every_workload_has_a_function() -> None:
    assert list(WORKLOADS) == list(MAKE)


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_is_exported_and_agrees_with_eager(workload: str) -> None:
    one = measured(workload, 3, "default", counted=True)
    assert one.agrees
    assert one.counts["evaluate_expr"] > 0
    assert one.nodes > 0


@pytest.mark.slow
def test_a_planted_quadratic_pass_is_named() -> None:
    with quadratic():
        series = series_of([measured("cat", n, "guard-free-2", counted=True) for n in (4, 8, 16, 32)])
    (fit,) = [one for one in series.growth if one.of == "_maybe_evaluate_static"]
    assert fit.exponent > STEEP
    assert "_maybe_evaluate_static" in series.steep


@pytest.mark.slow
def test_without_the_fault_it_is_not_steep() -> None:
    series = series_of([measured("cat", n, "guard-free-2", counted=True) for n in (4, 8, 16, 32)])
    assert "_maybe_evaluate_static" not in series.steep


def test_the_knobs_are_all_combinations() -> None:
    cached = {tuple(knobs[:2]) for knobs in KNOBS.values() if knobs.fake_cache}
    assert cached == {(level, off) for level in (0, 1, 2) for off in (False, True)}
    assert len(KNOBS) == len(cached) + 1
