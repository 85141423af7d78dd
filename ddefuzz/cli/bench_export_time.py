"""`ddefuzz bench export-time`: how the cost of an export grows with the number of unbacked symbols."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import rich_click as click
from rich.console import Group
from rich.text import Text

from ddefuzz.campaign.budget import parse_budget
from ddefuzz.cli.layout import Detailed, folded, table
from ddefuzz.cli.output import Page, deliver, output_options, plain, rendered
from ddefuzz.cli.progress import LiveLine
from ddefuzz.errors import DdefuzzError, NothingRanError
from ddefuzz.export_time.model import KNOBS, STEEP, WORKLOADS, Point, Series, series_of

SCHEMA = "ddefuzz.bench.exporttime/1"

FIRST = 5


@click.command("export-time")
@click.option(
    "--workload",
    "workloads",
    type=click.Choice(tuple(WORKLOADS)),
    metavar="NAME",
    multiple=True,
    help=f"Only this workload: {', '.join(WORKLOADS)}. Can be repeated.",
)
@click.option(
    "--budget", default="2m", show_default=True, metavar="TIME", help="Time for each workload and set of knobs."
)
@click.option("--most", type=click.IntRange(min=FIRST), default=640, show_default=True, help="The largest n.")
@click.option("--knobs", is_flag=True, help="Every combination of torch's settings, and not only the default.")
@output_options("text", "json")
def command(
    workloads: tuple[str, ...],
    budget: str,
    most: int,
    knobs: bool,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Export programs with n unbacked symbols. n is doubled from 5 until the budget ends.

    Each export runs twice in a process of its own: once timed, once counted. Counted are calls of evaluate_expr and
    what it calls, sympy objects, and evaluations that are repeated with the same answer. The exponent of a count
    is that of n; a count is steep if its exponent is surely above 1.5.

    With --knobs each n is exported with every combination of aggressive_guard_free_semantics (0, 1, 2) and
    do_not_emit_stack_traces, in turn, so that the ratios are of one run. The result is compared with eager.
    """
    seconds = parse_budget(budget).seconds or 120.0
    series: list[Series] = []
    with LiveLine("starting") as live:
        for workload in workloads or WORKLOADS:
            names = tuple(KNOBS) if knobs else ("default",)
            points = _points(workload, names, seconds, most, live)
            series += [series_of([one for one in points if one.knobs == name]) for name in names if points]
    if not series:
        raise NothingRanError(f"no export ended within {budget}, expected a longer --budget")
    document = {"schema": SCHEMA, "torch": series[0].points[0].torch, "series": [_document(one) for one in series]}
    encoded = msgspec.json.encode(document).decode() + "\n"
    deliver({"text": lambda page: export_time_page(series, page), "json": lambda _page: encoded}, format_, outputs)


def _points(workload: str, knobs: tuple[str, ...], seconds: float, most: int, live: LiveLine) -> list[Point]:
    """The points of one workload. All knobs are measured at one n before the next n."""
    points: list[Point] = []
    begun, n = time.monotonic(), FIRST
    while n <= most:
        for name in knobs:
            left = seconds * len(knobs) - (time.monotonic() - begun)
            timed = _measure(workload, n, name, left)
            counted = _measure(workload, n, name, left, "counted") if timed else None
            if timed is None or counted is None:
                return [one for one in points if one.n < n]
            points.append(msgspec.structs.replace(counted, seconds=timed.seconds, peak_mb=timed.peak_mb))
            live.update(f"{workload} n={n} {name}: {timed.seconds:.2f} CPU s")
        n *= 2
    return points


def _measure(workload: str, n: int, knobs: str, left: float, *how: str) -> Point | None:
    """One export in a new process. None if it does not end in time."""
    words = [sys.executable, "-m", "ddefuzz.export_time.measure", workload, str(n), knobs, *how]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=max(left, 1.0))
    except subprocess.TimeoutExpired:
        return None
    if ran.returncode:
        said = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        raise DdefuzzError(f"bench export-time: {workload} n={n} {knobs}: {said}")
    return msgspec.json.decode(ran.stdout.splitlines()[-1], type=Point)


def _document(series: Series) -> dict[str, Any]:
    """A series with its counts by n, as the documentation names them."""
    return {
        "workload": series.workload,
        "knobs": series.knobs,
        "n": [point.n for point in series.points],
        "seconds": [point.seconds for point in series.points],
        "counts": {name: [point.counts.get(name, 0) for point in series.points] for name in series.points[-1].counts},
        "exponent": {one.of: one.exponent for one in series.growth},
        "interval": {one.of: one.interval for one in series.growth},
        "steep": series.steep,
        "site": series.site,
        "pattern": series.pattern,
        "points": msgspec.to_builtins(series.points),
    }


def export_time_page(series: list[Series], page: Page) -> str:
    """A table of seconds and growth, the ratios of knobs, and the questions asked most."""
    rows = []
    for one in series:
        last = one.points[-1]
        seconds = next((fit for fit in one.growth if fit.of == "seconds"), None)
        asked = next((fit for fit in one.growth if fit.of == "evaluate_expr"), None)
        cells = (
            one.workload,
            one.knobs,
            str(last.n),
            f"{last.seconds:.2f}",
            "" if seconds is None else f"{seconds.exponent:.2f}",
            str(last.counts.get("evaluate_expr", "")),
            "" if asked is None else f"{asked.exponent:.2f}",
            f"{last.counts.get('repeated', 0) / max(last.counts.get('evaluate_expr', 1), 1):.0%}",
            f"{last.peak_mb:.0f}",
            "yes" if last.agrees else "NO",
        )
        detail = [f"steep: {', '.join(one.steep)}; asked most by {one.site}: {one.pattern}"] if one.steep else []
        if ratio := _ratio(one, series):
            detail.append(ratio)
        rows.append(Detailed([plain(cell) for cell in cells], plain("\n".join(detail), style="dim")))
    titles = ("workload", "knobs", "n", "CPU s", "exponent", "asked", "exponent of it", "repeated", "MB", "agrees")
    shown = rendered(Group(table(titles, rows, page.width, folding=("knobs",)), Text("")), page)
    said = (
        "CPU s: of the export with the largest n. asked: calls of evaluate_expr; repeated: the share of them that was "
        f"evaluated before with the same answer. steep: the exponent is surely above {STEEP:g}."
    )
    return f"{shown}{folded(said, page.width)}\n"


def _ratio(one: Series, series: list[Series]) -> str:
    """The CPU seconds over those of the default knobs at the same n, and what else differs."""
    default = next((other for other in series if (other.workload, other.knobs) == (one.workload, "default")), None)
    if default is None or default is one:
        return ""
    here, there = one.points[-1], default.points[-1]
    differs = ["another graph"] if here.graph != there.graph else []
    differs += [f"{here.assertions} assertions, not {there.assertions}"] if here.assertions != there.assertions else []
    return f"{here.seconds / there.seconds:.2f} x default{': ' if differs else ''}{', '.join(differs)}"
