"""Commands with a limit, the lock of the service, and its environments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.fleet.work import (
    READY,
    VARIABLE,
    Command,
    _stop,
    environment_of,
    fault_of,
    last_line,
    make_room,
    only_one,
    ready,
    run,
)
from ddefuzz.versions.model import Interpreter
from ddefuzz.versions.wheels import Wheel
from tests.fleet.stub_day import killed

BUSY = """\
import os, signal, sys
try:
    if os.fork():
        os.wait()
    else:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        print("begun", flush=True)
        while True:
            pass
except KeyboardInterrupt:
    print("saved")
    sys.exit(130)
"""
"""It is busy in a process below it until Ctrl-C."""


def command(tmp_path: Path, code: str, cpu_seconds: float = 60.0) -> Command:
    return Command([sys.executable, "-c", code], tmp_path / "a.log", cpu_seconds, {})


def test_a_command_is_interrupted_at_its_limit_and_saves_what_it_has(tmp_path: Path) -> None:
    said: list[str] = []
    ended = run(command(tmp_path, BUSY, 0.5), said.append)
    assert (ended.code, ended.is_cut, ended.said) == (130, True, "saved")
    assert ended.cpu_seconds >= 0.5
    assert not fault_of(ended)
    assert "begun" in said[-1]


def test_a_command_is_interrupted_also_where_the_service_ignores_ctrl_c(tmp_path: Path) -> None:
    def run_ignoring() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ended = run(command(tmp_path, BUSY, 0.5), lambda line: None)
        assert (ended.code, ended.said) == (130, "saved")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    assert killed(run_ignoring) == 0


class Waited(subprocess.Popen[bytes]):
    """A process whose wait is interrupted the first time."""

    is_interrupted = False

    def wait(self, timeout: float | None = None) -> int:
        if not self.is_interrupted:
            self.is_interrupted = True
            raise KeyboardInterrupt
        return super().wait(timeout)


def test_another_ctrl_c_ends_a_command_at_once() -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); signal.pause()"
    process = Waited([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    with process.stdout, pytest.raises(KeyboardInterrupt):
        _stop(process)
    assert process.returncode == -signal.SIGKILL


def test_a_command_that_fails_is_one_line(tmp_path: Path) -> None:
    ended = run(command(tmp_path, "import sys; print('ddefuzz: a.py: found x', file=sys.stderr); sys.exit(4)"), print)
    assert fault_of(ended) == "exit code 4: a.py: found x"
    assert fault_of(ended, 4) == ""
    ended = run(command(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"), print)
    assert fault_of(ended).startswith("signal 11: ")


def test_a_service_that_is_interrupted_interrupts_its_command(tmp_path: Path) -> None:
    def stop_at(line: str) -> None:
        if "begun" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(command(tmp_path, BUSY), stop_at)
    assert last_line(tmp_path / "a.log") == "saved"


def test_only_one_service_has_a_folder(tmp_path: Path) -> None:
    def another() -> None:
        with only_one(tmp_path):
            pass

    with only_one(tmp_path):
        assert killed(another) == 1
        with pytest.raises(UnsupportedError, match="found another `ddefuzz fleet` at work"):
            another()
    assert killed(another) == 0


def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "fleet").touch()
    with (
        pytest.raises(InputError, match="fleet: cannot be used: File exists, expected a folder"),
        only_one(tmp_path / "fleet"),
    ):
        pass


def test_all_that_a_service_starts_can_be_found_when_it_was_killed(tmp_path: Path) -> None:
    """Also pip, and the scripts of a bisection, which are not started by `run`."""
    code = f"import os; print(os.environ.get({VARIABLE!r}, ''))"
    with only_one(tmp_path):
        assert subprocess.check_output([sys.executable, "-c", code], text=True) == f"{tmp_path}\n"
    assert VARIABLE not in os.environ


def test_what_a_killed_service_has_left_running_is_ended_first(tmp_path: Path) -> None:
    environment = os.environ | {VARIABLE: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", BUSY], env=environment, stdout=subprocess.PIPE) as stray:
        assert stray.stdout is not None
        assert stray.stdout.readline() == b"begun\n"
        with only_one(tmp_path):
            assert not psutil.pid_exists(stray.pid)
        assert {*stray.stdout.read().splitlines()} == {b"saved"}  # the process below it has closed its end, too


MORE = """\
import subprocess, sys, time
try:
    print("begun", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20); print('late')"])
"""


def test_what_is_started_while_others_are_ended_is_ended_too(tmp_path: Path) -> None:
    environment = os.environ | {VARIABLE: str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", MORE], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as stray:
        assert stray.stdout is not None
        assert stray.stdout.readline() == b"begun\n"
        with only_one(tmp_path):
            assert not stray.stdout.read()


def made(wheel: Wheel, folder: Path) -> Interpreter:
    folder.mkdir(parents=True)
    return Interpreter(wheel.torch, sys.executable, wheel.torch)


def test_an_environment_is_made_once_and_whole(tmp_path: Path) -> None:
    wheel, environments = Wheel("2.14.1", tmp_path / "torch-2.14.1.whl"), tmp_path / "environments"

    def dies(wheel: Wheel, folder: Path) -> Interpreter:
        made(wheel, folder)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def fails(wheel: Wheel, folder: Path) -> Interpreter:
        made(wheel, folder)
        raise UnsupportedError("no torch")

    make: Callable[[Wheel, Path], Interpreter]
    for make, code in ((dies, -9), (fails, 1)):
        assert killed(partial(environment_of, wheel.torch, environments, [wheel], make)) == code
        assert not ready(environments)
    interpreter = environment_of(wheel.torch, environments, [wheel], made)
    assert environment_of(wheel.torch, environments, [], fails) == interpreter
    # One of another Python is made again.
    (environments / wheel.torch / READY).rename(
        environments / wheel.torch / READY.replace(str(sys.implementation.cache_tag), "cpython-39")
    )
    assert not ready(environments)
    assert environment_of(wheel.torch, environments, [wheel], made) == interpreter
    assert [one.name for one in (environments / wheel.torch).iterdir()] == [READY]
    with pytest.raises(UnsupportedError, match=r"torch 2\.13\.0: found neither an environment nor a wheel"):
        environment_of("2.13.0", environments, [wheel], made)


def test_environments_that_were_not_used_for_the_longest_time_make_room(tmp_path: Path) -> None:
    versions = ["2.11.0", "2.12.0", "2.13.0", "2.14.1"]
    for number, version in enumerate(versions):
        environment_of(version, tmp_path, [Wheel(version, tmp_path)], made)
        os.utime(tmp_path / version / READY, (number, number))
    (tmp_path / "2.10.0").mkdir()
    environment_of("2.12.0", tmp_path, [], made)  # is used again
    assert make_room(tmp_path, 2, {"2.11.0"}) == ["2.10.0", "2.13.0", "2.14.1"]
    assert [*ready(tmp_path)] == ["2.11.0", "2.12.0"]
