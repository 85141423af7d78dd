"""The fault matrix: each fault, how it is brought about, and the commands and moments to which it applies."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import psutil  # type: ignore[import-untyped]

from tests.campaign.real_campaign import server, wait_until
from tests.faults.commands import COMMANDS, MOMENTS, Command, Place
from tests.findings.servers import restart

CLOCK_SECONDS: Final = 12
"""How long a worker that is stopped may take by the clock in these tests, in place of minutes."""

STOPPED_SECONDS: Final = 1.5


@dataclass(slots=True)
class Trial:
    """A command that waits at a moment. `held` is the process that waits there, `server` that of PostgreSQL."""

    command: Command
    moment: str
    place: Place
    process: subprocess.Popen[str]
    held: psutil.Process
    server: str
    other: sqlite3.Connection | None = None

    @property
    def driver(self) -> psutil.Process:
        """The command's own process."""
        return psutil.Process(self.process.pid)


class Fault(NamedTuple):
    """A row of the matrix. `bring` brings it about, `undo` makes the command work again. `means` says what is done, and
    `elsewhere` why it is not done to the other commands and moments.
    """

    name: str
    means: str
    commands: tuple[str, ...]
    moments: tuple[str, ...]
    bring: Callable[[Trial], None]
    elsewhere: str = ""
    undo: Callable[[Place], None] = lambda place: None
    words: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    loses_a_case: bool = False


ALL: Final = tuple(COMMANDS)
WITH_WORKERS: Final = tuple(name for name, one in COMMANDS.items() if one.has_workers)
WITH_DATABASE: Final = tuple(name for name, one in COMMANDS.items() if one.has_database)

NO_WORKERS: Final = "serve, import and merge have no workers"
NO_DATABASE: Final = "check and study have no database"


def _kill_driver(trial: Trial) -> None:
    trial.driver.kill()


def _kill_worker(trial: Trial) -> None:
    trial.held.kill()


def _kill_server(trial: Trial) -> None:
    server(trial.process.pid).kill()
    wait_until(lambda: not trial.held.is_running() or trial.held.status() == psutil.STATUS_ZOMBIE)


def _stop_driver(trial: Trial) -> None:
    trial.driver.suspend()
    wait_until(lambda: trial.driver.status() == psutil.STATUS_STOPPED)
    time.sleep(STOPPED_SECONDS)  # how long it is stopped
    trial.driver.resume()


def _stop_worker(trial: Trial) -> None:
    trial.held.suspend()


def _stop_server(trial: Trial) -> None:
    server(trial.process.pid).suspend()
    trial.held.kill()


def _fill_disk(trial: Trial) -> None:
    resource.prlimit(trial.process.pid, resource.RLIMIT_FSIZE, (1, 1))


def _fill_temporary(trial: Trial) -> None:
    for process in (server(trial.process.pid), trial.held):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, 1))


def _use_descriptors(trial: Trial) -> None:
    taken = {int(name) for name in os.listdir(f"/proc/{trial.process.pid}/fd")}  # noqa: PTH208 these are no files
    free = next(number for number in range(len(taken) + 1) if number not in taken)
    resource.prlimit(trial.process.pid, resource.RLIMIT_NOFILE, (free, free))


def _set_clock_back(trial: Trial) -> None:
    (trial.place.folder / "back").touch()


def _lock(trial: Trial) -> None:
    trial.other = sqlite3.connect(trial.place.path, isolation_level=None, timeout=0)
    wait_until(lambda: _is_locked(trial.other))


def _is_locked(connection: sqlite3.Connection | None) -> bool:
    assert connection is not None
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    return True


def _move(trial: Trial) -> None:
    trial.place.path.rename(trial.place.folder / "elsewhere.db")


def _move_back(place: Place) -> None:
    for file in place.folder.glob("ddefuzz.db-*"):
        if file.is_file():
            file.unlink()
    (place.folder / "elsewhere.db").rename(place.path)


def _delete(trial: Trial) -> None:
    trial.place.path.unlink()


def _delete_log(place: Place) -> None:
    for file in place.folder.glob("ddefuzz.db-*"):
        if file.is_file():
            file.unlink()


def _restart(trial: Trial) -> None:
    restart(trial.server)


def _remove_temporary(trial: Trial) -> None:
    for folder in trial.place.temporary.iterdir():
        shutil.rmtree(folder)


def _nothing(trial: Trial) -> None:
    del trial


FAULTS: Final = (
    Fault("the command is killed", "SIGKILL of its process", ALL, MOMENTS, _kill_driver),
    Fault(
        *("a worker is killed", "SIGKILL of the worker of the case", WITH_WORKERS, MOMENTS, _kill_worker, NO_WORKERS),
        loses_a_case=True,
    ),
    Fault(
        *("the fork server is killed", "SIGKILL; its workers end with it", WITH_WORKERS, MOMENTS, _kill_server),
        NO_WORKERS,
        loses_a_case=True,
    ),
    Fault("the command is stopped", "SIGSTOP of its process, and SIGCONT after 1.5 s", ALL, MOMENTS, _stop_driver),
    Fault(
        *("a worker is stopped", "SIGSTOP of the worker of the case", WITH_WORKERS, MOMENTS, _stop_worker, NO_WORKERS),
        variables=(("FAULT_CLOCK_SECONDS", str(CLOCK_SECONDS)),),
        loses_a_case=True,
    ),
    Fault(
        "the fork server is stopped",
        "SIGSTOP, and a worker is killed, so that another one is needed",
        *(WITH_WORKERS, MOMENTS, _stop_server, NO_WORKERS),
        loses_a_case=True,
    ),
    Fault(
        "the disk is full",
        "no file of the command's own process may grow (RLIMIT_FSIZE)",
        *(ALL, MOMENTS, _fill_disk),
    ),
    Fault(
        "the disk of the temporary folder is full",
        "no file of the workers and the fork server may grow (RLIMIT_FSIZE)",
        *(WITH_WORKERS, MOMENTS, _fill_temporary, NO_WORKERS),
    ),
    Fault(
        "no descriptor is left",
        "the command's own process may open no further file (RLIMIT_NOFILE)",
        *(ALL, MOMENTS, _use_descriptors),
    ),
    Fault("the clock is set back", "by an hour, in all processes of the command", ALL, MOMENTS, _set_clock_back),
    Fault(
        "the database is locked",
        "another process has begun to write, and does not end (the wait is 1 s here, and 30 s else)",
        *(WITH_DATABASE, ("start", "end"), _lock),
        f"{NO_DATABASE}; in the middle the campaign and the import hold the lock themselves or are as at the start",
    ),
    Fault(
        *("the database is moved", "its file gets another name", WITH_DATABASE, MOMENTS, _move, NO_DATABASE, _move_back)
    ),
    Fault(
        *("the database is deleted", "its file is unlinked", WITH_DATABASE, MOMENTS, _delete, NO_DATABASE, _delete_log)
    ),
    Fault(
        "the database is read-only",
        "its URL ends with ?mode=ro",
        *(WITH_DATABASE, ("start",), _nothing),
        f"{NO_DATABASE}; a database that is open stays writable",
    ),
    Fault(
        "the server of the database is restarted",
        "PostgreSQL, which closes all connections",
        *(WITH_DATABASE, MOMENTS, _restart, NO_DATABASE),
    ),
    Fault(
        *("the temporary folder is removed", "with all that is in it", WITH_WORKERS, MOMENTS, _remove_temporary),
        "serve, import and merge use no temporary folder",
    ),
    Fault(
        "eight workers on two cores",
        "the option -j 8, and only two cores may be used",
        *(("run", "sweep", "check"), ("start",), _nothing),
        "it is a choice at the start; study has one worker, and serve, import and merge have none",
        words=("-j", "8"),
    ),
)

READ_ONLY: Final = "the database is read-only"
RESTARTED: Final = "the server of the database is restarted"
DEADLY: Final = "the command is killed"
EIGHT: Final = "eight workers on two cores"


class Cell(NamedTuple):
    """A fault, a command and a moment."""

    fault: Fault
    command: Command
    moment: str

    @property
    def name(self) -> str:
        """Its key in the results."""
        return f"{self.fault.name} / {self.command.name} / {self.moment}"


def cells() -> tuple[Cell, ...]:
    """The whole matrix."""
    return tuple(
        Cell(fault, COMMANDS[command], moment)
        for fault in FAULTS
        for command in fault.commands
        for moment in fault.moments
    )


def drawn(all_: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """One cell of each fault and command: the one in the middle, where there is one."""
    chosen: dict[tuple[str, str], Cell] = {}
    for one in all_:
        key = (one.fault.name, one.command.name)
        if key not in chosen or one.moment == "middle":
            chosen[key] = one
    return tuple(chosen.values())


def one_command_each(cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """A cell of each fault, of a cheap command: one without workers, else the first without a database."""
    by_fault: dict[str, list[Cell]] = {}
    for cell in cells:
        by_fault.setdefault(cell.fault.name, []).append(cell)
    chosen: list[Cell] = []
    for of_fault in by_fault.values():
        cheapest = [cell for cell in of_fault if not cell.command.has_workers]
        cheapest = cheapest or [cell for cell in of_fault if not cell.command.has_database][:1]
        number = sum(cell.command.has_workers == cheapest[0].command.has_workers for cell in chosen)
        chosen.append(cheapest[number % len(cheapest)])
    return tuple(chosen)
