"""Times functions in turn, so that a slower moment of the machine meets them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

SLICE_SECONDS = 0.004
"""CPU seconds of the calls that one round measures of a function."""


class Duration(NamedTuple):
    """Seconds by the clock and of CPU time."""

    seconds: float
    cpu_seconds: float


def in_turn(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    repeats: Sequence[int] = (),
    stopped: Callable[[], bool] = lambda: False,
    cpu_clock: Callable[[], float] = time.process_time,
) -> list[list[Duration]]:
    """What one call of each function takes in each round. `repeats` says how often each is called in a round.

    Raises KeyboardInterrupt if stopped. In a process with a limit of CPU time, `time.process_time` advances by ticks of
    up to 10 ms. Calls that take less and stay in one thread need `time.thread_time`.
    """
    spent: list[list[Duration]] = [[] for _ in calls]
    for _ in range(rounds):
        if stopped():
            raise KeyboardInterrupt
        for call, number, own in zip(calls, repeats or [1] * len(calls), spent, strict=True):
            clock, cpu = time.perf_counter(), cpu_clock()
            for _ in range(number):
                call()
            own.append(Duration((time.perf_counter() - clock) / number, (cpu_clock() - cpu) / number))
    return spent


def microseconds(calls: Sequence[Callable[[], Any]], rounds: int) -> list[tuple[float, ...]]:
    """CPU microseconds of a call of each function in each round. Short ones are called as often as fits in a slice."""
    spent = in_turn(calls, rounds, list(map(_number, calls)), cpu_clock=time.thread_time)
    return [tuple(round(one.cpu_seconds * 1e6, 2) for one in of) for of in spent]


def _number(call: Callable[[], Any]) -> int:
    """How many calls take about a slice."""
    call()
    before = time.thread_time()
    call()
    return max(3, min(1000, int(SLICE_SECONDS / max(time.thread_time() - before, 1e-6))))
