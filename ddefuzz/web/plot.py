"""Line plots as SVG, drawn on the server. Colours come from the stylesheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple, TypeVar

from markupsafe import Markup, escape

from ddefuzz.findings.model import Progress

Point = TypeVar("Point")

WIDTH, HEIGHT = 640, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 26

MOST_POINTS = 240
"""More points than this cannot be seen in a plot of this width."""


class Series(NamedTuple):
    """A line: its name, and its points with x in ascending order."""

    name: str
    points: tuple[tuple[float, float], ...]


def thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    """At most `MOST_POINTS` of the points, the first and the last among them."""
    if len(points) <= MOST_POINTS:
        return tuple(points)
    step = (len(points) - 1) / (MOST_POINTS - 1)
    return tuple(points[round(at * step)] for at in range(MOST_POINTS))


def findings_plot(points: Sequence[tuple[str, int]]) -> Markup:
    """The number of findings over the dates at which they were first seen."""
    if not points:
        return Markup("")
    times = tuple((datetime.fromisoformat(when).timestamp(), float(number)) for when, number in points)
    return line_plot("Findings over time", [Series("findings", times)], (_date(points[0][0]), _date(points[-1][0])))


def campaign_plot(title: str, growth: Sequence[Progress]) -> Markup:
    """The guard sites and findings of a campaign over its CPU time."""
    lines = {
        "places where a guard fell back": [one.fallback_sites for one in growth],
        "call sites of errors": [one.dde_sites for one in growth],
        "findings seen": [one.findings for one in growth],
    }
    seconds = [one.cpu_seconds for one in growth]
    series = [Series(name, tuple(zip(seconds, map(float, counts), strict=True))) for name, counts in lines.items()]
    ends = (f"{seconds[0]:,.0f} CPU s", f"{seconds[-1]:,.0f} CPU s") if seconds else ("", "")
    return line_plot(title, series, ends)


def _date(when: str) -> str:
    return when[:16].replace("T", " ")


def line_plot(title: str, series: Sequence[Series], x_labels: tuple[str, str]) -> Markup:
    """The plot. `x_labels` are the texts at the left and the right end. Empty without two points."""
    drawn = [one for one in series if len(one.points) > 1]
    if not drawn:
        return Markup("")
    xs = [x for one in drawn for x, _ in one.points]
    low, high = min(xs), max(xs)
    ticks = _ticks(max(y for one in drawn for _, y in one.points))
    top = ticks[-1]

    def place(x: float, y: float) -> str:
        across = (x - low) / (high - low) if high > low else 0.0
        return f"{LEFT + across * (WIDTH - LEFT - RIGHT):.1f},{HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM):.1f}"

    parts = [
        Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, HEIGHT, title),
        Markup("<title>{}</title>").format(title),
    ]
    for tick in ticks:
        y = place(low, tick).partition(",")[2]
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, y, y))
        parts.append(Markup('<text class="tick end" x="{}" y="{}" dy="4">{}</text>').format(LEFT - 6, y, _number(tick)))
    for at, one in enumerate(drawn):
        points = " ".join(_stairs([place(x, y) for x, y in one.points]))
        parts.append(Markup('<polyline class="line line{}" points="{}"/>').format(at + 1, points))
    parts.append(Markup('<text class="tick" x="{}" y="{}">{}</text>').format(LEFT, HEIGHT - 6, x_labels[0]))
    parts.append(
        Markup('<text class="tick end" x="{}" y="{}">{}</text>').format(WIDTH - RIGHT, HEIGHT - 6, x_labels[1])
    )
    parts.append(Markup("</svg>"))
    legend = Markup("").join(
        Markup('<li class="key{}">{} <b>{}</b></li>').format(at + 1, one.name, _number(one.points[-1][1]))
        for at, one in enumerate(drawn)
    )
    return Markup('<figure><figcaption>{}</figcaption>{}<ul class="keys">{}</ul></figure>').format(
        escape(title), Markup("").join(parts), legend
    )


def _stairs(places: list[str]) -> list[str]:
    """Counts stay as they are until the next point, so the line goes across and then up."""
    steps = [places[0]]
    for before, after in pairwise(places):
        steps += [f"{after.partition(',')[0]},{before.partition(',')[2]}", after]
    return steps


def _ticks(most: float) -> list[float]:
    """0 and up to five round numbers, the last of them at least `most`."""
    raw = max(most, 1.0) / 4
    unit = 10.0 ** math.floor(math.log10(raw))
    step = max(next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw), 1.0)
    return [step * at for at in range(math.ceil(max(most, 1.0) / step) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}"
