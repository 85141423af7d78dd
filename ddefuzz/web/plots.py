"""Plots of counts and sightings over time, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from markupsafe import Markup

from ddefuzz.findings.lifecycle import version_key
from ddefuzz.findings.model import Progress
from ddefuzz.show.blocks import counted

WIDTH, HEIGHT = 640, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 26

Series = tuple[str, Sequence[tuple[float, float]]]
"""A line: its name, and its points with x in ascending order."""


def findings_plot(points: Sequence[tuple[str, int]]) -> Markup:
    """The number of findings over the dates at which they were first seen."""
    times = [(datetime.fromisoformat(when).timestamp(), float(number)) for when, number in points]
    first, last = ([point[0][:16].replace("T", " ") for point in (points[0], points[-1])]) if points else ("", "")
    return line_plot("Findings over time", [("findings", times)], (first, last))


def campaign_plot(title: str, growth: Sequence[Progress]) -> Markup:
    """The guard sites and findings of a campaign over its CPU time."""
    names = {
        "fallback_sites": "places where a guard fell back",
        "dde_sites": "call sites of errors",
        "findings": "findings seen",
    }
    series = [(said, [(at.cpu_seconds, float(getattr(at, name))) for at in growth]) for name, said in names.items()]
    ends = [f"{at.cpu_seconds:,.0f} CPU s" for at in (growth[0], growth[-1])] if growth else ["", ""]
    return line_plot(title, series, (ends[0], ends[1]))


ROW: Final = 22
"""The height of a row, which is a version of torch."""


def sightings_plot(occurrences: Iterable[Mapping[str, Any]]) -> Markup:
    """When the finding was seen under each version of torch, from the first to the last sighting. Empty if all were at
    one time. An occurrence is as in the finding's document.
    """
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for seen in sorted(occurrences, key=lambda seen: version_key(seen["torch"])):
        rows.setdefault(seen["torch"], []).append(seen)
    ends = {}
    for torch, sightings in rows.items():
        ends[torch] = (min(one["first_seen"] for one in sightings), max(one["last_seen"] for one in sightings))
    first = min((first for first, _ in ends.values()), default="")
    last = max((last for _, last in ends.values()), default="")
    if first == last:
        return Markup("")
    begin, end = datetime.fromisoformat(first), datetime.fromisoformat(last)
    left, height = 120, TOP + ROW * len(rows) + BOTTOM

    def across(time: str) -> float:
        return left + (datetime.fromisoformat(time) - begin) / (end - begin) * (WIDTH - left - RIGHT)

    title = "Sightings over time"
    parts = [Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, height, title)]
    parts.append(Markup("<title>{}</title>").format(title))
    for number, (torch, (start, stop)) in enumerate(ends.items()):
        middle = TOP + ROW * number + ROW / 2
        count = sum(one["count"] for one in rows[torch])
        text = f"torch {torch}: {counted(count, 'sighting')}, {start[:10]} to {stop[:10]}"
        parts.append(Markup('<text class="tick end" x="{}" y="{}" dy="4">{}</text>').format(left - 8, middle, torch))
        place = Markup('<line class="span" x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{}"><title>{}</title></line>')
        parts.append(place.format(across(start), across(stop), middle, middle, text))
    for style, x, time in (("tick", left, first), ("tick end", WIDTH - RIGHT, last)):
        label = time[:16].replace("T", " ")
        parts.append(Markup('<text class="{}" x="{}" y="{}">{}</text>').format(style, x, height - 6, label))
    return Markup("<figure><figcaption>{}</figcaption>{}</svg></figure>").format(title, Markup("").join(parts))


def line_plot(title: str, series: Sequence[Series], x_labels: tuple[str, str]) -> Markup:
    """The plot. `x_labels` are the texts at the left and the right end. Empty without two points."""
    drawn = [(name, points) for name, points in series if len(points) > 1]
    if not drawn:
        return Markup("")
    xs = [x for _, points in drawn for x, _ in points]
    low, high = min(xs), max(xs)
    ticks = _ticks(max(y for _, points in drawn for _, y in points))
    top = ticks[-1]

    def place(x: float, y: float) -> tuple[str, str]:
        across = (x - low) / (high - low) if high > low else 0.0
        down = HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)
        return f"{LEFT + across * (WIDTH - LEFT - RIGHT):.1f}", f"{down:.1f}"

    parts = [
        Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, HEIGHT, title),
        Markup("<title>{}</title>").format(title),
    ]
    for tick in ticks:
        _, y = place(low, tick)
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, y, y))
        parts.append(Markup('<text class="tick end" x="{}" y="{}" dy="4">{:,.0f}</text>').format(LEFT - 6, y, tick))
    keys = []
    for number, (name, points) in enumerate(drawn, 1):
        begin, *steps = (place(x, y) for x, y in points)
        # Counts stay as they are until the next point, so the line goes across and then up.
        line = "".join(("M", ",".join(begin), *(f"H{x}V{y}" for x, y in steps)))
        parts.append(Markup('<path class="line line{}" d="{}"/>').format(number, line))
        keys.append(Markup('<li class="key{}">{} <b>{:,.0f}</b></li>').format(number, name, points[-1][1]))
    for style, x, label in (("tick", LEFT, x_labels[0]), ("tick end", WIDTH - RIGHT, x_labels[1])):
        parts.append(Markup('<text class="{}" x="{}" y="{}">{}</text>').format(style, x, HEIGHT - 6, label))
    return Markup('<figure><figcaption>{}</figcaption>{}</svg><ul class="keys">{}</ul></figure>').format(
        title, Markup("").join(parts), Markup("").join(keys)
    )


def _ticks(most: float) -> list[float]:
    """0 and up to five round numbers, the last of them at least `most`."""
    raw = max(most, 1.0) / 4
    unit = 10.0 ** math.floor(math.log10(raw))
    step = max(next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw), 1.0)
    return [step * at for at in range(math.ceil(max(most, 1.0) / step) + 1)]
