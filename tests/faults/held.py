"""ddefuzz as a process that waits at one moment: `python -m tests.faults.held ARGUMENTS OF DDEFUZZ`.

The process that reaches the moment `FAULT_MOMENT` makes the file `held` in the folder `FAULT_FOLDER`, and waits until
there is a file `go`. So a fault can be brought about exactly then. Workers import this module, too. With a file `back`
in the folder all clocks of the date are an hour behind.
"""

from __future__ import annotations

import datetime as dates
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["FAULT_FOLDER"])
MOMENT = os.environ["FAULT_MOMENT"]
"""`task N` (where a worker captures in its N-th task), or `opened`, `writing` or `saved` (of the database)."""

HOUR = 3600.0
_time = time.time


class Date(dates.datetime):
    """The date by `time.time`, as it is set below."""

    @classmethod
    def now(cls, tz: dates.tzinfo | None = None) -> Any:
        """The date."""
        return cls.fromtimestamp(time.time(), tz)


def hold(moment: str) -> None:
    """Wait here if this is the moment, once."""
    if moment != MOMENT:
        return
    try:
        with (FOLDER / "held").open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return
    while not (FOLDER / "go").exists():
        time.sleep(0.01)


def in_worker() -> None:
    """Hold in tasks: where they capture if they keep a journal, else at their begin."""
    # Imported here, because the command does not import torch, nor the workers what the command does.
    from ddefuzz.execute import worker  # noqa: PLC0415
    from ddefuzz.execute.journal import Entry, Journal  # noqa: PLC0415
    from ddefuzz.oracles.table import stages  # noqa: PLC0415

    perform, note = worker.perform, Journal.note
    doing = ""

    def perform_and_hold(
        function: Any, argument: bytes, phases: Path | None = None, limit: float | None = None
    ) -> bytes:
        nonlocal doing
        doing = f"task {phases.name.removeprefix('phases-')}" if phases else ""
        if getattr(function, "function", "").rpartition(":")[2] not in ("run_case", "run_sweep"):
            hold(doing)
        return perform(function, argument, phases, limit)

    def note_and_hold(self: Journal, entry: Entry) -> None:
        note(self, entry)
        if entry.stage in stages():
            hold(doing)

    worker.perform = perform_and_hold  # type: ignore[assignment]
    Journal.note = note_and_hold  # type: ignore[method-assign]


def in_command() -> None:
    """Hold where the database is used, and wait less long for what does not come."""
    from ddefuzz.execute import pool  # noqa: PLC0415
    from ddefuzz.findings import connection  # noqa: PLC0415
    from ddefuzz.findings.database import Database  # noqa: PLC0415
    from ddefuzz.findings.url import DatabaseUrl  # noqa: PLC0415

    if clock := os.environ.get("FAULT_CLOCK_SECONDS"):
        pool.clock_seconds = lambda seconds: float(clock)  # type: ignore[attr-defined]
    connection.BUSY_TIMEOUT_S = 1.0
    opened, put, apply, closed = Database.__init__, Database.put, Database.apply, Database.close

    def open_and_hold(self: Database, url: DatabaseUrl, **more: bool) -> None:
        opened(self, url, **more)
        hold("opened")

    def put_and_hold(self: Database, *args: Any) -> None:
        put(self, *args)
        hold("writing")

    def apply_and_hold(self: Database, name: str, typed: Iterable[Any], by: Any) -> Any:
        def held() -> Iterator[Any]:
            for decision in typed:
                hold("writing")
                yield decision

        return apply(self, name, held(), by)

    def hold_and_close(self: Database) -> None:
        if "other.db" not in str(self.url):  # which `merge` reads in the middle
            hold("saved")
        closed(self)

    for name, function in (("__init__", open_and_hold), ("put", put_and_hold), ("apply", apply_and_hold)):
        setattr(Database, name, function)
    Database.close = hold_and_close  # type: ignore[method-assign]


time.time = lambda: _time() - (HOUR if (FOLDER / "back").exists() else 0.0)
if __name__ == "__main__":
    dates.datetime = Date  # type: ignore[misc]  # not in workers: numpy does not bear it
    in_command()
    from ddefuzz.cli.main import main

    main()
else:
    in_worker()
