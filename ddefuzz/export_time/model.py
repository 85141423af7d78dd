"""The workloads by name, the records of a series of measurements, and the exponent by which a count grows.

Does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import linear_regression
from typing import Final, Literal, NamedTuple

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
    result: Point = late("ddefuzz.export_time.measure").run_measure(task)
    return result


def run_profile(task: MeasureTask) -> Profiled:
    """Export once and sample the stack."""
    result: Profiled = late("ddefuzz.export_time.measure").run_profile(task)
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
