"""A watchdog for the fork server. While the server is stopped (SIGSTOP), no worker can start, and nothing else reports
it.
"""

from __future__ import annotations

import signal
from multiprocessing import forkserver
from threading import Event, Thread
from typing import Final

import psutil  # type: ignore[import-untyped]

POLL_SECONDS: Final = 1.0

STOPPED_POLLS: Final = 5
"""After this many polls in a row that find the server stopped, it is continued; after twice as many it is killed.

Polls are counted, not seconds, because Ctrl-Z in a terminal stops this process as well.
"""


UNREADABLE: Final = (psutil.Error, OSError)
"""What is raised if a process has ended, or if no descriptor is left to read about it."""


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
            server = _fork_server()
            polls = polls + 1 if _is_stopped(server) else 0
            if server is not None and polls >= STOPPED_POLLS:
                _send(server, signal.SIGCONT if polls < 2 * STOPPED_POLLS else signal.SIGKILL)


def _fork_server() -> psutil.Process | None:
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


def _send(server: psutil.Process, number: signal.Signals) -> None:
    try:
        server.send_signal(number)
    except UNREADABLE:
        return
