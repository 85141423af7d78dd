"""The fork server: the process that has imported torch once, and of which all workers are forks.

`Watchdog` continues or kills it if something has stopped it.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import time
from contextlib import suppress
from functools import cache
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from tempfile import gettempdir
from threading import Event, Lock, Thread
from typing import Any, Final, TypeVar
from unittest.mock import patch

import psutil  # type: ignore[import-untyped]

from ddefuzz import internal
from ddefuzz.errors import UnsupportedError
from ddefuzz.execute import worker
from ddefuzz.execute.channel import FileLock, pipe
from ddefuzz.execute.scratch import UNREADABLE, scratch_folder

POLL_SECONDS: Final = 1.0

STOPPED_POLLS: Final = 5
"""After this many polls in a row that find the server stopped, it is continued; after twice as many it is killed.

Polls are counted, not seconds, because Ctrl-Z in a terminal stops this process as well.
"""


class Watchdog:
    """Watches from a thread of its own until `end` is called."""

    def __init__(self) -> None:
        self._ended = Event()
        self._thread = Thread(target=self._watch, name="ddefuzz-watchdog", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        polls = 0
        while not self._ended.wait(POLL_SECONDS):
            server = server_process()
            polls = polls + 1 if _is_stopped(server) else 0
            if server is not None and polls >= STOPPED_POLLS:
                _send(server, signal.SIGCONT if polls < 2 * STOPPED_POLLS else signal.SIGKILL)


def server_process() -> psutil.Process | None:
    """The process of the fork server. multiprocessing has no public name for it."""
    number = getattr(vars(forkserver)["_forkserver"], "_forkserver_pid", None)
    try:
        return psutil.Process(number) if number is not None else None
    except UNREADABLE:
        return None


def _is_stopped(server: psutil.Process | None) -> bool:
    try:
        return server is not None and server.status() == psutil.STATUS_STOPPED
    except UNREADABLE:
        return False


def wait_for_end(server: psutil.Process | None) -> None:
    """Wait up to 2 seconds for the end of the server."""
    with suppress(*UNREADABLE):
        for _ in range(100):
            if server is None or server.status() == psutil.STATUS_ZOMBIE:
                return
            time.sleep(0.02)


def _send(server: psutil.Process, number: signal.Signals) -> None:
    try:
        server.send_signal(number)
    except UNREADABLE:
        return


C = TypeVar("C", bound=ForkServerContext)

PRELOAD, PRELOAD_SAMPLES = "ddefuzz.execute.preload", "ddefuzz.execute.preload_samples"

_STARTING = Lock()
"""Held while the environment is changed for the fork server: the pool starts workers in a thread of its own."""

SOCKET_FOLDER_BYTES = 89
"""How long the path of the folder of a socket may be: of the 107 bytes of the socket's own, 18 are its name."""


class ColdContext(ForkServerContext):
    """The context of cold processes."""

    Process = worker.MainlessProcess


class PoolContext(ForkServerContext):
    """The context of a pool: its locks and pipes, and a fork server that is always started by `start_server`."""

    def RLock(self) -> FileLock:  # type: ignore[override]  # noqa: N802
        """A new lock."""
        return FileLock()

    def Pipe(self, duplex: bool = True) -> tuple[Any, Any]:  # noqa: N802
        """A pipe that user code in a worker cannot spoil unnoticed."""
        return super().Pipe(duplex) if duplex else pipe(*super().Pipe(duplex))

    def Process(self, **named: Any) -> worker.WorkerProcess:  # type: ignore[override]  # noqa: N802
        """A new process. multiprocessing would start a server that has died without what workers need."""
        start_server()
        return worker.WorkerProcess(**named)


def fork_server(context: C, *, samples: bool = True) -> C:
    """The context. Its server starts here and imports torch once."""
    context.set_forkserver_preload([PRELOAD_SAMPLES if samples else PRELOAD, "__main__"])
    start_server()
    return context


def end_server() -> None:
    """End the fork server, if it runs."""
    if (server := server_process()) is not None:
        _send(server, signal.SIGKILL)
        wait_for_end(server)


@cache
def _ended_with(process: int) -> None:
    """The fork server ends with this process, before the temporary folder is removed. Left alone it would first import
    torch to its end.
    """

    def end() -> None:
        if os.getpid() == process:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            end_server()

    atexit.register(end)


def start_server() -> None:
    """Start the fork server, unless it runs.

    The server and its forks block Ctrl-C: a terminal sends it to every process, and the campaign decides when
    they end. Strings have the same hash in all of them, because torch iterates over sets of strings (the
    samples of `meshgrid`). The server and the resource tracker import nothing from the current folder, which
    `python -c` would search first.
    """
    scratch = str(scratch_folder())
    if len(os.fsencode(scratch)) <= SOCKET_FOLDER_BYTES:
        # Else multiprocessing makes a folder of its own for the server's socket, which a kill leaves behind.
        vars(multiprocessing.current_process())["_config"].setdefault("tempdir", scratch)
    started = {"PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "0", "TMPDIR": scratch, internal.FOLDER: internal.folder()}
    with _STARTING, worker.main_hidden(), patch.dict(os.environ, started):
        resource_tracker.ensure_running()  # here, because starting it unblocks Ctrl-C
        _ended_with(os.getpid())
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        except OSError as error:
            if error.errno is not None:
                raise
            raise UnsupportedError(
                f"the fork server cannot be started with its socket below {gettempdir()}: {error}, "
                "expected TMPDIR to name a folder whose path has at most 70 bytes"
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
