"""Where tasks run: in processes of this machine, or in those of the nodes of a Ray cluster (`cluster`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from ddefuzz.errors import InputError
from ddefuzz.execute import worker
from ddefuzz.execute.pool import TASKS_PER_WORKER, Future, Pool
from ddefuzz.files import to_install

A = TypeVar("A")
R = TypeVar("R")

EngineName: TypeAlias = Literal["local", "ray"]

Note: TypeAlias = Callable[[str], None]
"""Gets a line about a node that begins or ends to work. It may be called in another thread."""


class Workers(Protocol):
    """Runs tasks in warm workers, or each in a process that has captured nothing yet."""

    @property
    def jobs(self) -> int:
        """How many tasks run at once."""

    def submit(self, function: Callable[[A], R], argument: A, timeout: float, *, cold: bool = False) -> Future[R]:
        """Run `function(argument)` for at most `timeout` CPU seconds, in a fresh process if `cold`."""


class Setup(msgspec.Struct, frozen=True):
    """How workers are set up. `files` are text files that they read, each by the environment variable that has its
    path: a node has none of the driver's files.
    """

    tasks_per_worker: int = TASKS_PER_WORKER
    files: dict[str, str] = {}


class LocalWorkers:
    """`jobs` warm workers, and up to as many cold processes at a time. Use it in a `with` block.

    `journal` is the folder to which workers write what they do.
    """

    def __init__(self, jobs: int, journal: Path, tasks_per_worker: int = TASKS_PER_WORKER) -> None:
        self.jobs = jobs
        self._stack = ExitStack()
        self._warm = self._stack.enter_context(Pool(jobs, journal, tasks_per_worker))
        self._cold = self._stack.enter_context(Pool(jobs, journal, tasks_per_worker=1))

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def submit(self, function: Callable[[A], R], argument: A, timeout: float, *, cold: bool = False) -> Future[R]:
        """Run `function(argument)` for at most `timeout` CPU seconds, in a fresh process if `cold`."""
        return (self._cold if cold else self._warm).submit(function, argument, timeout)


class Engine(NamedTuple):
    """This machine, or the nodes of the Ray cluster at `address`. Without an address Ray takes that of the environment
    variable RAY_ADDRESS, or starts a cluster on this machine. `note` gets a line about each node.
    """

    name: EngineName = "local"
    address: str = ""
    note: Note = lambda _line: None

    def start(self, jobs: int, journal: Path, setup: Setup) -> AbstractContextManager[Workers]:
        """`jobs` workers of this machine, or of each node (0: as many as Ray counts CPUs there), in a `with` block.

        What they write of their tasks is in the folder `journal`.
        """
        if self.name == "local":
            return LocalWorkers(jobs, journal, setup.tasks_per_worker)
        try:
            cluster: Any = worker.late("ddefuzz.execute.cluster")
        except ModuleNotFoundError as error:
            if error.name != "ray":
                raise
            raise InputError(f"--engine ray: found no ray, expected the extra `ray`: {to_install('ray')}") from error
        workers: AbstractContextManager[Workers] = cluster.Cluster(self, jobs, journal, setup)
        return workers


LOCAL: Final = Engine()
