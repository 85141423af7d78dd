"""`ddefuzz bench export-time`: how the cost of an export grows with the number of unbacked symbols."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import rich_click as click

from ddefuzz import __version__
from ddefuzz.bench.curves import require_chart
from ddefuzz.bench.export_chart import svg
from ddefuzz.campaign.plan import parse_budget
from ddefuzz.cli.export_time_page import export_time_markdown, export_time_page
from ddefuzz.cli.output import OutputFile, deliver, output_options
from ddefuzz.cli.progress import LiveLine, stop_on_interrupt
from ddefuzz.errors import EXIT_INTERRUPTED, DdefuzzError, InputError, NothingRanError
from ddefuzz.execute.pool import Lost, Pool, Stopped, waited
from ddefuzz.export_time.model import (
    KNOBS,
    WORKLOADS,
    MeasureTask,
    Point,
    Profiled,
    Series,
    hottest_of,
    run_measure,
    run_profile,
    series_of,
)
from ddefuzz.export_time.sampled import speedscope
from ddefuzz.files import read_text, write_atomically

SCHEMA = "ddefuzz.bench.exporttime/1"

FIRST = 5

WAIT = 20
"""How many times the budget one export may take of the clock, on a machine that is busy."""


class Document(msgspec.Struct, frozen=True):
    """What is read of an earlier document: the points, and where the time of the largest exports went."""

    schema: str
    series: tuple[Measured, ...]
    hottest: dict[str, dict[str, float]] = {}


class Measured(msgspec.Struct, frozen=True):
    """A series of an earlier document."""

    points: tuple[Point, ...]


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
    "--budget",
    default="60cpu",
    show_default=True,
    metavar="CPU",
    help="CPU seconds of exports for each workload and combination of settings.",
)
@click.option(
    "--most", type=click.IntRange(min=FIRST), metavar="N", default=640, show_default=True, help="The largest n."
)
@click.option("--knobs", is_flag=True, help="Measure every combination of torch's settings, not only the default.")
@click.option(
    "--speedscope",
    "profile",
    type=OutputFile(),
    help="Also sample the largest export of each workload, for https://www.speedscope.app.",
)
@click.option(
    "--from",
    "earlier",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    multiple=True,
    help="Measure nothing: show the JSON of earlier runs, also of other versions of torch. Can be repeated.",
)
@output_options("text", "json", "markdown", "svg")
def command(
    workloads: tuple[str, ...],
    budget: str,
    most: int,
    knobs: bool,
    profile: Path | None,
    earlier: tuple[Path, ...],
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Export programs with n unbacked symbols. n is doubled from 5 until the budget ends.

    Each export runs twice in its own process: once to measure time, once to count. The counts are calls of
    evaluate_expr and of the functions that it calls, sympy objects, and evaluations that are repeated with the same
    answer. A power of n is fitted to each count, and the output has its exponent. A count is reported as steep if the
    lower end of the exponent's interval is above 1.5. The result of the exported program is compared with eager's.

    With --knobs each n is exported with every combination of aggressive_guard_free_semantics (0, 1, 2) and
    do_not_emit_stack_traces, and without the cache of FakeTensorMode. They run in turn, so that ratios compare
    measurements of the same run.
    """
    interrupted, hottest = False, {}
    if "svg" in (format_, *(name for name, _ in outputs)):
        require_chart()
    if earlier:
        documents = list(map(_read, earlier))
        series = [series_of(one.points) for document in documents for one in document.series if one.points]
        hottest = {name: hot for document in documents for name, hot in document.hottest.items()}
    else:
        limit = parse_budget(budget)
        seconds = limit.cpu_seconds or limit.seconds
        if seconds is None:
            raise InputError(f"--budget: found {budget!r}, expected CPU seconds such as 60cpu")
        names = tuple(KNOBS) if knobs else ("default",)
        with stop_on_interrupt() as stopped, LiveLine("starting") as live, Pool(1, tasks_per_worker=1) as pool:
            measured = _Measured(pool, stopped, live, seconds)
            try:
                for workload in workloads or WORKLOADS:
                    measured.workload(workload, names, most)
                if profile is not None:
                    profiles = measured.profiles()
                    hottest = {name: hottest_of(one) for name, one in profiles.items()}
                    _write(profile, profiles)
            except KeyboardInterrupt:
                interrupted = True
        series = measured.series()
    if not series:
        raise NothingRanError(f"no export ended within {budget}, expected a longer --budget")
    document = {
        "schema": SCHEMA,
        "torch": ", ".join(sorted({one.torch for one in series})),
        "series": [_document(one) for one in series],
        "hottest": hottest,
    }
    encoded = msgspec.json.encode(document).decode() + "\n"
    deliver(
        {
            "text": lambda page: export_time_page(series, page),
            "json": lambda _page: encoded,
            "markdown": lambda _page: export_time_markdown(series, hottest),
            "svg": lambda _page: svg(series),
        },
        format_,
        outputs,
    )
    if interrupted:
        raise SystemExit(EXIT_INTERRUPTED)


class _Measured:
    """The points so far, and what measures them."""

    def __init__(self, pool: Pool, stopped: Stopped, live: LiveLine, seconds: float) -> None:
        self.pool, self.stopped, self.live, self.seconds = pool, stopped, live, seconds
        self.points: dict[tuple[str, str], list[Point]] = {}

    def workload(self, workload: str, knobs: tuple[str, ...], most: int) -> None:
        """Measure one workload. All knobs are measured at one n before the next n."""
        spent, n = 0.0, FIRST
        while n <= most and spent < self.seconds * len(knobs):
            points = [self._point(workload, n, name) for name in knobs]
            if None in points:
                return
            for point in points:
                if point is not None:
                    self.points.setdefault((workload, point.knobs), []).append(point)
                    spent += point.seconds
            n *= 2

    def _point(self, workload: str, n: int, knobs: str) -> Point | None:
        found = []
        for how in ("timed", "counted"):
            task = MeasureTask(workload, n, knobs, "timed" if how == "timed" else "counted")
            one = waited(self.pool.submit(run_measure, task, self.seconds * WAIT), self.stopped)
            if isinstance(one, Lost):
                if one.outcome == "timeout":
                    return None
                raise DdefuzzError(f"bench export-time: {workload} n={n} {knobs}: {one.reason}")
            found.append(one)
        timed, counted = found
        self.live.update(f"{workload} n={n} {knobs}: {timed.seconds:.2f} CPU s")
        return msgspec.structs.replace(counted, seconds=timed.seconds, peak_mb=timed.peak_mb)

    def series(self) -> list[Series]:
        """The series of each workload and set of knobs."""
        return [series_of(points) for points in self.points.values()]

    def profiles(self) -> dict[str, Profiled]:
        """The stacks of the largest export of each workload with the default knobs."""
        found = {}
        for (workload, knobs), points in self.points.items():
            if knobs == "default":
                n = points[-1].n
                task = MeasureTask(workload, n)
                one = waited(self.pool.submit(run_profile, task, self.seconds * WAIT), self.stopped)
                if not isinstance(one, Lost):
                    found[f"{workload} n={n}"] = one
                    self.live.update(f"{workload} n={n}: sampled")
        return found


def _write(path: Path, profiles: dict[str, Profiled]) -> None:
    write_atomically(path, msgspec.json.encode(speedscope(profiles, f"ddefuzz {__version__}")))


def _read(path: Path) -> Document:
    """An earlier document."""
    try:
        found = msgspec.json.decode(read_text(path), type=Document)
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: found {error}, expected the JSON of `ddefuzz bench export-time`") from error
    if found.schema != SCHEMA:
        raise InputError(f"{path}: found the schema {found.schema!r}, expected {SCHEMA}")
    return found


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
