"""The processes of a campaign: warm workers for most tasks, and a new process for each confirmation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from ddefuzz.execute.pool import Future, Pool

A = TypeVar("A")
R = TypeVar("R")


class Workers:
    """`jobs` warm workers, and up to as many cold processes at a time. Use it in a `with` block."""

    def __init__(self, jobs: int, journal: Path) -> None:
        self._stack = ExitStack()
        self._warm = self._stack.enter_context(Pool(jobs, journal))
        self._cold = self._stack.enter_context(Pool(jobs, journal, tasks_per_worker=1))

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def submit(self, function: Callable[[A], R], argument: A, timeout: float, *, cold: bool = False) -> Future[R]:
        """Run `function(argument)` for at most `timeout` seconds, in a fresh process if `cold`."""
        return (self._cold if cold else self._warm).submit(function, argument, timeout)
