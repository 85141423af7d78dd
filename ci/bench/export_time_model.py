"""The workloads by name, the records of a series of measurements, the exponent by which a count
grows, and samples of where the time goes.

Does not import torch.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import linear_regression
from types import FrameType
from typing import Any, Final, Literal, NamedTuple

import msgspec

from ddefuzz.execute.worker import late
from ddefuzz.oracles.growth import STEEP

WORKLOADS: Final[dict[str, str]] = {
    "unbind_split_flip_cat": "n data-dependent splits, flipped and concatenated",
    "cat": "a concatenation of n nonzero() results: sums of n symbols",
    "masks": "n boolean masks, each of the result of the one before",
    "narrow": "n nested narrow() of data-dependent lengths",
    "views": "n tensors of a data-dependent size, each viewed twice",
    "checks": "n torch._check of one symbol",
    "shared": "n unbacked sizes that n - 1 torch._check make equal",
    "totals": "n nonzero() results, each concatenated with all before it: sums of 1 to n symbols",
    "inferred": "n views with a data-dependent size and a size that torch infers (-1)",
    "drawn": "n blocks, each one of two programs that the generator has drawn",
}
"""The names of the workloads, and what each has n of."""


class Knobs(NamedTuple):
    """Settings of torch: the level of `aggressive_guard_free_semantics`, `do_not_emit_stack_traces`, and dynamo's
    `fake_tensor_cache_enabled`.
    """

    guard_free: int
    no_stack_traces: bool
    fake_cache: bool = True


KNOBS: Final[dict[str, Knobs]] = {
    "default": Knobs(0, False),
    "no-stack-traces": Knobs(0, True),
    "guard-free-1": Knobs(1, False),
    "guard-free-1,no-stack-traces": Knobs(1, True),
    "guard-free-2": Knobs(2, False),
    "guard-free-2,no-stack-traces": Knobs(2, True),
    "no-fake-cache": Knobs(0, False, fake_cache=False),
}


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One export with n symbols.

    `seconds` are CPU seconds of the export alone. `counts` are calls by name, sympy objects made, and evaluations that
    were `repeated` with the same answer; empty if nothing was counted. `hits` are calls that an lru_cache answered.
    `peak_mb` is the process's maximum resident memory in 10^6 bytes. `graph` is a hash of the graph; `agrees` says
    whether the exported program returns what eager does. `patterns` are the questions asked most: how often, and how
    often again with the same answer. `askers` are the functions that asked most.
    """

    workload: str
    n: int
    knobs: str
    torch: str
    seconds: float
    peak_mb: float
    counts: dict[str, int]
    hits: dict[str, int]
    nodes: int
    assertions: int
    graph: str
    agrees: bool
    patterns: dict[str, tuple[int, int]]
    askers: dict[str, int]


class MeasureTask(msgspec.Struct, frozen=True):
    """One export to measure: timed alone, or counted, or sampled."""

    workload: str
    n: int
    knobs: str = "default"
    how: Literal["timed", "counted"] = "timed"


class Profiled(msgspec.Struct, frozen=True):
    """The stacks of one export: by number in `functions` (name, file, line), outermost first, with seconds."""

    functions: tuple[tuple[str, str, int], ...]
    stacks: tuple[tuple[tuple[int, ...], float], ...]


def hottest_of(one: Profiled, most: int = 8) -> dict[str, float]:
    """The share of the time that the innermost functions took, largest first."""
    total = sum(seconds for _, seconds in one.stacks)
    found: dict[str, float] = {}
    for stack, seconds in one.stacks:
        name, file, _ = one.functions[stack[-1]]
        found[f"{file}:{name}"] = found.get(f"{file}:{name}", 0.0) + seconds
    largest = sorted(found.items(), key=lambda item: -item[1])[:most]
    return {name: round(seconds / total, 4) for name, seconds in largest}


def run_measure(task: MeasureTask) -> Point:
    """Export once, in this process."""
    result: Point = late("ci.bench.export_time_run").run_measure(task)
    return result


def run_profile(task: MeasureTask) -> Profiled:
    """Export once and sample the stack."""
    result: Profiled = late("ci.bench.export_time_run").run_profile(task)
    return result


class Growth(msgspec.Struct, frozen=True):
    """The fit `count ~ n ** exponent`, with its 95% interval. `interval` is None for fewer than three points."""

    of: str
    exponent: float
    interval: tuple[float, float] | None


_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t, two-sided 95%, for 1 to 10 degrees of freedom."""


def growth(of: str, points: Sequence[tuple[int, float]]) -> Growth | None:
    """The exponent of (n, count), by least squares of their logarithms. None for fewer than two positive counts."""
    positive = [(math.log(n), math.log(count)) for n, count in points if count > 0]
    if len(positive) < 2:
        return None
    xs, ys = zip(*positive, strict=True)
    slope, intercept = linear_regression(xs, ys)
    free = len(positive) - 2
    if not free:
        return Growth(of, round(slope, 3), None)
    left = sum((y - slope * x - intercept) ** 2 for x, y in positive)
    mean = sum(xs) / len(xs)
    error = math.sqrt(left / free / sum((x - mean) ** 2 for x in xs))
    half = _T[min(free, len(_T)) - 1] * error
    return Growth(of, round(slope, 3), (round(slope - half, 3), round(slope + half, 3)))


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One workload with one set of knobs: its points by n, and how seconds and counts grow.

    `steep` names the counts whose growth is above `STEEP` even at the lower end of the interval. `site` is the function
    that asked most at the largest n, and `pattern` what was asked most.
    """

    torch: str
    workload: str
    knobs: str
    points: tuple[Point, ...]
    growth: tuple[Growth, ...]
    steep: tuple[str, ...]
    site: str
    pattern: str


def series_of(points: Sequence[Point]) -> Series:
    """The series of points of one workload and one set of knobs, by n."""
    ordered = tuple(sorted(points, key=lambda one: one.n))
    names = sorted({name for point in ordered for name in point.counts})
    fits = [growth("seconds", [(one.n, one.seconds) for one in ordered])]
    fits += [growth(name, [(one.n, one.counts.get(name, 0)) for one in ordered]) for name in names]
    grown = tuple(fit for fit in fits if fit is not None)
    steep = tuple(one.of for one in grown if one.of != "seconds" and one.interval and one.interval[0] > STEEP)
    last = ordered[-1]
    return Series(
        torch=last.torch,
        workload=last.workload,
        knobs=last.knobs,
        points=ordered,
        growth=grown,
        steep=steep,
        site=next(iter(last.askers), ""),
        pattern=next(iter(last.patterns), ""),
    )


def longest(series: Sequence[Series]) -> tuple[Series, ...]:
    """The series with the default knobs that reaches the largest n, for each workload and version of torch."""
    found: dict[tuple[str, str], Series] = {}
    for one in series:
        key = (one.workload, one.torch)
        if one.knobs == "default" and (key not in found or one.points[-1].n > found[key].points[-1].n):
            found[key] = one
    return tuple(found.values())


INTERVAL: Final = 0.002
"""Seconds between two samples."""

Where = tuple[str, str, int]
"""A function: its name, its file as torch's own code names files (`torch/_ops.py`), and its first line."""


@dataclass(slots=True)
class Samples:
    """The stacks that were seen, outermost function first, each with the seconds until the next sample."""

    stacks: list[tuple[tuple[Where, ...], float]] = field(default_factory=list)


@contextmanager
def sampled() -> Iterator[Samples]:
    """Sample this thread while the block runs, from a thread of its own."""
    samples, thread, ended = Samples(), threading.get_ident(), threading.Event()
    depth = len(_stack(sys._getframe(2)))  # the caller, behind the context manager

    def watch() -> None:
        before = time.perf_counter()
        while not ended.wait(INTERVAL):
            # A frame that stays referenced keeps its tensors, which export takes for leaked constants.
            stack = _stack(sys._current_frames().get(thread))[depth:]
            now = time.perf_counter()
            if stack:
                samples.stacks.append((stack, now - before))
            before = now

    switching = sys.getswitchinterval()
    sys.setswitchinterval(INTERVAL / 4)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield samples
    finally:
        ended.set()
        watcher.join()
        sys.setswitchinterval(switching)


def _stack(frame: FrameType | None) -> tuple[Where, ...]:
    found: list[Where] = []
    while frame is not None:
        code = frame.f_code
        file = code.co_filename.replace("\\", "/").rpartition("/site-packages/")[2]
        found.append((code.co_qualname if sys.version_info >= (3, 11) else code.co_name, file, code.co_firstlineno))
        frame = frame.f_back
    return tuple(reversed(found))


def speedscope(profiles: dict[str, Profiled], exporter: str) -> dict[str, Any]:
    """The stacks in speedscope's own format (https://www.speedscope.app/file-format-schema.json), a profile each."""
    frames: dict[tuple[str, str, int], int] = {}
    written = []
    for name, one in profiles.items():
        number = [frames.setdefault(function, len(frames)) for function in one.functions]
        weights = [round(seconds, 6) for _, seconds in one.stacks]
        written.append(
            {
                "type": "sampled",
                "name": name,
                "unit": "seconds",
                "startValue": 0,
                "endValue": round(sum(weights), 6),
                "samples": [[number[at] for at in stack] for stack, _ in one.stacks],
                "weights": weights,
            }
        )
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": exporter,
        "shared": {"frames": [{"name": name, "file": file, "line": line} for name, file, line in frames]},
        "profiles": written,
    }
