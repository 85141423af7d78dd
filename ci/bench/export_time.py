"""How the cost of an export grows with the number of unbacked symbols: tables, a page of `docs/`, a chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ci.bench.command import Result, Session
from ci.bench.export_time_model import (
    KNOBS,
    WORKLOADS,
    Growth,
    MeasureTask,
    Point,
    Profiled,
    Series,
    hottest_of,
    longest,
    run_measure,
    run_profile,
    series_of,
    speedscope,
)
from ddefuzz import __version__
from ddefuzz.campaign.plan import parse_budget
from ddefuzz.cli.output import LiveLine, stop_on_interrupt
from ddefuzz.errors import EXIT_INTERRUPTED, DdefuzzError, InputError, NothingRanError
from ddefuzz.execute.pool import Lost, Pool, Stopped, waited
from ddefuzz.files import read_text, write_atomically
from ddefuzz.oracles.growth import STEEP
from ddefuzz.show.blocks import Block, Heading, Inline, Picture, Span, prose, table

R = TypeVar("R")

SCHEMA = "ddefuzz.bench.exporttime/1"

FIRST = 5
"""The smallest n."""

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


def run(
    session: Session,
    workloads: tuple[str, ...],
    budget: str,
    most: int,
    knobs: bool,
    profile: Path | None,
    earlier: tuple[Path, ...],
) -> Result:
    """Measure the workloads, or read what earlier runs measured. Raises NothingRanError if no export ended in time."""
    interrupted, hottest = False, {}
    for name in set(workloads) - set(WORKLOADS):
        raise InputError(f"--workload: found {name!r}, expected one of {', '.join(WORKLOADS)}")
    if earlier:
        documents = list(map(_read, earlier))
        series = [series_of(old.points) for document in documents for old in document.series if old.points]
        hottest = {name: hot for document in documents for name, hot in document.hottest.items()}
    else:
        limit = parse_budget(budget)
        seconds = limit.cpu_seconds or limit.seconds
        if seconds is None:
            raise InputError(f"--budget: found {budget!r}, expected CPU seconds such as 60cpu")
        names = tuple(KNOBS) if knobs else ("default",)
        with stop_on_interrupt() as stopped, Pool(1, tasks_per_worker=1) as pool:
            measured = _Measured(pool, stopped, session.live, seconds)
            try:
                for workload in workloads or WORKLOADS:
                    measured.workload(workload, names, most)
                if profile is not None:
                    profiles = measured.profiles()
                    hottest = {name: hottest_of(profiled) for name, profiled in profiles.items()}
                    write_atomically(profile, msgspec.json.encode(speedscope(profiles, f"ddefuzz {__version__}")))
            except KeyboardInterrupt:
                interrupted = True
        series = measured.series()
    if not series:
        raise NothingRanError(f"no export ended within {budget}, expected a longer --budget")
    record = {
        "schema": SCHEMA,
        "torch": ", ".join(sorted({measured.torch for measured in series})),
        "series": [_document(measured) for measured in series],
        "hottest": hottest,
    }
    return Result(record, list(view(series, hottest)), chart(series), EXIT_INTERRUPTED if interrupted else 0)


def chart(series: Sequence[Series]) -> dict[str, Any]:
    """CPU seconds by n on two logarithmic axes, a panel for each workload and a line for each version of torch."""
    points = [
        {"workload": of.workload, "torch": f"torch {of.torch}", "n": point.n, "seconds": point.seconds}
        for of in longest(series)
        for point in of.points
    ]
    log: dict[str, Any] = {"type": "log"}
    seconds = {"field": "seconds", "type": "quantitative", "title": "CPU seconds of the export", "scale": log}
    return {
        "data": {"values": points},
        "facet": {"field": "workload", "type": "nominal", "title": None},
        "columns": 3,
        "spec": {
            "width": 220,
            "height": 180,
            "mark": {"type": "line", "point": True},
            "encoding": {
                "x": {"field": "n", "type": "quantitative", "title": "n", "scale": {**log, "base": 2}},
                "y": seconds,
                "color": {"field": "torch", "type": "nominal", "title": None},
            },
        },
    }


class _Measured:
    """The points so far, and what measures them."""

    def __init__(self, pool: Pool, stopped: Stopped, live: LiveLine, seconds: float) -> None:
        self.pool, self.stopped, self.live, self.seconds = pool, stopped, live, seconds
        self.points: dict[tuple[str, str], list[Point]] = {}

    def _answer(self, function: Callable[[MeasureTask], R], task: MeasureTask) -> R | Lost:
        return waited(self.pool.submit(function, task, self.seconds * WAIT), self.stopped)

    def workload(self, workload: str, knobs: tuple[str, ...], most: int) -> None:
        """Measure one workload. All knobs are measured at one n before the next n."""
        spent, n = 0.0, FIRST
        while n <= most and spent < self.seconds * len(knobs):
            points = [point for name in knobs if (point := self._point(workload, n, name)) is not None]
            if len(points) < len(knobs):
                return
            for point in points:
                self.points.setdefault((workload, point.knobs), []).append(point)
                spent += point.seconds
            n *= 2

    def _point(self, workload: str, n: int, knobs: str) -> Point | None:
        found = []
        for task in (MeasureTask(workload, n, knobs, "timed"), MeasureTask(workload, n, knobs, "counted")):
            one = self._answer(run_measure, task)
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
        return list(map(series_of, self.points.values()))

    def profiles(self) -> dict[str, Profiled]:
        """The stacks of the largest export of each workload with the default knobs."""
        found = {}
        for (workload, knobs), points in self.points.items():
            if knobs == "default":
                name = f"{workload} n={points[-1].n}"
                one = self._answer(run_profile, MeasureTask(workload, points[-1].n))
                if not isinstance(one, Lost):
                    found[name] = one
                    self.live.update(f"{name}: sampled")
        return found


def _read(path: Path) -> Document:
    """An earlier document."""
    try:
        found = msgspec.json.decode(read_text(path), type=Document)
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: found {error}, expected the JSON of `python ci/bench export-time`") from error
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


def view(series: Sequence[Series], hottest: dict[str, dict[str, float]]) -> Iterator[Block]:
    """Time and counts by workload and version, the most frequent expressions, hot functions, settings."""
    default = longest(series)
    yield Heading("Export time by the number of unbacked symbols", 1)
    yield prose(
        "This page is written by `python ci/bench export-time`, from the JSON of one run for each version of torch "
        "(`--from`)."
    )
    yield prose(
        "Each workload is a function with n unbacked symbols, exported by `torch.export.export(strict=False)` in a "
        "process of its own that has exported nothing but the same function with n = 1. n is doubled from 5 until a "
        "budget of CPU seconds is used. The seconds are CPU seconds of the export alone, without counting; the counts "
        "are of a second export. The exponent is that of the power of n that fits best, by least squares of the "
        "logarithms."
    )
    yield table(("workload", "what there are n of"), WORKLOADS.items())
    yield Picture("CPU seconds by n", "export-time.svg")
    yield Heading("Time and evaluations")
    yield prose(
        "`evaluate_expr` is called each time code needs the value of an expression over sizes. A count is steep if its "
        "exponent is above {} even at the lower end of its interval. MB is the largest resident memory of the process.",
        f"{STEEP:g}",
    )
    columns = (*_OF, "n", "CPU s", "exponent", "evaluate_expr", "exponent", "repeated", "MB", "steep", "agrees")
    yield table(columns, map(_time_cells, default))
    yield Heading("Counts")
    yield prose("Exponents of n with their 95% intervals. A count that is 0 or does not grow has none.")
    names = list(dict.fromkeys(name for of in default for name in of.points[-1].counts))
    yield table((*_OF, *names), [(of.workload, of.torch, *(_counted(of, name) for name in names)) for of in default])
    yield Heading("Expressions evaluated most")
    yield prose(
        "At the largest n. Repeated: evaluated before in the same export, with the same answer. A perfect cache would "
        "save these."
    )
    evaluated = [
        (of.workload, of.torch, expression, str(number), str(again))
        for of in default
        for expression, (number, again) in list(of.points[-1].patterns.items())[:3]
    ]
    yield table((*_OF, "expression", "evaluated", "repeated"), evaluated, code=("expression",))
    yield Heading("Functions that evaluate most")
    yield prose(
        "Calls of `evaluate_expr` at the largest n, by the innermost Python function outside of shape reasoning."
    )
    callers = [
        (of.workload, of.torch, function, str(number))
        for of in default
        for function, number in list(of.points[-1].askers.items())[:2]
    ]
    yield table((*_OF, "function", "calls"), callers, code=("function",))
    if hottest:
        yield Heading("Where the time goes")
        yield prose("Shares of the samples of one export (`--speedscope FILE` writes them all), by innermost function.")
        shares = [(name, function, f"{share:.0%}") for name, hot in hottest.items() for function, share in hot.items()]
        yield table(("export", "function", "time"), shares, code=("function",))
    knobs = [of for of in series if len({other.knobs for other in _same(of, series)}) > 1]
    if knobs:
        yield Heading("Settings of torch")
        yield prose(
            "All settings are measured at one n before the next n, so the ratios are of one run, at the largest n. "
            "`guard-free` is the setting `aggressive_guard_free_semantics` of symbolic shapes, `no-stack-traces` is "
            "`torch.fx.config.do_not_emit_stack_traces`, `no-fake-cache` is dynamo's `fake_tensor_cache_enabled = "
            "False`. The graph and its assertions are compared with those of the default settings, the result with "
            "eager: with `-` all are the same. The report that names these settings says 264 s without and 87 s with "
            "them for a workload of the shape of `unbind_split_flip_cat`, a ratio of 0.33, at an n of its own."
        )
        titles = (*_OF, "n", "settings", "CPU s", "over default", "evaluate_expr", "what differs")
        yield table(titles, _knob_cells(knobs))


_OF = ("workload", "torch")


def _time_cells(of: Series) -> tuple[Inline, ...]:
    last = of.points[-1]
    evaluated = last.counts.get("evaluate_expr", 0)
    agrees = all(point.agrees for point in of.points)
    return (
        of.workload,
        of.torch,
        str(last.n),
        f"{last.seconds:.2f}",
        _exponent(of, "seconds"),
        str(evaluated),
        _exponent(of, "evaluate_expr"),
        f"{last.counts.get('repeated', 0) / max(evaluated, 1):.0%}",
        f"{last.peak_mb:.0f}",
        ", ".join(of.steep) or "-",
        "yes" if agrees else Span("NO", style="bad"),
    )


def _exponent(series: Series, of: str) -> str:
    fit: Growth | None = next((fit for fit in series.growth if fit.of == of), None)
    if fit is None or len({point.counts.get(of) for point in series.points} if of != "seconds" else {0, 1}) < 2:
        return "-"
    return f"{fit.exponent:.2f}" + (f" ({fit.interval[0]:.2f} to {fit.interval[1]:.2f})" if fit.interval else "")


def _counted(of: Series, name: str) -> str:
    count = of.points[-1].counts.get(name)
    return f"{count}: {_exponent(of, name)}" if count is not None else "not counted"


def _same(of: Series, series: Iterable[Series]) -> list[Series]:
    """The series of the same workload and version whose exports were measured at the same n."""
    return [
        other
        for other in series
        if (other.workload, other.torch, other.points[-1].n) == (of.workload, of.torch, of.points[-1].n)
    ]


def _knob_cells(series: Sequence[Series]) -> Iterator[tuple[str, ...]]:
    for of in series:
        default = next((other for other in _same(of, series) if other.knobs == "default"), None)
        if default is None:
            continue
        here, there = of.points[-1], default.points[-1]
        yield (
            of.workload,
            of.torch,
            str(here.n),
            of.knobs,
            f"{here.seconds:.2f}",
            f"{here.seconds / max(there.seconds, 1e-9):.2f}",
            str(here.counts.get("evaluate_expr", 0)),
            _difference(here, there),
        )


def _difference(here: Point, there: Point) -> str:
    differs = ["another graph"] if here.graph != there.graph else []
    differs += [f"{here.assertions} assertions, not {there.assertions}"] if here.assertions != there.assertions else []
    differs += [] if here.agrees else ["another result than eager"]
    return ", ".join(differs) or "-"
