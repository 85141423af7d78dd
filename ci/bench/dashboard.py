"""How long the dashboard takes to answer with many findings, next to an empty database, in one run."""

from __future__ import annotations

import http.client
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, create_engine, insert, text

from ci.bench.command import Result, Session
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, Progress, stamp
from ddefuzz.findings.schema import PROGRESS
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.show.blocks import prose, table
from ddefuzz.sweep.tasks import OpFailure, OpResult
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

TIMES: Final = ("milliseconds", "empty_milliseconds", "cpu_milliseconds", "empty_cpu_milliseconds")
"""What is measured of each page: by the clock and of CPU time, with findings and without any."""


def run(session: Session, findings: int, requests: int, db: DatabaseUrl) -> Result:
    """Answer each page `requests` times with copies of the findings of a database, and with an empty one in turn.

    Raises `InputError` if the database has no findings. On a machine that does something else too, only CPU time says
    what a page costs.
    """
    full, empty = session.folder / "full.db", session.folder / "empty.db"
    with (
        Database.open(db, create=False) as source,
        Database.open(f"sqlite:///{full}") as database,
        Database.open(f"sqlite:///{empty}") as nothing,
    ):
        own = source.findings()
        if not own:
            raise InputError(f"{source.url}: found no findings, expected some to copy")
        database.put(own)
        points = _add_campaigns(database)
        _add_sweep(database, own)
        engine = create_engine(f"sqlite:///{full}")
        with engine.begin() as connection:
            connection.execute(insert(PROGRESS), points)
            _multiply(connection, len(own), findings)
            _add_results(connection)
        engine.dispose()
        for torch in source.torch_versions():
            database.add_sites(torch, source.sites(torch))
        with answering(database, Access()) as many, answering(nothing, Access()) as none:
            pages: list[dict[str, Any]] = []
            for path in PATHS:
                shown = ((many, path.format(id=own[0].id)), (none, path.partition("/{id}")[0]))
                rounds = [[_milliseconds(*page) for page in shown] for _ in range(requests + 1)][1:]  # the first caches
                times = [round(median(one[at][kind] for one in rounds), 1) for kind in (0, 1) for at in (0, 1)]
                pages.append({"path": path, **dict(zip(TIMES, times, strict=True))})
    size, number = full.stat().st_size, max(findings, len(own))
    record = {"schema": "ddefuzz.bench.dashboard/1", "findings": number, "bytes": size, "pages": pages}
    rows = [
        (
            f"{page['cpu_milliseconds'] / page['empty_cpu_milliseconds']:.2f}",
            f"{page['cpu_milliseconds']:.0f} / {page['empty_cpu_milliseconds']:.0f}",
            f"{page['milliseconds']:.0f} / {page['empty_milliseconds']:.0f}",
            page["path"],
        )
        for page in pages
    ]
    titles = ("ratio", "CPU ms, with findings / without", "ms by the clock", "page")
    head = "{} findings, {} MB; median of {} requests. The target is ≤ {} ms by the clock."
    head_of = prose(head, number, f"{size / 1e6:.0f}", requests, f"{TARGET_MS:.0f}")
    return Result(record, [head_of, table(titles, rows, right=titles[:3], code=("page",))])


def _multiply(connection: Connection, number: int, wanted: int) -> None:
    """Copy all findings, a `number`, under the next sequence numbers until there are `wanted`."""
    changed = {
        "id": "key || '-' || :at",
        "sequence": ":at",
        "duplicate_of": "NULL",
        "finding_id": "finding_id || '-' || :at",
    }
    connection.execute(text("CREATE TEMP TABLE first_ones AS SELECT id FROM findings WHERE sequence = 1"))
    for at in range(2, 2 + max(0, -(-(wanted - number) // number))):
        for name, key in (("findings", "id"), ("occurrences", "finding_id")):
            columns = [row[1] for row in connection.execute(text(f"PRAGMA table_info({name})"))]
            into = ", ".join(f'"{column}"' for column in columns)
            values = ", ".join(changed.get(column, f'"{column}"') for column in columns)
            copied = f"INSERT INTO {name} ({into}) SELECT {values} FROM {name} WHERE {key} IN first_ones"
            connection.execute(text(copied), {"at": at})


def _add_campaigns(database: Database) -> list[dict[str, object]]:
    """Campaigns that ran one after the other. Returns their points, which take a minute if they are added singly."""
    begun, points = datetime(2026, 1, 1, tzinfo=UTC), []
    columns = ("campaign_id", *Progress.__struct_fields__)
    with database.transaction():
        for seed in range(CAMPAIGNS):
            campaign = database.start_campaign(
                profile="default", seed=seed, generator="1", options={"budget": "4h"}, when=begun
            )
            for at in range(POINTS):
                begun += timedelta(minutes=1)
                point = (campaign, stamp(begun), 100 * at, 60.0 * at, 120.0 * at, at, at // 2, at // 4)
                points.append(dict(zip(columns, point, strict=True)))
            database.advance(campaign, 100 * POINTS, begun)
            database.finish_campaign(campaign, begun)
    return points


def _add_results(connection: Connection) -> None:
    """A result of each finding under each of `VERSIONS`. Every fifth one does not fail in the last."""
    added = (
        'INSERT INTO results ("case", torch, program, status, shows, runs, reason, "when") '
        "SELECT id, :torch, '', CASE WHEN :last AND rowid % 5 = 0 THEN 'passes' ELSE 'fails' END, 1, 1, '', :now "
        "FROM findings"
    )
    for torch in VERSIONS:
        values = {"torch": torch, "last": torch == VERSIONS[-1], "now": "2026-01-01T00:00:00.000000Z"}
        connection.execute(text(added), values)


def _add_sweep(database: Database, findings: Sequence[Finding]) -> None:
    """A sweep. Every third op fails, with the signatures and programs of two findings."""
    with database.transaction():
        for at in range(OPS):
            failures = tuple(
                OpFailure(one.signature, one.cause, "fails", one.anchor, ("plain",), ("float32",), 3, one.minimal or "")
                for one in (findings[at % len(findings)], findings[-1 - at % len(findings)])
            )
            op = f"torch.nn.functional.op_{at}"
            swept = OpResult(op, "opinfo", samples=16, runs=48, explicit="ok", size_oblivious="dde")
            if at % 3 == 0:
                swept = msgspec.structs.replace(swept, explicit="dde", failures=failures)
            database.save_swept("sweep", op, msgspec.json.encode(swept).decode())


def _milliseconds(port: int, path: str) -> tuple[float, float]:
    """Milliseconds by the clock and of CPU time of this process, in which the servers run."""
    begun, cpu = time.perf_counter(), time.process_time()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        raise InputError(f"{path}: found the status {answer.status}, expected 200")
    return 1000 * (time.perf_counter() - begun), 1000 * (time.process_time() - cpu)
