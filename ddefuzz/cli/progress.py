"""Show progress on stderr: a live line on a terminal, a plain line from time to time elsewhere."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event as Flag
from types import FrameType, TracebackType

from rich.console import Console
from rich.text import Text

from ddefuzz.cli.output import plain, progress_console
from ddefuzz.cli.streams import in_log
from ddefuzz.escape import visible
from ddefuzz.show.blocks import counted

LINE_SECONDS = 10.0
"""The time between plain lines without a terminal."""


class LiveLine:
    """The line. Use it in a `with` block. Markup is not interpreted, and lines are not wrapped."""

    def __init__(
        self, starting: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or progress_console()
        self._status = self._console.status(plain(starting))
        self._clock = clock
        self._last = clock()

    def __enter__(self) -> LiveLine:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._status.stop()

    def say(self, line: str | Text) -> None:
        """Write a permanent line."""
        self._console.print(Text(in_log(visible(line))) if isinstance(line, str) else line, soft_wrap=True)

    def counter(self, of: int, noun: str) -> Callable[[str], None]:
        """What is called when one of so many is done, with more to say of it."""
        numbers = count(1)

        def tick(said: str) -> None:
            done = next(numbers)
            self.update(f"{done} of {counted(of, noun)}{said}", is_last=done == of)

        return tick

    def update(self, line: str, *, is_last: bool = False) -> None:
        """Change the live line. Without a terminal, write it if enough time has passed or it is the last."""
        if self._console.is_terminal:
            self._status.update(plain(line))
            return
        now = self._clock()
        if is_last or now - self._last >= LINE_SECONDS:
            self._last = now
            self.say(line)


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM (a cancelled job) requests a stop, so that current results are saved. The second one
    stops at once.
    """
    requested = Flag()

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()
        sys.stderr.write("\nstopping, and saving what was found (press Ctrl-C again to stop at once)\n")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested.is_set
    finally:
        for number, old in before.items():
            signal.signal(number, old)
