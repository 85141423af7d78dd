"""How long the dashboard takes to answer with many findings, next to an empty database, in one run."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from sqlalchemy import create_engine, insert, text

from ci.bench.command import Result, Session
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, Progress, stamp
from ddefuzz.findings.schema import PROGRESS
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.show.blocks import Block, prose, table
from ddefuzz.sweep.tasks import Failed, Swept
from ddefuzz.web.app import answering
from ddefuzz.web.security import Access

PATHS: Final = (
    "/findings",
    "/findings?page=100&data=all",
    "/findings?sort=count",
    "/findings?sort=last&order=asc",
    "/findings?kind=dde&cause=avoidable&sort=site",
    "/findings?open=1&stage=compile&sort=state",
    "/findings?op=*pool*&site=at::*",
    "/findings?torch=2.13.0&verdict=fails",
    "/findings?owner=ada&priority=high",
    "/findings?q=native",
    "/findings?q=native+pool&state=new",
    "/findings?q=found+nowhere",
    "/findings?format=json",
    "/findings/{id}",
    "/",
    "/sites",
    "/versions",
    "/versions?show=all&page=20",
    "/census",
    "/campaigns",
)
"""All pages, and the list of findings with each kind of filter and order. `{id}` is the first finding. An empty
database has none, so that page is compared with the empty list.
"""

CAMPAIGNS: Final = 200
POINTS: Final = 240
"""What is saved of one campaign: one point a minute for four hours."""

OPS: Final = 1_400
"""As many as a sweep of torch 2.13.0 has."""

VERSIONS: Final = ("2.13.0+cpu", "2.14.1+cpu", "2.15.0+cpu")
"""Each finding has a result of `ddefuzz matrix` under each of them."""

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


class DashboardCost(msgspec.Struct, frozen=True):
    """The pages, for this number of findings."""

    findings: int
    bytes: int
    pages: tuple[PageCost, ...]


def run(session: Session, findings: int, requests: int, db: DatabaseUrl) -> Result:
    """Measure with the findings of a database."""
    with Database.open(db, create=False) as source:
        cost = measure(source, findings, requests, session.folder)
    return Result({"schema": "ddefuzz.bench.dashboard/1", **msgspec.to_builtins(cost)}, list(view(cost, requests)))


def view(cost: DashboardCost, requests: int) -> Iterator[Block]:
    """A row for each page."""
    yield prose(
        "{} findings, {} MB; median of {} requests. The target is ≤ {} ms by the clock.",
        cost.findings,
        f"{cost.bytes / 1e6:.0f}",
        requests,
        f"{TARGET_MS:.0f}",
    )
    rows = [
        (
            f"{page.cpu_milliseconds / page.empty_cpu_milliseconds:.2f}",
            f"{page.cpu_milliseconds:.0f} / {page.empty_cpu_milliseconds:.0f}",
            f"{page.milliseconds:.0f} / {page.empty_milliseconds:.0f}",
            page.path,
        )
        for page in cost.pages
    ]
    titles = ("ratio", "CPU ms, with findings / without", "ms by the clock", "page")
    yield table(titles, rows, right=titles[:3], code=("page",))


def measure(source: Database, findings: int, requests: int, folder: Path) -> DashboardCost:
    """Answer each page `requests` times with copies of the findings of `source`, and with an empty database in turn.

    The databases are made in `folder`. Raises `InputError` if `source` has no findings.
    """
    full, empty = folder / "full.db", folder / "empty.db"
    with Database.open(f"sqlite:///{full}") as database, Database.open(f"sqlite:///{empty}") as nothing:
        own = source.findings()
        number = len(own)
        if not number:
            raise InputError(f"{source.url}: found no findings, expected some to copy")
        database.put(own)
        _multiply(full, findings)
        _add_campaigns(database, full)
        _add_results(full)
        _add_sweep(database, own)
        for torch in source.torch_versions():
            database.add_sites(torch, source.sites(torch))
        with answering(database, Access()) as many, answering(nothing, Access()) as none:
            pages = tuple(
                _cost(path, (many, path.format(id=own[0].id)), (none, path.partition("/{id}")[0]), requests)
                for path in PATHS
            )
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


def _add_campaigns(database: Database, path: Path) -> None:
    """Campaigns that ran one after the other."""
    begun, points = datetime(2026, 1, 1, tzinfo=UTC), []
    with database.transaction():
        for seed in range(CAMPAIGNS):
            campaign = database.start_campaign(
                profile="default", seed=seed, generator="1", options={"budget": "4h"}, when=begun
            )
            for at in range(POINTS):
                begun += timedelta(minutes=1)
                points.append((campaign, stamp(begun), 100 * at, 60.0 * at, 120.0 * at, at, at // 2, at // 4))
            database.advance(campaign, 100 * POINTS, begun)
            database.finish_campaign(campaign, begun)
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:  # one by one they take a minute
        columns = ["campaign_id", *Progress.__struct_fields__]
        connection.execute(insert(PROGRESS), [dict(zip(columns, point, strict=True)) for point in points])
    engine.dispose()


def _add_results(path: Path) -> None:
    """A result of each finding under each of `VERSIONS`. Every fifth one does not fail in the last."""
    engine = create_engine(f"sqlite:///{path}")
    added = (
        'INSERT INTO results ("case", torch, program, status, shows, runs, reason, "when") '
        "SELECT id, :torch, '', CASE WHEN :last AND rowid % 5 = 0 THEN 'passes' ELSE 'fails' END, 1, 1, '', :now "
        "FROM findings"
    )
    with engine.begin() as connection:
        for torch in VERSIONS:
            values = {"torch": torch, "last": torch == VERSIONS[-1], "now": "2026-01-01T00:00:00.000000Z"}
            connection.execute(text(added), values)
    engine.dispose()


def _add_sweep(database: Database, findings: Sequence[Finding]) -> None:
    """A sweep. Every third op fails, with the signatures and programs of two findings."""
    with database.transaction():
        for at in range(OPS):
            failures = tuple(
                Failed(one.signature, one.cause, "fails", one.anchor, ("plain",), ("float32",), 3, one.minimal or "")
                for one in (findings[at % len(findings)], findings[-1 - at % len(findings)])
            )
            op = f"torch.nn.functional.op_{at}"
            swept = Swept(op, "opinfo", samples=16, runs=48, explicit="ok", size_oblivious="dde")
            if at % 3 == 0:
                swept = msgspec.structs.replace(swept, explicit="dde", failures=failures)
            database.save_swept("sweep", op, msgspec.json.encode(swept).decode())


def _cost(path: str, many: tuple[int, str], none: tuple[int, str], requests: int) -> PageCost:
    """The cost of a page. `many` and `none` are the port and path with findings and without."""
    times: dict[tuple[int, str], list[tuple[float, float]]] = {many: [], none: []}
    for _ in range(requests + 1):
        for (port, asked), taken in times.items():
            taken.append(_seconds(port, asked))
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
