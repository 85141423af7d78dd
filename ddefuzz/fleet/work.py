"""Commands of a day, as processes with a limit of CPU time, and the environments with one torch each."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import psutil  # type: ignore[import-untyped]

from ddefuzz.errors import EXIT_INTERRUPTED, EXIT_OK, InputError, UnsupportedError
from ddefuzz.escape import json_text
from ddefuzz.files import entries, is_file, is_there, parse_json, read_bytes, write_atomically
from ddefuzz.versions.model import Interpreter
from ddefuzz.versions.run import interpreter_of
from ddefuzz.versions.wheels import Index, Wheel, installed

VARIABLE: Final = "FLEET_OF_DDEFUZZ"
"""The variable that all processes of a service have. Its value is the service's folder."""

POLL_SECONDS: Final = 0.5

STOP_SECONDS: Final = 120.0
"""How long a command may take to save what it has after SIGINT."""

MOST_PASSES: Final = 5
"""How often strays are looked for: while some of them are ended, others may start more."""

CLOCK: Final = 5.0
"""A command may take so many times its CPU seconds by the clock."""

SPARE_SECONDS: Final = 600.0
"""And this in addition: torch is imported, and findings are confirmed."""


class Command(NamedTuple):
    """A command line, the file with what it says, how many CPU seconds it may take with its children, what it has in
    its environment besides, and the folder in which it starts: that of this process, if it is none.
    """

    words: Sequence[str]
    log: Path
    cpu_seconds: float
    environment: dict[str, str]
    folder: Path | None = None


class CommandEnd(NamedTuple):
    """How a command has ended: its exit code, CPU seconds, whether they were its limit, and the last line it said."""

    code: int
    cpu_seconds: float
    is_cut: bool
    said: str


def run(command: Command, tell: Callable[[str], None]) -> CommandEnd:
    """Run a command in a process group of its own. At its limit it gets SIGINT, as by Ctrl-C, and saves what it has. So
    it does if this process is interrupted. `tell` gets its progress.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with command.log.open("ab") as log, _interruptible():
        process = subprocess.Popen(
            command.words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | command.environment,
            cwd=command.folder,
        )
    clock = time.monotonic() + CLOCK * command.cpu_seconds + SPARE_SECONDS
    spent, is_cut = 0.0, False
    try:
        while process.poll() is None and not is_cut:
            with suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)
            spent = max(spent, _cpu_seconds(process.pid))
            tell(f"{spent:.0f} of {command.cpu_seconds:.0f} CPU s: {last_line(command.log)}")
            is_cut = process.returncode is None and (spent > command.cpu_seconds or time.monotonic() > clock)
    finally:
        _stop(process)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return CommandEnd(process.returncode, round(max(spent, waited), 1), is_cut, last_line(command.log))


@contextmanager
def _interruptible() -> Iterator[None]:
    """What is started here does not ignore SIGINT. A service in the background of a shell's script does."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _cpu_seconds(pid: int) -> float:
    """The CPU time of a process and of all below it, also of those that have ended and were waited for."""
    total = 0.0
    with suppress(psutil.Error):
        top = psutil.Process(pid)
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a process that runs. If it goes on, or at another Ctrl-C, end it with all of its group."""
    try:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


MOST_OF_LOG: Final = 8192


def last_line(log: Path) -> str:
    """The last line of a log."""
    if not is_file(log):
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - MOST_OF_LOG))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of the service's folder, which the kernel releases when this process ends, however it ends. Raises
    `UnsupportedError` if another process has it, and `InputError`. What a killed one has left running is ended first:
    all that is started in the block has `VARIABLE`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be used: {error.strerror}, expected a folder that can be written"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UnsupportedError(
                f"{folder}: found another `ddefuzz fleet` at work, expected one at a time"
            ) from error
        for _ in range(MOST_PASSES):
            if not _end_strays(str(folder)):
                break
        os.environ[VARIABLE] = str(folder)
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        os.close(descriptor)


def _end_strays(folder: str) -> bool:
    """End what a killed service has left running. Whether there was something."""
    strays = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(VARIABLE) == folder:
                process.send_signal(signal.SIGINT)
                strays.append(process)
    _, alive = psutil.wait_procs(strays, STOP_SECONDS if strays else 0)
    for process in alive:
        with suppress(psutil.Error):
            process.kill()
    return bool(strays)


def fault_of(ended: CommandEnd, *codes: int) -> str:
    """Why a command has not done what it had to; empty if its exit code is 0 or one of these, or its limit ended it."""
    if ended.code in (EXIT_OK, *codes) or (ended.is_cut and ended.code == EXIT_INTERRUPTED):
        return ""
    how = f"signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
    return f"{how}: {ended.said.removeprefix('ddefuzz: ')}"


# Environments

READY: Final = f"ready-{sys.implementation.cache_tag}.json"
"""The file of an environment that was made completely: its `Interpreter`. One of another Python has another name."""


def install(wheel: Wheel, folder: Path, index: Index) -> Interpreter:
    """A new environment with the torch of the wheel and this ddefuzz. Raises `UnsupportedError`."""
    python = installed(wheel, folder, index).python
    interpreter = interpreter_of(f"{wheel.torch}={python}")
    if not interpreter.full:
        raise UnsupportedError(f"{wheel.path}: ddefuzz cannot be imported in its environment, expected that it can")
    return interpreter


def ready(environments: Path) -> dict[str, Interpreter]:
    """The environments, by version, that which was not used for the longest time first."""
    made = {}
    for folder in entries(environments) if is_there(environments) else ():
        with suppress(OSError):
            if is_file(folder / READY) and is_file(Path((text := _read(folder)).python)):
                made[folder.name] = (folder / READY).stat().st_mtime, text
    return {name: interpreter for name, (_, interpreter) in sorted(made.items(), key=lambda item: item[1][0])}


def _read(folder: Path) -> Interpreter:
    made: Interpreter = parse_json(
        read_bytes(folder / READY), Interpreter, folder / READY, "what `ddefuzz fleet` wrote"
    )
    return made


def environment_of(
    version: str,
    environments: Path,
    wheels: Iterable[Wheel],
    make: Callable[[Wheel, Path], Interpreter],
) -> Interpreter:
    """The interpreter with this version, made of its wheel if there is none yet. Raises `UnsupportedError`."""
    folder = environments / version
    if version in (made := ready(environments)):
        os.utime(folder / READY)
        return made[version]
    wheel = next((one for one in wheels if one.torch == version), None)
    if wheel is None:
        raise UnsupportedError(f"torch {version}: found neither an environment nor a wheel, expected one of them")
    shutil.rmtree(folder, ignore_errors=True)  # of a day that was killed
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        interpreter = make(wheel, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    write_atomically(folder / READY, json_text(msgspec.to_builtins(interpreter)) + "\n")
    return interpreter


def make_room(environments: Path, most: int, needed: Iterable[str]) -> list[str]:
    """Remove environments until `most` are left: first what is incomplete, then what was not used for the longest time,
    and none that is needed. Returns the versions that were removed.
    """
    made, kept = ready(environments), {*needed}
    incomplete = [one.name for one in entries(environments) if one.name not in made] if is_there(environments) else []
    spare = [version for version in made if version not in kept]
    removed = [*incomplete, *spare[: max(0, len(made) - most)]]
    for version in removed:
        shutil.rmtree(environments / version, ignore_errors=True)
    return removed
