"""Run the same programs under two interpreters at once: the programs that the first has drawn or run are given to the
second. What each did is a plain record, which `ddefuzz diff` compares. No torch here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from threading import Thread
from typing import Final, NamedTuple

import msgspec

from ddefuzz.classify.signature import Signature
from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.execute.protocol import Stage
from ddefuzz.files import json_lines, parse_json
from ddefuzz.versions.model import Interpreter
from ddefuzz.versions.run import interpreter_of

SCHEMA = "ddefuzz.seen/1"

STOP_SECONDS: Final = 20.0
"""How long a process may take to end its workers after SIGINT."""


class Ask(msgspec.Struct, frozen=True):
    """A program to run in a stage: a text, or the case `number` of the uniform campaign with this profile and seed."""

    number: int
    stage: Stage
    text: str = ""
    profile: str = ""
    seed: int = 0


class GuardSeen(msgspec.Struct, frozen=True, order=True):
    """An undecided guard. `site` is file, function and method without a line, because lines differ by version.

    `shape` is its expression without the names of symbols, `answer` the fallback it took, or `raised`.
    """

    site: str
    shape: str
    answer: str


class CaseSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one program under one torch. `outcome` is that of the run: ok, fail, not-judged, crash or timeout.

    `text` is empty if the worker was lost while it was drawn. `reason` says why the case is not judged.
    """

    number: int
    stage: Stage
    torch: str
    text: str
    outcome: str
    reason: str = ""
    failures: tuple[Signature, ...] = ()
    guards: tuple[GuardSeen, ...] = ()
    schema: str = SCHEMA


def read_saved(path: Path) -> tuple[CaseSeen, ...]:
    """The results in a file of JSON lines that `ddefuzz diff --save` wrote. Raises `InputError`."""
    cases: list[CaseSeen] = []
    for where, case in json_lines(path, CaseSeen, "a line that `ddefuzz diff --save` wrote"):
        if case.schema != SCHEMA:
            raise InputError(f"{where}: found the schema {case.schema!r}, expected {SCHEMA!r}")
        cases.append(case)
    if not cases:
        raise InputError(f"{path}: found no line, expected results that `ddefuzz diff --save` wrote")
    return tuple(cases)


def saved_text(cases: Iterable[CaseSeen]) -> str:
    """The text of such a file, in order of the cases."""
    return "".join(
        msgspec.json.encode(case).decode() + "\n" for case in sorted(cases, key=lambda case: (case.number, case.stage))
    )


class Side(NamedTuple):
    """What is compared: an interpreter that runs the programs, or results of before."""

    name: str
    torch: str
    interpreter: Interpreter | None = None
    saved: tuple[CaseSeen, ...] = ()


def side_of(typed: str) -> Side:
    """The side `[NAME=]PATH`. Raises `InputError`."""
    name, _, path = typed.rpartition("=")
    if "/" in name:
        raise InputError(f"{typed}: found the name {name!r}, expected one without a slash")
    if path.endswith(".jsonl"):
        saved = read_saved(Path(path))
        return Side(name or Path(path).stem, saved[0].torch, saved=saved)
    interpreter = interpreter_of(typed)
    if not interpreter.full:
        raise InputError(f"{path}: found an interpreter without ddefuzz, expected one that can import it")
    return Side(interpreter.name, interpreter.torch, interpreter)


def run_both(
    old: Side, new: Side, asks: Iterable[Ask], jobs: int, seconds: float | None, listen: Callable[[int, int], None]
) -> tuple[tuple[CaseSeen, ...], tuple[CaseSeen, ...], bool]:
    """The results of both sides, and whether all programs were run. `listen` gets the number done by each.

    `asks` are for the old side. The new side gets the texts that come back. Ctrl-C and the end of `seconds` stop both;
    what they have done until then is returned.
    """
    was, now = list(old.saved), list(new.saved)
    second = _Process(new.interpreter, jobs, now.append) if new.interpreter else None

    def forward(case: CaseSeen) -> None:
        if second is not None and case.text:
            second.ask(Ask(case.number, case.stage, case.text))

    def on_old(case: CaseSeen) -> None:
        was.append(case)
        forward(case)

    first = _Process(old.interpreter, jobs, on_old) if old.interpreter else None
    processes = [process for process in (first, second) if process is not None]
    ends = None if seconds is None else time.monotonic() + seconds
    finished = False
    try:
        if first is None:
            for case in old.saved:
                forward(case)
        else:
            for ask in asks:
                first.ask(ask)
        finished = all(process.ended(ends, lambda: listen(len(was), len(now))) for process in processes)
    except KeyboardInterrupt:
        pass
    finally:
        for process in processes:
            process.stop()
    for process in processes:
        process.check(finished)
    return tuple(was), tuple(now), finished


class _Process:
    """`ddefuzz.versions.see` under an interpreter that has ddefuzz. Its answers are read in a thread."""

    def __init__(self, interpreter: Interpreter, jobs: int, listen: Callable[[CaseSeen], None]) -> None:
        self._python = interpreter.python
        self._listen = listen
        self._errors = TemporaryFile()  # noqa: SIM115 closed with the process
        self._process = subprocess.Popen(
            [interpreter.python, "-P", "-m", "ddefuzz.versions.see", str(jobs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._wrong = b""
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, ask: Ask) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it has ended: `check` says how
            self._process.stdin.write(msgspec.json.encode(ask) + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                case = parse_json(line, CaseSeen, "", "")
            except InputError:
                if line.endswith(b"\n"):  # else it is cut off where the process was ended
                    self._wrong = line
                return
            self._listen(case)

    def ended(self, ends: float | None, tick: Callable[[], None]) -> bool:
        """Ask no more, and wait for the last answer. Returns False if time is up before."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        while self._reader.is_alive():
            if ends is not None and time.monotonic() > ends:
                return False
            tick()
            self._reader.join(0.2)
        return True

    def check(self, finished: bool) -> None:
        """Close its files. If it was not stopped, raise `UnsupportedError` if it has printed something else than
        results, or has ended by an error.
        """
        code = self._process.wait()
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace").strip().splitlines()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            if file is not None:
                with suppress(BrokenPipeError):
                    file.close()
        where = f"{self._python} -m ddefuzz.versions.see"
        if finished and self._wrong:
            start = self._wrong[:80].decode(errors="replace").strip()
            raise UnsupportedError(f"{where}: printed {start!r}, expected the result of a program")
        if finished and code:
            raise UnsupportedError(f"{where}: ended with {errors[-1] if errors else f'exit code {code}'}, expected 0")

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
