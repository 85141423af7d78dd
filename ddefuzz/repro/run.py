"""Runs the stand-alone scripts of findings and cases, each in a process of its own, several at a time."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Lock, Timer
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.execute.protocol import Outcome
from ddefuzz.files import parse_json, write_atomically
from ddefuzz.findings.decisions import checked_version
from ddefuzz.findings.model import Finding
from ddefuzz.internal import guarded
from ddefuzz.oracles.keys import check_trust
from ddefuzz.repro.finding import finding_script

SERVER: Final = Path(__file__).with_name("fork_server.py")
"""Its text is copied and run. It is not imported, because it imports torch of another interpreter."""

START_SECONDS: Final = 120.0  # how long the import of torch may take, in addition to the time of the first script
GRACE_SECONDS: Final = 5.0  # how long a process may take to end after SIGTERM


class ScriptEnd(NamedTuple):
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

    def run(self, path: Path) -> ScriptEnd | None:
        """Run a script to its end. None if `stop` comes before."""
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
            return ScriptEnd(None, *process.communicate())
        finally:
            _kill(process)
            process.communicate()
            self._running.discard(process)
        return None if self._stopped.is_set() else ScriptEnd(process.returncode, output, errors)

    def stop(self) -> None:
        """End what runs."""
        self._stopped.set()
        for process in tuple(self._running):
            _kill(process)


class ForkServers:
    """Several processes that have imported torch. Each runs one script at a time, in a child."""

    def __init__(self, python: str, folder: Path, jobs: int, seconds: float) -> None:
        self._stopped = Event()
        server = folder / "fork_server.py"
        server.write_text(SERVER.read_text(encoding="utf-8"), encoding="utf-8")
        self._servers = [_Server(python, server, seconds) for _ in range(jobs)]
        self._free: queue.SimpleQueue[_Server] = queue.SimpleQueue()
        for process in self._servers:
            self._free.put(process)

    def run(self, path: Path) -> ScriptEnd | None:
        """Run a script to its end. None if `stop` comes before.

        Raises `UnsupportedError` if the kept process has ended.
        """
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


class _Answer(msgspec.Struct, frozen=True):
    """The line that `fork_server` prints after a script."""

    script: str
    code: int
    output: str
    errors: str


class _Server:
    def __init__(self, python: str, server: Path, seconds: float) -> None:
        self._python = python
        self._seconds = START_SECONDS + seconds
        self._is_late = False
        self._errors = TemporaryFile()  # noqa: SIM115 closed with the process
        self._process = subprocess.Popen(
            [python, str(server), str(max(1, round(seconds)))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=server.parent,
            start_new_session=True,
        )

    def run(self, path: Path) -> ScriptEnd:
        assert self._process.stdin is not None
        late = Timer(self._seconds, self._give_up)
        late.start()
        answer = None
        with suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(json.dumps({"script": str(path)}).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._answer(str(path))
        late.cancel()
        if answer is None:
            self._end()
            raise UnsupportedError(f"--python {self._python}: {self._said()}")
        return ScriptEnd(None if answer.code == -signal.SIGALRM else answer.code, answer.output, answer.errors)

    def _answer(self, script: str) -> _Answer | None:
        """The answer to a task; None if the process ended. Other lines are the interpreter's own."""
        for line in self._process.stdout or ():
            with suppress(InputError):
                answer: _Answer = parse_json(line, _Answer, "", "")
                if answer.script == script:
                    return answer
        return None

    def _said(self) -> str:
        """Why there is no answer: the last line that the process wrote before it ended."""
        if self._is_late:
            return f"the process that runs the scripts gives no answer within {self._seconds:g} s"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        code = self._process.returncode
        return f"the process that runs the scripts ended: {lines[-1] if lines else f'exit code {code}'}"

    def _give_up(self) -> None:
        self._is_late = True
        self._end()

    def _end(self) -> None:
        self.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        _kill(self._process)
        self._process.wait()

    def terminate(self) -> None:
        """End it. A wrapper of the interpreter may have it as a child."""
        _signal(self._process, signal.SIGTERM)

    def close(self) -> None:
        self._end()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            if file is not None:
                with suppress(BrokenPipeError):
                    file.close()


def _kill(process: subprocess.Popen[Any]) -> None:
    _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[Any], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


SECONDS: Final = 120.0  # the time limit of one script. Most take 5 s, of which 4 s are the import of torch.

ScriptStatus: TypeAlias = Literal["shows", "passes", "fails otherwise", "not judged"]
"""
shows            the failure is the finding's
passes           it can be captured
fails otherwise  another failure, or a script that dies or does not end
not judged       eager raises for the program, this torch has no such op or stage, or there is no script
"""


class ScriptSource(NamedTuple):
    """A script of a finding or case, with the kind of its failure. `text` may raise InputError."""

    name: str
    kind: str
    text: Callable[[], str]
    stored: str = ""


class ScriptResult(msgspec.Struct, frozen=True):
    """The result of one script: `expected` and `seen` are what it printed, `reason` why it printed nothing."""

    finding: str
    status: ScriptStatus
    torch: str = ""
    stage: str = ""
    expected: dict[str, str] | None = None
    seen: dict[str, str] | None = None
    reason: str = ""


class _PrintedResult(msgspec.Struct, frozen=True):
    torch: str
    stage: str
    verdict: ScriptStatus
    expected: dict[str, str]
    seen: dict[str, str] | None


def located(python: str) -> str:
    """A path of an interpreter as an absolute one, because scripts run in another folder. Links stay: a venv is one."""
    return str(Path(python).absolute()) if Path(python).name != python else python


def torch_of(python: str) -> str:
    """The torch of an interpreter. Raises `InputError` without an interpreter, `UnsupportedError` without torch."""
    if not python:
        raise InputError("--python: found no path, expected one of a Python interpreter that has torch")
    code = "import torch; print(torch.__version__)"
    try:
        done = subprocess.run(
            [located(python), "-c", code],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=SECONDS,
            cwd="/",  # `-c` imports from the current folder
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        what = "one that does not answer" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
        raise InputError(f"--python {python}: {what}, expected a Python interpreter that has torch") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UnsupportedError(f"--python {python}: {reason}, expected a Python interpreter that has torch")
    return checked_version(done.stdout.strip().rpartition("\n")[2], f"--python {python}: ")


def run_scripts(
    findings: Iterable[Finding | ScriptSource],
    python: str,
    jobs: int,
    listen: Callable[[ScriptResult], None],
    seconds: float = SECONDS,
    *,
    forked: bool = False,
    trust: bool = False,
) -> tuple[ScriptResult, ...]:
    """Run the scripts of findings, or scripts that are written when they run. Return the results in order.

    `listen` is called with each as soon as it is known, and not with one that Ctrl-C or an error stops. With `forked`
    each runs in a child of a process that has imported torch (`fork_server`), else in a new process. One that executes
    the user's code runs only with `trust`.
    """
    lock = Lock()
    with tempfile.TemporaryDirectory(prefix="ddefuzz-scripts-") as folder, ThreadPoolExecutor(jobs) as threads:
        place = Path(folder)
        path = located(python)
        processes = ForkServers(path, place, jobs, seconds) if forked else Cold(path, place, seconds)

        def result_of(given: Finding | ScriptSource) -> ScriptResult | None:
            written = given if isinstance(given, ScriptSource) else _written(given)
            result = None
            with guarded(written.name) as guard:
                result = _result_of(written, processes, place, seconds, trust)
            if guard.error is not None:
                result = ScriptResult(written.name, "not judged", reason=guard.reason)
            if result is not None:
                with lock:
                    listen(result)
            return result

        try:
            return tuple(filter(None, threads.map(result_of, findings)))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            processes.stop()


def _written(finding: Finding) -> ScriptSource:
    stored = finding.minimal or finding.original or ""
    return ScriptSource(finding.id, finding.kind, partial(finding_script, finding), stored)


def _result_of(
    written: ScriptSource, processes: Cold | ForkServers, folder: Path, seconds: float, trust: bool
) -> ScriptResult | None:
    """None if the processes were stopped before the script ended."""
    try:
        check_trust(written.stored, trust=trust)
        script = written.text()
    except InputError as error:
        return ScriptResult(written.name, "not judged", reason=str(error))
    path = folder / f"{re.sub('[^-.a-zA-Z0-9_]', '_', written.name)[-200:]}.py"
    write_atomically(path, script)  # one may run twice at once
    ended = processes.run(path)
    if ended is None:
        return None
    if ended.code is None:
        status = _status_of_loss(written, "timeout")
        return ScriptResult(written.name, status, reason=f"no verdict within {seconds:g} s")
    return _result(written, ended.code, ended.output, ended.errors)


def _status_of_loss(written: ScriptSource, outcome: Outcome) -> ScriptStatus:
    """What a script shows that ended without a verdict. One whose call does so has made it in a child process."""
    return "shows" if written.kind == outcome else "fails otherwise"


def _result(written: ScriptSource, code: int, output: str, errors: str) -> ScriptResult:
    lines = output.strip().splitlines()
    try:
        printed: _PrintedResult = parse_json(lines[-1] if lines else "", _PrintedResult, "", "")
    except InputError:
        if code < 0:
            status = _status_of_loss(written, "crash")
            return ScriptResult(written.name, status, reason=f"died of {signal_name(-code)}")
        last = (errors.strip().splitlines() or [f"exit code {code}"])[-1]
        return ScriptResult(written.name, "not judged", reason=last)
    return ScriptResult(written.name, printed.verdict, printed.torch, printed.stage, printed.expected, printed.seen)


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGSEGV. Those of real time have none."""
    return signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"


STATUSES: Final[tuple[ScriptStatus, ...]] = get_args(ScriptStatus)
