"""The processes in which stand-alone scripts run: a new interpreter for each, or children of one that is kept."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event
from typing import Final, NamedTuple

from ddefuzz.errors import UnsupportedError

SERVER: Final = Path(__file__).with_name("fork_server.py")
"""Its text is copied and run. It is not imported, because it imports torch of another interpreter."""


class Ended(NamedTuple):
    """How a script ended. `code` is None if it did not end within its time."""

    code: int | None
    output: str
    errors: str


class Cold:
    """A new process for each script."""

    def __init__(self, python: str, folder: Path, seconds: float) -> None:
        self._python = python
        self._folder = folder
        self._seconds = seconds
        self._stopped = Event()
        self._running: set[subprocess.Popen[str]] = set()

    def run(self, path: Path) -> Ended | None:
        """Run a script to its end. None after `stop`."""
        if self._stopped.is_set():
            return None
        # A process group of its own, because inductor starts processes.
        process = subprocess.Popen(
            [self._python, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=self._folder,
            start_new_session=True,
        )
        self._running.add(process)
        try:
            output, errors = process.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            return Ended(None, *process.communicate())
        finally:
            _kill(process)
            process.communicate()
            self._running.discard(process)
        return Ended(process.returncode, output, errors)

    def stop(self) -> None:
        """End what runs."""
        self._stopped.set()
        for process in tuple(self._running):
            _kill(process)


class Forked:
    """Several processes that have imported torch. Each runs one script at a time, in a child."""

    def __init__(self, python: str, folder: Path, jobs: int, seconds: float) -> None:
        self._stopped = Event()
        server = folder / "fork_server.py"
        server.write_text(SERVER.read_text(encoding="utf-8"), encoding="utf-8")
        self._servers = [_Server(python, server, seconds) for _ in range(jobs)]
        self._free: queue.SimpleQueue[_Server] = queue.SimpleQueue()
        for one in self._servers:
            self._free.put(one)

    def run(self, path: Path) -> Ended | None:
        """Run a script to its end. None after `stop`. Raises `UnsupportedError` if the kept process has ended."""
        server = self._free.get()
        try:
            return None if self._stopped.is_set() else server.run(path)
        except UnsupportedError:
            if self._stopped.is_set():
                return None
            raise
        finally:
            self._free.put(server)

    def stop(self) -> None:
        """End all processes, and close their files when nothing reads them."""
        self._stopped.set()
        for server in self._servers:
            server.terminate()
        free = [self._free.get() for _ in self._servers]
        for server in free:
            server.close()
            self._free.put(server)


class _Server:
    """A process that runs `fork_server`."""

    def __init__(self, python: str, server: Path, seconds: float) -> None:
        self._python = python
        self._errors = TemporaryFile()  # noqa: SIM115 closed with the process
        self._process = subprocess.Popen(
            [python, str(server), str(max(1, round(seconds)))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=server.parent,
            start_new_session=True,
        )

    def run(self, path: Path) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = b""
        with suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(json.dumps({"script": str(path)}).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UnsupportedError(f"--python {self._python}: {self._said()}") from error
        code = row["code"]
        return Ended(None if code == -signal.SIGALRM else code, row["output"], row["errors"])

    def _said(self) -> str:
        """The last line that the process wrote before it ended."""
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"the process that runs the scripts ended: {lines[-1] if lines else f'exit code {code}'}"

    def terminate(self) -> None:
        self._process.terminate()

    def close(self) -> None:
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            if file is not None:
                with suppress(BrokenPipeError):
                    file.close()


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
