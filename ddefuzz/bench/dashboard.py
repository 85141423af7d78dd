"""How long the dashboard takes to answer with many findings, next to an empty database, in one run."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
import uvicorn
from sqlalchemy import create_engine, text

from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.web.app import make_app
from ddefuzz.web.security import Access
from ddefuzz.web.serve import listen

PATHS: Final = (
    "/findings",
    "/findings?page=100&data=all",
    "/findings?sort=count",
    "/findings?kind=dde&cause=avoidable&sort=site",
    "/findings?q=native",
    "/findings?format=json",
    "/",
)
"""The pages that list or count all findings."""

TARGET_MS: Final = 200.0


class PageCost(msgspec.Struct, frozen=True):
    """The median time of one page in milliseconds, with findings and without any: by the clock, and CPU time.

    On a machine that does something else too, only CPU time says what a page costs.
    """

    path: str
    milliseconds: float
    empty_milliseconds: float
    cpu_milliseconds: float
    empty_cpu_milliseconds: float

    @property
    def ratio(self) -> float:
        """How much more CPU time it takes with findings."""
        return self.cpu_milliseconds / self.empty_cpu_milliseconds


class DashboardCost(msgspec.Struct, frozen=True):
    """The pages, for this number of findings."""

    findings: int
    bytes: int
    pages: tuple[PageCost, ...]


def measure(source: Database, findings: int, requests: int, folder: Path) -> DashboardCost:
    """Answer each page `requests` times with copies of the findings of `source`, and with an empty database in turn.

    The databases are made in `folder`. Raises `InputError` if `source` has no findings.
    """
    full, empty = folder / "full.db", folder / "empty.db"
    with Database.open(f"sqlite:///{full}") as database, Database.open(f"sqlite:///{empty}") as nothing:
        database.put(source.findings())
        _multiply(full, findings)
        number = len(source.findings())
        if not number:
            raise InputError(f"{source.url}: found no findings, expected some to copy")
        with _served(database) as many, _served(nothing) as none:
            pages = tuple(_cost(path, many, none, requests) for path in PATHS)
    return DashboardCost(max(findings, number), full.stat().st_size, pages)


def _multiply(path: Path, wanted: int) -> None:
    """Copy all findings under the next sequence numbers until there are `wanted`."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        number = connection.execute(text("SELECT count(*) FROM findings")).scalar_one()
        columns = {
            table: [row[1] for row in connection.execute(text(f"PRAGMA table_info({table})"))]
            for table in ("findings", "occurrences")
        }
        changed = {
            "id": "key || '-' || :at",
            "sequence": ":at",
            "duplicate_of": "NULL",
            "finding_id": "finding_id || '-' || :at",
        }
        connection.execute(text("CREATE TEMP TABLE first_ones AS SELECT id FROM findings WHERE sequence = 1"))
        for at in range(2, 2 + max(0, -(-(wanted - number) // max(number, 1)))):
            for table, key in (("findings", "id"), ("occurrences", "finding_id")):
                names = ", ".join(f'"{name}"' for name in columns[table])
                values = ", ".join(changed.get(name, f'"{name}"') for name in columns[table])
                copied = f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} WHERE {key} IN first_ones"
                connection.execute(text(copied), {"at": at})
    engine.dispose()


@contextmanager
def _served(database: Database) -> Iterator[int]:
    """The port of a server in a thread of this process."""
    with listen("127.0.0.1", 0) as bound:
        config = uvicorn.Config(make_app(database, Access()), log_level="error", access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def _cost(path: str, many: int, none: int, requests: int) -> PageCost:
    times: dict[int, list[tuple[float, float]]] = {many: [], none: []}
    for _ in range(requests + 1):
        for port, taken in times.items():
            taken.append(_seconds(port, path))
    clock, cpu = (
        [round(1000 * median(one[at] for one in taken[1:]), 1) for taken in times.values()]  # the first fills caches
        for at in (0, 1)
    )
    return PageCost(path, clock[0], clock[1], cpu[0], cpu[1])


def _seconds(port: int, path: str) -> tuple[float, float]:
    """Seconds by the clock and of CPU time of this process, in which the servers run."""
    begun, cpu = time.perf_counter(), time.process_time()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        raise InputError(f"{path}: found the status {answer.status}, expected 200")
    return time.perf_counter() - begun, time.process_time() - cpu
