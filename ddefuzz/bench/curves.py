"""Growth curves of guard sites over CPU seconds, for several tools, with bootstrap intervals over the seeds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import msgspec
import numpy as np

from ddefuzz.bench.sites import Step
from ddefuzz.coverage.ledger import SiteCount
from ddefuzz.errors import InputError

EXTRA = "pip install 'ddefuzz[report]'"

GRID = 61
"""Points of a mean curve, including its ends."""

NOTHING = SiteCount(0, 0, 0, 0)


class Curve(msgspec.Struct, frozen=True):
    """What one tool reached with one seed, one step for each new site. `cpu_seconds` is how long it ran.

    `killed` is the signal that ended it early, `SIGSEGV (Segmentation fault)`; empty if none did.
    """

    peer: str
    seed: int
    torch: str
    cpu_seconds: float
    steps: tuple[Step, ...]
    killed: str = ""


class Estimate(msgspec.Struct, frozen=True):
    """A mean over the seeds, and the 95% bootstrap interval of it: None with one seed, or without scipy."""

    mean: float
    low: float | None = None
    high: float | None = None


class Moment(msgspec.Struct, frozen=True):
    """The mean state of a tool after this many CPU seconds."""

    cpu_seconds: float
    fallback: Estimate
    dde: Estimate


class Peer(msgspec.Struct, frozen=True):
    """One row: at the end of the budget, distinct fallback sites and DDE call sites, with the C++ ones of each.

    `sites` are guard sites of either kind.
    """

    name: str
    sites: Estimate
    fallback: Estimate
    fallback_cxx: Estimate
    dde: Estimate
    dde_cxx: Estimate
    cpu_seconds: float
    moments: tuple[Moment, ...]
    curves: tuple[Curve, ...]


class Peers(msgspec.Struct, frozen=True):
    """A whole comparison; `cpu_seconds` is the budget of each run."""

    torch: str
    cpu_seconds: float
    seeds: tuple[int, ...]
    peers: tuple[Peer, ...]
    interrupted: bool = False
    schema: str = "ddefuzz.bench.peers/1"


def compare(budget: float, curves: Sequence[Curve], *, interrupted: bool = False) -> Peers:
    """The rows, in the order in which the tools appear first. Runs that took longer are cut at the budget."""
    names = dict.fromkeys(curve.peer for curve in curves)
    peers = tuple(_peer(name, [curve for curve in curves if curve.peer == name], budget) for name in names)
    torch = ", ".join(sorted({curve.torch for curve in curves}))
    return Peers(torch, budget, tuple(sorted({curve.seed for curve in curves})), peers, interrupted)


def reached_by(steps: Sequence[Step], cpu_seconds: float) -> SiteCount:
    """What was reached after this many CPU seconds."""
    place = bisect_right([step.cpu_seconds for step in steps], cpu_seconds)
    return steps[place - 1].sites if place else NOTHING


def estimates(samples: Sequence[Sequence[float]]) -> list[Estimate]:
    """An estimate for each column. A row belongs to a seed."""
    values = np.asarray(samples, dtype=float)
    means = values.mean(axis=0)
    stats = scipy_stats()
    if len(values) < 2 or stats is None:
        return [Estimate(round(float(mean), 2)) for mean in means]
    # Percentiles: with three seeds the corrections of other methods are of no use, and fail where all seeds agree.
    found = stats.bootstrap((values,), np.mean, axis=0, method="percentile", rng=np.random.default_rng(0))
    low, high = found.confidence_interval
    return [
        Estimate(round(float(mean), 2), round(float(below), 2), round(float(above), 2))
        for mean, below, above in zip(means, low, high, strict=True)
    ]


def scipy_stats() -> Any:
    """`scipy.stats`, None where it is not installed."""
    try:
        return import_module("scipy.stats")
    except ImportError:
        return None


def require_chart() -> None:
    """Raise InputError unless a chart can be drawn."""
    for name in ("altair", "vl_convert"):
        try:
            import_module(name)
        except ImportError as error:
            raise InputError(f"svg: found no {name}, expected the packages of the extra: {EXTRA}") from error


def svg(peers: Peers) -> str:
    """Both curves of every peer, with their intervals. Raises InputError without the extra `[report]`."""
    require_chart()
    altair, convert = import_module("altair"), import_module("vl_convert")
    base = altair.Chart(altair.Data(values=list(_rows(peers)))).encode(
        x=altair.X("cpu_seconds:Q", title="CPU seconds"),
        color=altair.Color(
            "peer:N",
            title=None,
            sort=[peer.name for peer in peers.peers],
            legend=altair.Legend(symbolType="stroke", symbolOpacity=1, symbolStrokeWidth=2),
        ),
    )
    line = base.mark_line().encode(y=altair.Y("mean:Q", title="distinct sites"))
    band = base.mark_area(opacity=0.2).encode(y="low:Q", y2="high:Q")
    columns = altair.Column("sites:N", title=None, sort=["fallback sites", "DDE call sites"])
    chart = altair.layer(band, line).properties(width=380, height=300).facet(column=columns)
    drawn: str = convert.vegalite_to_svg(chart.to_json())
    return drawn


def _rows(peers: Peers) -> Iterable[dict[str, Any]]:
    for peer in peers.peers:
        for moment in peer.moments:
            for sites, estimate in (("fallback sites", moment.fallback), ("DDE call sites", moment.dde)):
                yield {
                    "peer": peer.name,
                    "sites": sites,
                    "cpu_seconds": moment.cpu_seconds,
                    "mean": estimate.mean,
                    "low": estimate.mean if estimate.low is None else estimate.low,
                    "high": estimate.mean if estimate.high is None else estimate.high,
                }


def _peer(name: str, curves: Sequence[Curve], budget: float) -> Peer:
    grid = [float(seconds) for seconds in np.linspace(0.0, budget, GRID)]
    at = [[reached_by(curve.steps, seconds) for seconds in grid] for curve in curves]
    fallback = estimates([[sites.fallback for sites in row] for row in at])
    dde = estimates([[sites.dde for sites in row] for row in at])
    (sites,) = estimates([[row[-1].fallback + row[-1].dde] for row in at])
    (fallback_cxx,) = estimates([[row[-1].fallback_cxx] for row in at])
    (dde_cxx,) = estimates([[row[-1].dde_cxx] for row in at])
    return Peer(
        name=name,
        sites=sites,
        fallback=fallback[-1],
        fallback_cxx=fallback_cxx,
        dde=dde[-1],
        dde_cxx=dde_cxx,
        cpu_seconds=round(sum(min(curve.cpu_seconds, budget) for curve in curves) / len(curves), 1),
        moments=tuple(map(Moment, (round(seconds, 2) for seconds in grid), fallback, dde)),
        curves=tuple(curves),
    )
