"""SIGTERM and SIGHUP end a command as Ctrl-C does: its workers end, and its temporary folder is removed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from ddefuzz.errors import EXIT_INTERRUPTED

ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal that asks the process to end has arrived."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def said_of(error: BaseException) -> tuple[str, int]:
    """What is said of an interrupted command, and its exit code: 128 plus the number of the signal."""
    if isinstance(error, Ended):
        return f"stopped by {signal.Signals(error.number).name}", 128 + error.number
    return "interrupted", EXIT_INTERRUPTED


@contextmanager
def ends_by_exception() -> Iterator[None]:
    """Raise `Ended` in the main thread when one of `ENDING` arrives. A signal that is ignored (nohup) stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    ours = [number for number, handler in before.items() if handler is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    raise Ended(number)
