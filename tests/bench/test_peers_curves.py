"""Growth curves: a common grid of steps, means and intervals over seeds, the table and the chart."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec
import pytest

from ci.bench import peers
from ci.bench.peers import AreaCount, Curve, Estimate, by_area, chart, compare, estimate, view
from ddefuzz.classify.signature import Site
from ddefuzz.classify.site import USER_SITE
from ddefuzz.errors import UnsupportedError
from ddefuzz.findings.ledger import SiteCount, SiteRecord, Step
from ddefuzz.show.html import require_chart, svg
from tests.bench.typed_bench import text_of


def curve(peer: str, seed: int, *points: tuple[float, int, int], spent: float = 10.0) -> Curve:
    steps = tuple(Step(seconds, SiteCount(fallback, 0, dde, 0)) for seconds, fallback, dde in points)
    return Curve(peer, seed, "2.13.0", spent, steps)


CURVES = (
    curve("guided", 0, (1.0, 5, 1), (4.0, 20, 3)),
    curve("guided", 1, (2.0, 10, 2), (6.0, 30, 5), (11.0, 99, 99), spent=12.0),
    curve("uniform", 0, (1.0, 8, 2), spent=2.0),
    curve("uniform", 1),
)


@pytest.fixture
def no_extra(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def import_module(name: str) -> ModuleType:
        raise ImportError(name)

    monkeypatch.setattr(peers, "import_module", import_module)
    monkeypatch.setattr("ddefuzz.show.html.import_module", import_module)
    yield


def test_a_curve_holds_what_was_reached_until_the_next_step() -> None:
    assert [CURVES[0].reached_by(seconds).fallback for seconds in (0.0, 1.0, 3.9, 4.0, 9.0)] == [0, 5, 5, 20, 20]


def test_every_peer_is_a_row_cut_at_the_budget(no_extra: None) -> None:
    record = compare(10.0, CURVES)
    assert (record.torch, record.seeds, [peer.name for peer in record.peers]) == (
        "2.13.0",
        (0, 1),
        ["guided", "uniform"],
    )
    guided, uniform = record.peers
    assert (guided.counts["fallback sites"], guided.counts["DDE call sites"], guided.cpu_seconds) == (
        Estimate(25.0),
        Estimate(4.0),
        10.0,
    )
    assert (uniform.counts["fallback sites"], uniform.counts["DDE call sites"], uniform.cpu_seconds) == (
        Estimate(4.0),
        Estimate(1.0),
        6.0,
    )


def test_the_table_has_no_interval_without_scipy(no_extra: None) -> None:
    text = text_of(list(view(compare(10.0, CURVES))))
    assert "torch 2.13.0, 10 CPU seconds a run, 2 seeds" in text
    assert [line.split() for line in text.splitlines() if line.startswith("guided")] == [
        ["guided", "29.0", "25.0", "0.0", "4.0", "0.0", "10"]
    ]


def test_sites_are_counted_by_area() -> None:
    chunk = "at::native::chunk"
    records = (
        SiteRecord("C++", "aten/src/ATen/native/TensorShape.cpp", 34, "", "guard_or_false", {"False": 2}),
        SiteRecord("Python", "torch/_refs/__init__.py", 7, "chunk", "guard_bool", raised=2, blamed=(chunk,)),
        SiteRecord("Python", "torch/_refs/__init__.py", 9, "view", "guard_bool", {"True": 1}),
        SiteRecord("Python", "torch/_decomp/decompositions.py", 9, "f", "guard_or_true", {"True": 1}),
        SiteRecord(
            "Python",
            "torch/_tensor.py",
            1,
            "f",
            "guard_bool",
            raised=1,
            blamed=(str(Site("Python", "torch/_tensor.py", "f")), str(Site("Python", "torch/_refs/__init__.py", None))),
        ),
        SiteRecord("Python", "mine.py", 1, "f", "guard_bool", raised=1, blamed=(str(USER_SITE),)),
    )
    areas = by_area(records)
    own = {"other Python": AreaCount(0, 1), "outside torch": AreaCount(0, 1)}
    assert areas == {"C++": AreaCount(1, 1), "decompositions": AreaCount(2, 1), **own}
    one = msgspec.structs.replace(CURVES[0], areas=areas)
    rows = [line.split() for line in text_of(list(view(compare(10.0, [one, CURVES[2]])))).splitlines()]
    assert ["C++", "1", "/", "1", "0", "/", "0"] in rows
    assert ["other", "Python", "0", "/", "1", "0", "/", "0"] in rows


def test_an_interval_is_of_the_mean_and_always_the_same() -> None:
    one = estimate([20.0, 30.0, 40.0])
    assert one.mean == 30.0
    assert one.low is not None
    assert one.high is not None
    assert 20.0 <= one.low < 30.0 < one.high <= 40.0
    assert estimate([20.0, 30.0, 40.0]) == one
    assert estimate([7.0, 7.0]) == Estimate(7.0, 7.0, 7.0)
    assert estimate([7.0]) == Estimate(7.0)


def test_a_chart_without_its_packages_says_how_to_get_them(no_extra: None) -> None:
    with pytest.raises(UnsupportedError, match=r"charts: found no vl_convert, expected it: .* '.*\[report\]'"):
        require_chart()


def test_the_chart_names_every_peer() -> None:
    drawn: Any = svg(chart(compare(10.0, CURVES)))
    assert drawn.startswith("<svg")
    assert all(text in drawn for text in ("guided", "uniform", "fallback sites", "DDE call sites", "CPU seconds"))
