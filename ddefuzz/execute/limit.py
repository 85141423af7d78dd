"""The limit of a task in CPU seconds of its worker. Seconds by the clock would depend on how busy the machine is.

The kernel's timer ends the process also while torch's C++ code keeps Python from running. It does not count the
compilers that inductor starts. `check_children` does, once they have ended.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from ddefuzz.errors import InputError

ENDS: Final = signal.SIGPROF
"""The signal by which a process ends that has used up its CPU seconds."""

CLOCK_FACTOR: Final = 5
"""A worker is stopped after this many times its limit by the clock: it sleeps, is stopped, or waits for something."""


MOST_SECONDS: Final = 86_400.0
"""The longest limit of time that can be chosen: a day."""


def check_seconds(what: str, seconds: object, *, none: bool = False) -> None:
    """Raises `InputError` for a time that is no number, above a day, or not above 0; with `none`, 0 is one too."""
    if not isinstance(seconds, int | float) or not 0 <= seconds <= MOST_SECONDS or (seconds == 0 and not none):
        raise InputError(f"{what}found {seconds!r}, expected 0 {'≤' if none else '<'} seconds ≤ {MOST_SECONDS:.0f}")


class _Limit(NamedTuple):
    """The CPU seconds of a task, and those that this process and its children had used when the task began."""

    seconds: float
    used: float


_limits: list[_Limit] = []
"""The limit of this process's task, if it has one."""


def clock_seconds(seconds: float) -> float:
    """How long a task with this limit of CPU seconds may take by the clock."""
    return CLOCK_FACTOR * seconds


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """End this process if what is done here takes more CPU seconds. With None there is no limit."""
    if seconds is None:
        yield
        return
    _limits.append(_Limit(seconds, cpu_seconds()))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        _limits.clear()


def check_children() -> None:
    """End this process if its task and the children that ended during it have used up the limit."""
    for limit in tuple(_limits):
        if cpu_seconds() - limit.used > limit.seconds:
            signal.raise_signal(ENDS)  # `os.kill` is refused while user code runs


def cpu_seconds() -> float:
    """The CPU seconds of this process and of its children that have ended, such as inductor's C++ compiler."""
    return time.process_time() + _of_children()


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
