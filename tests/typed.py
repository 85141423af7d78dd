"""Commands as a user types them: arguments, environment, folder, stdin; exit code, stdout, stderr.

A new process imports torch for 2 CPU seconds, and its fork server all else for 5. Here one process for each worker of
pytest has imported all of that (`python -m tests.typed`), and each command is a fork of it. A second fork waits, and
becomes the fork server of the command when it starts one. All else is as in a new process: nothing has been captured,
the environment and the folder are the command's, and exit handlers run. What only a new process shows (which modules
are imported, hash seeds, signals) is tested in new processes.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import util
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, BinaryIO, Final

ROOT: Final = Path(__file__).parents[1]
DDEFUZZ: Final = "ddefuzz"
BENCH: Final = str(ROOT / "ci" / "bench")

SECONDS: Final = 600.0
"""A command is killed after this time."""

_MOST_BYTES: Final = 1 << 20
_FORK_SERVER: Final = "from multiprocessing.forkserver import main"

HIGH: Final = 900
"""Descriptors from here on are free."""

_PATH: Final = "PYTHONPATH"

_LOCK: Final = Lock()


def typed(
    *words: str | Path,
    folder: str | Path,
    environment: Mapping[str, str] | None = None,
    keys: str = "",
    before: str = "",
    program: str = DDEFUZZ,
    python: str = sys.executable,
    timeout: float = SECONDS,
) -> subprocess.CompletedProcess[str]:
    """What `ddefuzz WORDS` does in a folder, when `keys` are its stdin.

    Variables of ddefuzz and of CI are not inherited. `before` is executed in the process of the command, before the
    command. `program` may be `BENCH`. `python` may be another interpreter, which sees other packages and `tests`: its
    commands are forks of a process of its own, until `end`. Raises `subprocess.TimeoutExpired` after killing what takes
    too long.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DDEFUZZ_", "GITHUB_"))}
    if (environment or {}).get(_PATH, str(ROOT)) != str(ROOT):
        raise ValueError(f"{_PATH} changes what is imported, expected a new process")
    line = [program, *map(str, words)]
    task = {
        "words": line,
        "folder": str(folder),
        "environment": inherited | dict(environment or {}),
        "before": before,
        "seconds": timeout,
    }
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        given.write(keys.encode())
        given.seek(0)
        with _LOCK:
            if python not in _SERVERS:
                _SERVERS[python] = Server(python)
            requests = _SERVERS[python].requests
            socket.send_fds(requests, [json.dumps(task).encode()], [file.fileno() for file in (given, output, errors)])
            answer = requests.recv(_MOST_BYTES)
        code = json.loads(answer) if answer else None
        if code is None:
            raise subprocess.TimeoutExpired(line, timeout, _text(output), _text(errors))
        return subprocess.CompletedProcess(line, code, _text(output), _text(errors))


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode(errors="surrogateescape")


class Server:
    """The process that forks, and our end of the socket by which it gets tasks. It ends when this process does."""

    def __init__(self, python: str) -> None:
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-P", "-m", "tests.typed", str(theirs.fileno())],
                env={**os.environ, _PATH: str(ROOT), "PYTHONHASHSEED": "0"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self.end)

    def end(self) -> None:
        self.requests.close()
        self._process.wait()


_SERVERS: Final[dict[str, Server]] = {}


def end(python: str) -> None:
    """End the process of which the commands of another Python are forks: it keeps a torch in memory."""
    _SERVERS.pop(python).end()


def serve(requests: socket.socket) -> None:
    """Fork a child for each task, one after the other, until nobody can send another."""
    while True:
        message, files, _, _ = socket.recv_fds(requests, _MOST_BYTES, 3)
        if not message:
            return
        task = json.loads(message)
        child = os.fork()
        if not child:
            requests.close()
            _leave(_code_of(_run, task, files))
        for file in files:
            os.close(file)
        requests.send(json.dumps(_waited(child, requests, task["seconds"])).encode())


def _waited(child: int, requests: socket.socket, seconds: float) -> int | None:
    """The exit code of a child, None if it was killed: after this time, or when nobody waits any more."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if select.select([requests.fileno()], [], [], 0.01)[0]:
            break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _code_of(function: Callable[..., None], *arguments: Any) -> int:
    """With which code a process ends that runs the function."""
    try:
        function(*arguments)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 a child must not go on as its parent
        traceback.print_exc()
        return 1
    return 0


def _leave(code: int) -> None:
    """End this process as Python ends."""
    vars(threading)["_shutdown"]()
    vars(atexit)["_run_exitfuncs"]()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
        sys.stdout.flush()
    os._exit(code)


def _run(task: dict[str, Any], files: Sequence[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    program, *words = task["words"]
    _enter(task["folder"], task["environment"] | {_PATH: os.environ[_PATH]})
    sys.path.insert(0, task["folder"])
    sys.modules["__main__"] = ModuleType("__main__")
    vars(subprocess)["Popen"] = Popen
    _begin(program, words, task["before"])


def _begin(program: str, words: Sequence[str], before: str = "") -> None:
    """Run a command in this process, which has been forked for it."""
    sys.argv = [program, *words]
    random.seed()
    sys.modules["numpy"].random.seed()
    vars(util)["spawnv_passfds"] = Spare().spawn
    exec(before, {})
    if program == BENCH:
        sys.path.insert(0, BENCH)
        runpy.run_path(BENCH, run_name="__main__")
    else:
        importlib.import_module("ddefuzz.__main__").main()


def _enter(folder: str | Path, environment: Mapping[str, str]) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None


class Popen(subprocess.Popen[Any]):
    """A process that a command starts: a fork of the command, if it is to run ddefuzz by the same Python.

    `preexec_fn` is called in the new process, with its session, folder and streams, before a program is executed. Here
    none is executed.
    """

    def __init__(self, args: Any, **more: Any) -> None:
        start = [sys.executable, "-P", "-m", "ddefuzz"]
        environment = dict(more.get("env") or os.environ)
        is_ours = list(args)[: len(start)] == start
        if is_ours and environment.get(_PATH) == os.environ.get(_PATH):  # what is imported has been imported
            more["preexec_fn"] = partial(_instead, list(args)[len(start) :], environment)
        super().__init__(args, **more)


def _instead(words: Sequence[str], environment: Mapping[str, str]) -> None:
    os.closerange(3, 4_096)  # by one of them the parent is told that the program has been started
    _enter(Path.cwd(), environment)
    # What the parent has not written yet, and where it is in its files, are not ours.
    sys.stdout = open(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding=sys.stderr.encoding, errors=sys.stderr.errors, buffering=1, closefd=False)  # noqa: SIM115
    _leave(_code_of(_begin, DDEFUZZ, words))


class Spare:
    """A child of this process that waits, and becomes its first fork server. It is forked while there is one thread."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = os.fork()
        if not self._process:
            self._requests.close()
            os._exit(_code_of(_become_fork_server, theirs))
        theirs.close()
        self._spawn: Callable[..., int] = util.spawnv_passfds

    def spawn(self, path: str, words: Sequence[Any], files: Sequence[int]) -> int:
        """`multiprocessing.util.spawnv_passfds`."""
        code = os.fsdecode(words[-1])
        if not code.startswith(_FORK_SERVER) or self._requests.fileno() == -1:
            return self._spawn(path, words, files)
        request = {
            "code": code,
            "numbers": list(files),
            "folder": str(Path.cwd()),
            "environment": dict(os.environ),
            "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        }
        with self._requests:
            socket.send_fds(self._requests, [json.dumps(request).encode()], files)
        return self._process


def _become_fork_server(requests: socket.socket) -> None:
    message, files, _, _ = socket.recv_fds(requests, _MOST_BYTES, 16)
    requests.close()
    if not message:
        return  # the command has ended
    request = json.loads(message)
    high = [os.dup2(file, HIGH + index) for index, file in enumerate(files)]
    for file in files:
        os.close(file)
    for file, number in zip(high, request["numbers"], strict=True):
        os.dup2(file, number)
        os.close(file)
    _enter(request["folder"], request["environment"])
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    exec(request["code"], {})


def preload() -> None:
    """Import what commands and their fork servers import."""
    for name in ("ddefuzz.execute.preload", "ddefuzz.execute.preload_samples"):
        importlib.import_module(name)
    for package in ("cli", "campaign", "findings"):
        folders = importlib.import_module(f"ddefuzz.{package}").__path__
        for module in pkgutil.iter_modules(folders, f"ddefuzz.{package}."):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    serve(socket.socket(fileno=int(sys.argv[1])))
