"""The cost of a database with many sightings, next to one with a single finding: to record, list, show and decide, to
merge the databases of shards, and to answer the pages of the dashboard.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median
from typing import Any, Final

import msgspec
from sqlalchemy import create_engine, func, insert, select, text

from ci.bench.command import Result, Session
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.cost.rounds import in_turn
from ddefuzz.errors import EXIT_FOUND, InputError
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By, set_state
from ddefuzz.findings.model import Progress, Sighting, stamp
from ddefuzz.findings.schema import OCCURRENCES, PROGRESS
from ddefuzz.instrument.events import Frame, Place, RaisedError
from ddefuzz.show.blocks import Block, prose, table
from ddefuzz.sweep.tasks import OpFailure, OpResult
from ddefuzz.web.app import answering
from ddefuzz.web.security import Access

START: Final = datetime(2026, 1, 1, tzinfo=UTC)

BATCH: Final = 200
"""The number of sightings that are saved together."""

CAMPAIGNS, POINTS, OPS = 200, 240, 1_400
"""Campaigns with one point a minute for four hours, and as many ops as a sweep of torch 2.13.0 has."""

VERSIONS: Final = ("2.13.0+cpu", "2.14.1+cpu", "2.15.0+cpu")
"""Each finding has a result of `ddefuzz matrix` under each of them."""

PATHS: Final = (
    "/findings",
    "/findings?page=100&data=all",
    "/findings?sort=last&order=asc",
    "/findings?kind=dde&cause=avoidable&sort=site",
    "/findings?open=all&stage=compile&sort=state",
    "/findings?op=*op1*&site=at::*",
    "/findings?torch=2.13.0&verdict=fails",
    "/findings?owner=ada&priority=high",
    "/findings?q=native+f1&state=new",
    "/findings?q=found+nowhere",
    "/findings?format=json",
    "/findings/{id}",
    "/",
    "/sites",
    "/versions?show=all&page=20",
    "/census",
    "/campaigns",
)
"""All pages, and the list of findings with each kind of filter and order. `{id}` is the first finding."""


class LoadStep(msgspec.Struct, frozen=True):
    """Milliseconds of CPU time of one step with all sightings, and with those of an almost empty database, if that has
    them. `milliseconds` are those of the clock.
    """

    step: str
    cpu_milliseconds: float
    empty_cpu_milliseconds: float | None = None
    milliseconds: float | None = None


class LoadCost(msgspec.Struct, frozen=True):
    """The sightings that were written to the shards, and what the merged database has: nothing may be lost."""

    sightings: int
    shards: int
    findings: int
    records: int
    counted: int
    bytes: int
    steps: tuple[LoadStep, ...]
    schema: str = "ddefuzz.bench.load/2"


def sighting(number: int, signatures: int) -> Sighting:
    """The sighting of a case: another op after each round of signatures, so that each is a record."""
    name = f"at::native::f{number % signatures}"
    frame = Frame("aten/src/ATen/native/Load.cpp", 1, name, "guard_int operator==", exact=True)
    raised = RaisedError("Eq(u0, 0)", "guard_int", Place("C++", frame.file, frame.line), (frame,))
    error = ExceptionInfo("GuardOnDataDependentSymNode", "Could not guard")
    failure = Failure("dde", Observation("export", EXPLICIT, "fail", "", (error,), raised), "Eq(u0, 0)")
    signature = Signature("dde", Site("C++", None, name), "guard_int operator==")
    return Sighting(
        classified=Classification(failure, signature, "avoidable", "rule"),
        verdict="fails",
        ops=(f"torch.op{number // signatures}",),
        torch="2.13.0",
        program=None,
    )


def run(session: Session, sightings: int, signatures: int, shards: int, requests: int) -> Result:
    """Write the sightings to the databases of shards, merge these, and measure what people and campaigns do then."""
    steps: list[LoadStep] = []
    urls = [f"sqlite:///{session.folder / f'shard{number}.db'}" for number in range(shards)]
    with _cpu(steps, f"record one sighting, {BATCH} in a transaction", sightings):
        for shard, url in enumerate(urls):
            session.live.update(f"writing shard {shard + 1} of {shards}")
            _write(url, range(shard, sightings, shards), signatures)
    merged, empty = (f"sqlite:///{session.folder / name}" for name in ("merged.db", "empty.db"))
    with Database.open(merged) as database, Database.open(empty) as small:
        with _cpu(steps, "merge one shard", shards), database.transaction():
            for shard, url in enumerate(urls):
                session.live.update(f"merging shard {shard + 1} of {shards}")
                with Database.open(url, create=False) as other:
                    database.merge(other.findings())
        counted = database.read(lambda session: session.scalar(select(func.sum(OCCURRENCES.c.count)))) or 0
        records = database.read(lambda session: session.scalar(select(func.count()).select_from(OCCURRENCES))) or 0
        findings = database.read(lambda session: listing.counts(session).total)
        _write(empty, range(1), signatures)
        key = sighting(0, signatures).signature.key
        for name, step in _steps(sightings, signatures, key).items():
            steps.append(_both(session, name, partial(step, database), partial(step, small), requests))
        with _cpu(steps, "list all findings", 1):
            database.read(lambda session: listing.selected(session, listing.Query()))
        with _cpu(steps, "read all findings", 1):
            database.findings()
        _fill(database, merged)
        with answering(database, Access()) as many, answering(small, Access()) as few:
            for path in (path.format(id=key) for path in PATHS):
                steps.append(_both(session, path, partial(_get, many, path), partial(_get, few, path), requests))
    size = sum(path.stat().st_size for path in session.folder.glob("merged.db*"))
    cost = LoadCost(sightings, shards, findings, records, int(counted), size, tuple(steps))
    return Result(cost, view(cost), exit_code=0 if cost.counted == cost.sightings else EXIT_FOUND)


def view(cost: LoadCost) -> Iterator[Block]:
    """What the merged database has, and a row for each step."""
    head = "{} sightings in {} shards. Merged: {} sightings, {} records, {} findings, {} MB"
    megabytes = f"{cost.bytes / 1e6:.0f}"
    yield prose(head, cost.sightings, cost.shards, cost.counted, cost.records, cost.findings, megabytes)
    rows = [
        (
            f"{step.cpu_milliseconds:.2f}",
            f"{step.cpu_milliseconds / step.empty_cpu_milliseconds:.1f}" if step.empty_cpu_milliseconds else "",
            f"{step.milliseconds:.2f}" if step.milliseconds else "",
            step.step,
        )
        for step in cost.steps
    ]
    titles = ("CPU ms", "over one finding", "ms by the clock", "step")
    yield table(titles, rows, right=titles[:3])


def _write(url: str, numbers: range, signatures: int) -> None:
    with Database.open(url) as database:
        for first in range(0, len(numbers), BATCH):
            with database.transaction():
                for number in numbers[first : first + BATCH]:
                    database.record(sighting(number, signatures), START + timedelta(seconds=number))


@contextmanager
def _cpu(steps: list[LoadStep], step: str, times: int) -> Iterator[None]:
    start = time.process_time()
    yield
    steps.append(LoadStep(step, 1_000 * (time.process_time() - start) / max(1, times)))


def _both(session: Session, name: str, full: Callable[[], object], empty: Callable[[], object], times: int) -> LoadStep:
    """One step with both databases, in turn. The first time, which fills caches, does not count."""
    session.live.update(f"measuring: {name}")
    spent = [rounds[1:] for rounds in in_turn((full, empty), times + 1, stopped=session.stopped)]
    cpu = [1_000 * median(one.cpu_seconds for one in rounds) for rounds in spent]
    return LoadStep(name, cpu[0], cpu[1], 1_000 * median(one.seconds for one in spent[0]))


def _steps(sightings: int, signatures: int, key: str) -> dict[str, Callable[[Database], object]]:
    """What a campaign and a person do with one database."""
    numbers = iter(range(sightings * signatures, 2**62, signatures))
    query, by = listing.Query(open_only=True), By("bench", START, "measured")
    return {
        "record one sighting, in a transaction of its own": lambda database: database.record(
            sighting(next(numbers), signatures), START
        ),
        "list a page of 50, the latest first": lambda database: database.read(
            lambda session: listing.page(session, query, "last", descending=True, first=0, most=50)
        ),
        "show one finding": lambda database: database.resolve(key),
        "decide on one finding": lambda database: database.decide(
            key, lambda one: set_state(one, "triaged" if one.state == "new" else "new", by)
        ),
    }


def _get(port: int, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        raise InputError(f"{path}: found the status {answer.status}, expected 200")


def _fill(database: Database, url: str) -> None:
    """Add campaigns, a sweep in which every third op fails, and results under `VERSIONS`, of which every fifth passes
    in the last.
    """
    begun, points = START, list[dict[str, Any]]()
    signature = sighting(0, 1).signature
    failure = OpFailure(signature, "avoidable", "fails", "", ("plain",), ("float32",), 3, "")
    with database.transaction():
        for seed in range(CAMPAIGNS):
            campaign = database.start_campaign(profile="default", seed=seed, generator="1", options={}, when=begun)
            for at in range(POINTS):
                begun += timedelta(minutes=1)
                point = (campaign, stamp(begun), 100 * at, 60.0 * at, 120.0 * at, at, at // 2, at // 4)
                points.append(dict(zip(("campaign_id", *Progress.__struct_fields__), point, strict=True)))
            database.finish_campaign(campaign, begun)
        for at in range(OPS):
            failures = () if at % 3 else (failure,)
            swept = OpResult(f"torch.op_{at}", "opinfo", samples=16, runs=48, explicit="ok", failures=failures)
            database.save_swept("sweep", swept.op, msgspec.json.encode(swept).decode())
    added = (
        'INSERT INTO results ("case", torch, program, status, shows, runs, reason, "when") '
        "SELECT id, :torch, '', CASE WHEN :last AND rowid % 5 = 0 THEN 'passes' ELSE 'fails' END, 1, 1, '', :now "
        "FROM findings"
    )
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(insert(PROGRESS), points)
        for torch in VERSIONS:
            connection.execute(text(added), {"torch": torch, "last": torch == VERSIONS[-1], "now": stamp(START)})
    engine.dispose()
