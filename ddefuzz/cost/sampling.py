"""In which function of torch CPU time is spent while code runs, and how that grows with n.

Own times come from samples of the stack, the times of calls from a profiler.
"""

from __future__ import annotations

import math
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from cProfile import Profile
from dataclasses import dataclass, field
from pstats import Stats
from statistics import linear_regression
from types import FrameType
from typing import Any, NamedTuple

import msgspec

from ddefuzz.instrument import frames, torch_api

INTERVAL_SECONDS = 0.002
"""The CPU time between two samples; the kernel may take them less often.

The timer is that of user time: a task's limit has the one of all CPU time.
"""

_TORCH = "torch/"
_PASS_ON = (*torch_api.WRAPPER_FILES, torch_api.DISABLE_DYNAMO_FILE)
_WRAPPERS = (
    "wrapper",
    "inner",
    "_fn",
    "_tensor_min_max",
    "<listcomp>",
    "<dictcomp>",
    "<setcomp>",
    "<genexpr>",
    "<lambda>",
)
"""Files and functions that only call another function: its time is not theirs, and they say nothing in a chain."""


class Function(NamedTuple):
    """A function by its file, relative to the folder of packages, and its name."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


@dataclass(slots=True)
class Samples:
    """The stacks that were seen, outermost function first, with the CPU seconds of each."""

    stacks: dict[tuple[Function, ...], float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The CPU time in all."""
        return sum(self.stacks.values())

    def own(self) -> dict[Function, float]:
        """The CPU seconds of each function of torch: its own, with what it calls outside of torch, such as sympy."""
        spent: defaultdict[Function, float] = defaultdict(float)
        for stack, seconds in self.stacks.items():
            innermost = _innermost(stack)
            if innermost is not None:
                spent[stack[innermost]] += seconds
        return dict(sorted(spent.items(), key=lambda one: (-one[1], one[0])))

    def chain(self, function: Function, most: int = 6) -> tuple[Function, ...]:
        """The functions of torch through which `function` is called most, outermost first, without itself."""
        chains: defaultdict[tuple[Function, ...], float] = defaultdict(float)
        for stack, seconds in self.stacks.items():
            innermost = _innermost(stack)
            if innermost is not None and stack[innermost] == function:
                callers = dict.fromkeys(one for one in reversed(stack[:innermost]) if _counts(one) and one != function)
                chains[tuple(reversed(list(callers)[:most]))] += seconds
        return max(chains, key=lambda one: (chains[one], one), default=())


def _innermost(stack: Sequence[Function]) -> int | None:
    return next((at for at in reversed(range(len(stack))) if _counts(stack[at])), None)


def _counts(function: Function) -> bool:
    own = function.file.startswith(_TORCH) and not any(function.file in wrappers for wrappers in _PASS_ON)
    return own and function.name not in _WRAPPERS


@contextmanager
def sampled() -> Iterator[Samples]:
    """Sample the stack of the main thread while the block runs, in CPU time of the process."""
    samples, known, before = Samples(), dict[Any, Function](), time.process_time()

    def note(_number: int, frame: FrameType | None) -> None:
        nonlocal before
        stack: list[Function] = []
        while frame is not None:
            code = frame.f_code
            function = known.get(code)
            if function is None:
                function = known[code] = Function(frames.display_file(code.co_filename), code.co_name)
            stack.append(function)
            frame = frame.f_back
        key, now = tuple(reversed(stack)), time.process_time()
        samples.stacks[key] = samples.stacks.get(key, 0.0) + now - before
        before = now

    handler = signal.signal(signal.SIGVTALRM, note)
    signal.setitimer(signal.ITIMER_VIRTUAL, INTERVAL_SECONDS, INTERVAL_SECONDS)
    try:
        yield samples
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)


class Fit(msgspec.Struct, frozen=True):
    """The fit `value ~ n ** exponent`, with its 95% interval; None for fewer than three points."""

    exponent: float
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        return f"{self.exponent:.2f}" + (
            f" ({self.interval[0]:.2f} to {self.interval[1]:.2f})" if self.interval else ""
        )


_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t, two-sided 95%, for 1 to 10 degrees of freedom."""


def fit(points: Sequence[tuple[int, float]]) -> Fit | None:
    """The exponent of (n, value), by least squares of their logarithms. None for fewer than two positive values.

    >>> print(fit([(2, 8.0), (4, 32.0), (8, 128.0)]))
    2.00 (2.00 to 2.00)
    """
    positive = [(math.log(n), math.log(value)) for n, value in points if value > 0]
    xs, ys = [x for x, _ in positive], [y for _, y in positive]
    if len(xs) < 2:
        return None
    slope, offset = linear_regression(xs, ys)
    if len(xs) == 2:
        return Fit(round(slope, 3))
    middle = sum(xs) / len(xs)
    spread = sum((x - middle) ** 2 for x in xs)
    error = sum((y - offset - slope * x) ** 2 for x, y in positive) / (len(xs) - 2)
    half = _T[min(len(xs) - 2, len(_T)) - 1] * math.sqrt(error / spread)
    low, middle, high = (round(value, 3) + 0.0 for value in (slope - half, slope, slope + half))  # no -0.0
    return Fit(middle, (low, high))


class FunctionGrowth(msgspec.Struct, frozen=True):
    """A function whose own CPU time grows faster than n: `seconds` at the largest n, of the `share` of all.

    `chain` are its callers. `blamed` is the innermost of them that is not called more than n times, if the function
    itself is: that one calls it in a loop.
    """

    function: str
    seconds: float
    share: float
    fit: Fit
    chain: tuple[str, ...] = ()
    blamed: str = ""

    @property
    def culprit(self) -> str:
        """The function to look at."""
        return self.blamed or self.function


class CpuTimes(msgspec.Struct, frozen=True):
    """The CPU seconds of a run, and those of each function of torch alone, with its callers.

    `calls` says how often each of these functions was called.
    """

    seconds: float
    own: dict[str, float]
    chains: dict[str, tuple[str, ...]]
    calls: dict[str, int] = {}


MOST_FUNCTIONS = 60


def times_of(samples: Samples, profile: Profile | None = None) -> CpuTimes:
    """What the samples say, without their stacks, and the profiler of the same in another run."""
    own = dict(list(samples.own().items())[:MOST_FUNCTIONS])
    chains = {str(function): tuple(map(str, samples.chain(function))) for function in own}
    wanted = {*chains, *(one for chain in chains.values() for one in chain)}
    calls = {name: number for name, number in _calls(profile).items() if name in wanted} if profile else {}
    return CpuTimes(samples.seconds, {str(function): round(spent, 4) for function, spent in own.items()}, chains, calls)


def _calls(profile: Profile) -> dict[str, int]:
    """How often each function was called. Functions of one file with one name are one."""
    calls: defaultdict[str, int] = defaultdict(int)
    for (file, _, name), (_, number, *_) in vars(Stats(profile))["stats"].items():
        calls[str(Function(frames.display_file(file), name))] += number
    return calls


OFTEN = 1.25
"""A function whose number of calls grows as n to more than this power is called in a loop over what grows."""

EXCESS = 1.3
"""A function grows faster than n if its time is this many times what it would be if it grew as n, errors considered."""

APART = 4
"""The two n that are compared are about this many times apart."""

TICK_SECONDS = 0.004
"""The CPU time that a sample stands for: the kernel's tick, on most machines."""


def growing(points: Mapping[int, CpuTimes], most: int = 5) -> tuple[FunctionGrowth, ...]:
    """The functions whose own time grows faster than n, by the seconds that they would not have if it did not.

    The time at the largest n is compared with that at a quarter of it, each with twice its error as a count of samples.
    The fit over all n has to grow faster than n, too, and surely to grow: a garbage collection is in few samples.
    """
    if len(points) < 3:
        return ()
    largest = max(points)
    smaller = min((n for n in points if n < largest), key=lambda n: abs(largest - APART * n))
    last, factor = points[largest], largest / smaller
    rows: list[tuple[float, FunctionGrowth]] = []
    for function, seconds in last.own.items():
        before = max(points[smaller].own.get(function, 0.0), TICK_SECONDS)
        fitted = fit([(n, times.own.get(function, 0.0)) for n, times in sorted(points.items())])
        if fitted is None or fitted.interval is None or fitted.exponent <= 1 or fitted.interval[0] <= 0:
            continue
        if seconds - _error(seconds) > EXCESS * factor * (before + _error(before)):
            chain = last.chains[function]
            blamed = _blamed(points, function, chain)
            growth = FunctionGrowth(function, seconds, seconds / last.seconds, fitted, chain, blamed)
            rows.append((seconds - factor * before, growth))
    rows.sort(key=lambda one: (-one[0], one[1].function))
    return tuple(growth for _, growth in rows[:most])


def _error(seconds: float) -> float:
    return 2 * math.sqrt(seconds * TICK_SECONDS)


def _blamed(points: Mapping[int, CpuTimes], function: str, chain: Sequence[str]) -> str:
    """The innermost caller that is called about n times; empty if the function is, or if nothing is known of calls."""

    def is_often(name: str) -> bool | None:
        fitted = fit([(n, float(times.calls.get(name, 0))) for n, times in sorted(points.items())])
        return None if fitted is None or fitted.interval is None else fitted.exponent > OFTEN

    if not is_often(function):
        return ""
    return next((caller for caller in reversed(chain) if is_often(caller) is False), "")


def speedscope(samples: Samples, name: str) -> dict[str, Any]:
    """The samples as https://www.speedscope.app reads them."""
    numbers: dict[Function, int] = {}
    stacks, weights = [], []
    for stack, seconds in samples.stacks.items():
        stacks.append([numbers.setdefault(function, len(numbers)) for function in stack])
        weights.append(round(seconds, 6))
    profile = {
        "type": "sampled",
        "name": name,
        "unit": "seconds",
        "startValue": 0,
        "endValue": round(sum(weights), 6),
        "samples": stacks,
        "weights": weights,
    }
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": function.name, "file": function.file} for function in numbers]},
        "profiles": [profile],
        "name": name,
        "exporter": "ddefuzz",
    }
