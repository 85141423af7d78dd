"""Run the same programs under two interpreters at once: the programs that the first has drawn or run are given to the
second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from tempfile import TemporaryFile
from threading import Thread
from typing import Final, NamedTuple

import msgspec

from ddefuzz.errors import UnsupportedError
from ddefuzz.versions.model import Interpreter
from ddefuzz.versions.observed import Ask, CaseSeen

STOP_SECONDS: Final = 20.0
"""How long a process may take to end its workers after SIGINT."""

Listen = Callable[[int, int], None]


class Side(NamedTuple):
    """What is compared: an interpreter that runs the programs, or results of before."""

    name: str
    torch: str
    interpreter: Interpreter | None = None
    saved: tuple[CaseSeen, ...] = ()


def run_both(
    old: Side, new: Side, asks: Iterable[Ask], jobs: int, seconds: float | None, listen: Listen
) -> tuple[tuple[CaseSeen, ...], tuple[CaseSeen, ...], bool]:
    """The results of both sides, and whether all programs were run. `listen` gets the number done by each.

    `asks` are for the old side. The new side gets the texts that come back. Ctrl-C and the end of `seconds` stop both;
    what they have done until then is returned.
    """
    was: list[CaseSeen] = list(old.saved)
    now: list[CaseSeen] = list(new.saved)
    first = _Process(old.interpreter, jobs) if old.interpreter else None
    second = _Process(new.interpreter, jobs) if new.interpreter else None

    def on_old(case: CaseSeen) -> None:
        was.append(case)
        if second is not None and case.text:
            second.ask(Ask(case.number, case.stage, case.text))

    if first is not None:
        first.read(on_old)
    if second is not None:
        second.read(now.append)
    ends = None if seconds is None else time.monotonic() + seconds
    finished = False
    try:
        if first is not None:
            for ask in asks:
                first.ask(ask)
            first.close()
        elif second is not None:
            for case in old.saved:
                if case.text:
                    second.ask(Ask(case.number, case.stage, case.text))
        finished = _wait(first, ends, lambda: listen(len(was), len(now)))
        if finished and second is not None:
            second.close()
            finished = _wait(second, ends, lambda: listen(len(was), len(now)))
    except KeyboardInterrupt:
        pass
    finally:
        for process in (first, second):
            if process is not None:
                process.stop()
    for process in (first, second):
        if process is not None:
            process.check(finished)
    return tuple(was), tuple(now), finished


def _wait(process: _Process | None, ends: float | None, tick: Callable[[], None]) -> bool:
    while process is not None and process.is_reading():
        if ends is not None and time.monotonic() > ends:
            return False
        tick()
    return True


class _Process:
    """`ddefuzz.versions.see` under an interpreter that has ddefuzz."""

    def __init__(self, interpreter: Interpreter, jobs: int) -> None:
        self._python = interpreter.python
        self._errors = TemporaryFile()  # noqa: SIM115 closed with the process
        self._process = subprocess.Popen(
            [interpreter.python, "-P", "-m", "ddefuzz.versions.see", str(jobs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._reader = Thread(target=lambda: None)
        self._wrong = b""

    def ask(self, ask: Ask) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it has ended: `check` says how
            self._process.stdin.write(msgspec.json.encode(ask) + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def read(self, listen: Callable[[CaseSeen], None]) -> None:
        """Start to read the answers in a thread."""

        def lines() -> None:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                try:
                    listen(msgspec.json.decode(line, type=CaseSeen))
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    if line.endswith(b"\n"):  # else it is cut off where the process was ended
                        self._wrong = line
                    return

        self._reader = Thread(target=lines, daemon=True)
        self._reader.start()

    def is_reading(self) -> bool:
        """Whether answers can still come. Waits a little."""
        self._reader.join(0.2)
        return self._reader.is_alive()

    def check(self, finished: bool) -> None:
        """Close its files. If it was not stopped, raise `UnsupportedError` if it has printed something else than
        results, or has ended by an error.
        """
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            if file is not None:
                with suppress(BrokenPipeError):
                    file.close()
        where = f"{self._python} -m ddefuzz.versions.see"
        if finished and self._wrong:
            found = self._wrong[:80].decode(errors="replace").strip()
            raise UnsupportedError(f"{where}: printed {found!r}, expected the result of a program")
        if finished and code:
            raise UnsupportedError(f"{where}: ended with {said[-1] if said else f'exit code {code}'}, expected 0")

    def stop(self) -> None:
        """End it and its workers, if it is running."""
        if self._process.poll() is None and self._reader.is_alive():
            self._process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
