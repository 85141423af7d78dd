"""The cost of a database with many sightings, next to one with a single finding: to record, list, show and decide, to
merge the databases of shards, and to answer the pages of the dashboard.

The findings of `findings/` are given again under other names, each with as many records (of an op and a version of
torch) as are asked for.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from sqlalchemy import func, insert, select, text
from sqlalchemy.orm import Session as Connected

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
from ddefuzz.findings.model import MOST_OBSERVED, Finding, Progress, Sighting, stamp
from ddefuzz.findings.schema import OCCURRENCES, PROGRESS
from ddefuzz.findings.textform import read_findings
from ddefuzz.findings.url import parse_url
from ddefuzz.instrument.events import Frame, Place, RaisedError
from ddefuzz.show.blocks import Block, prose, table
from ddefuzz.sweep.tasks import OpFailure, OpResult
from ddefuzz.web.app import answering
from ddefuzz.web.security import Access

START: Final = datetime(2026, 1, 1, tzinfo=UTC)

BATCH: Final = 200
"""The number of sightings that are saved together."""

FINDINGS_FOLDER: Final = Path(__file__).parents[2] / "findings"

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
    them. `milliseconds` are those of the clock. The time of a server counts.
    """

    step: str
    cpu_milliseconds: float
    empty_cpu_milliseconds: float | None = None
    milliseconds: float | None = None


class LoadCost(msgspec.Struct, frozen=True):
    """The sightings that were written to the shards, and what the merged database has: nothing may be lost. `database`
    is its kind. `bytes` are those of findings and records, without what the pages of campaigns need.
    """

    database: str
    sightings: int
    shards: int
    findings: int
    records: int
    counted: int
    bytes: int
    steps: tuple[LoadStep, ...]
    schema: str = "ddefuzz.bench.load/3"


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
        torch=VERSIONS[0],
        program=None,
    )


def recorded(sightings: int, signatures: int, each: int) -> Iterator[Finding]:
    """Findings with so many sightings in all, `each` of them in one record: those of the text form, given again."""
    templates = [one for one in read_findings(FINDINGS_FOLDER, START) if one.occurrences]
    records = sightings // each
    for number in range(signatures):
        template = templates[number % len(templates)]
        site = replace(template.site, function=f"{template.site.function}_{number}")
        signature = replace(template.signature, site=site)
        occurrences, known = [], min(len(template.occurrences), MOST_OBSERVED)
        for at in range(len(range(number, records, signatures))):
            seen = template.occurrences[at % len(template.occurrences)]
            times = {name: stamp(START + timedelta(seconds=number + at)) for name in ("first_seen", "last_seen")}
            of = {"torch": VERSIONS[at % len(VERSIONS)], "op": f"torch.op{at}", "count": each, **times}
            occurrences.append(replace(seen, **of, observed=seen.observed if at < known else None))
        cut = {"state": "new", "duplicate_of": None} if template.duplicate_of else {}
        yield replace(template, id=signature.key, signature=signature, occurrences=tuple(occurrences), former=(), **cut)


def run(
    session: Session, sightings: int, signatures: int, each: int, shards: int, requests: int, urls: tuple[str, ...]
) -> Result:
    """Write the sightings to the databases of shards, merge these, and measure what people and campaigns do then."""
    if len(urls) not in (0, 2):
        raise InputError(f"--db: found {len(urls)}, expected two: the database, and that with one finding")
    steps: list[LoadStep] = []
    signatures = min(signatures, sightings // each)
    merged, empty = urls or [f"sqlite:///{session.folder / name}" for name in ("merged.db", "empty.db")]
    whole, key = recorded(sightings, signatures, each), sighting(0, signatures).signature.key
    with Database.open(merged) as database, Database.open(empty) as small:
        server = Server(database, small)
        spent = 0.0
        for shard in range(shards):
            if session.stopped():
                raise KeyboardInterrupt
            session.live.update(f"writing and merging shard {shard + 1} of {shards}")
            url = f"sqlite:///{session.folder / f'shard{shard}.db'}"
            with Database.open(url) as other:
                other.put(islice(whole, len(range(shard, signatures, shards))))
                server.look()
                before = server.cpu()
                database.merge(other.findings())
                spent += server.cpu() - before
            for file in session.folder.glob(f"shard{shard}.db*"):
                file.unlink()
        records, counted = database.read(_counted)
        findings, size = database.read(lambda session: listing.counts(session).total), database.read(_bytes)
        steps.append(LoadStep(f"merge the records of {BATCH} sightings", 1_000 * spent / sightings * BATCH))
        for opened in (database, small):
            opened.record(sighting(0, signatures), START)
        for name, step in _steps(sightings, signatures, key).items():
            steps.append(_both(session, name, partial(step, database), partial(step, small), requests, server))
        for opened in (database, small):
            _fill(opened)
        with answering(database, Access()) as many, answering(small, Access()) as few:
            for path in (path.format(id=key) for path in PATHS):
                full, one_finding = partial(_get, many, path), partial(_get, few, path)
                steps.append(_both(session, path, full, one_finding, requests, server))
    kind = parse_url(merged).for_sqlalchemy().get_backend_name()
    cost = LoadCost(kind, sightings, shards, findings, records, counted, size, tuple(steps))
    return Result(cost, view(cost), exit_code=0 if cost.counted == cost.sightings else EXIT_FOUND)


def _counted(session: Connected) -> tuple[int, int]:
    """The number of records, and of sightings in them."""
    row = session.execute(select(func.count(), func.sum(OCCURRENCES.c.count))).one()
    return int(row[0]), int(row[1] or 0)


def _bytes(session: Connected) -> int:
    """The size of a database."""
    sqlite = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    own = {"sqlite": sqlite, "postgresql": "SELECT pg_database_size(current_database())"}
    return int(session.execute(text(own[session.get_bind().dialect.name])).scalar_one())


class Server:
    """The CPU seconds of this process with the processes of a server on this machine that work for databases."""

    def __init__(self, *databases: Database) -> None:
        self._databases = databases
        self._processes: set[int] = set()

    def look(self) -> None:
        """Note which processes there are now."""
        query = text("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        for database in self._databases:
            if database.url.path() is None:
                self._processes |= set(database.read(lambda session: session.scalars(query).all()))

    def cpu(self) -> float:
        """CPU seconds so far. The kernel counts those of a process in nanoseconds."""
        files = (Path(f"/proc/{process}/schedstat") for process in self._processes)
        return time.process_time() + sum(int(file.read_text().split()[0]) / 1e9 for file in files if file.exists())


def view(cost: LoadCost) -> Iterator[Block]:
    """What the merged database has, and a row for each step."""
    head = "{}: {} sightings in {} shards. Merged: {} sightings, {} records, {} findings, {} MB"
    megabytes = f"{cost.bytes / 1e6:.0f}"
    numbers = (cost.sightings, cost.shards, cost.counted, cost.records, cost.findings)
    yield prose(head, cost.database, *(f"{number:,}" for number in numbers), megabytes)
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


def _both(
    session: Session, name: str, full: Callable[[], object], empty: Callable[[], object], times: int, server: Server
) -> LoadStep:
    """One step with both databases, in turn. The first time, which fills caches, does not count."""
    session.live.update(f"measuring: {name}")
    full(), empty()
    server.look()
    spent = in_turn((full, empty), times, stopped=session.stopped, cpu_clock=server.cpu)
    cpu = [1_000 * median(one.cpu_seconds for one in rounds) for rounds in spent]
    return LoadStep(name, cpu[0], cpu[1], 1_000 * median(one.seconds for one in spent[0]))


def _steps(sightings: int, signatures: int, key: str) -> dict[str, Callable[[Database], object]]:
    """What a campaign and a person do with one database."""
    numbers = iter(range(sightings * signatures, 2**62, signatures))
    query, by = listing.Query(open_only=True), By("bench", START, "measured")

    def known_together(database: Database) -> None:
        with database.transaction():
            for _ in range(BATCH):
                database.record(sighting(0, signatures), START)

    return {
        f"record {BATCH} known sightings, in one transaction": known_together,
        "record a known sighting, in a transaction of its own": lambda database: database.record(
            sighting(0, signatures), START
        ),
        "record a sighting at a new place, in a transaction of its own": lambda database: database.record(
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


def _fill(database: Database) -> None:
    """Add campaigns, a sweep in which every third op fails, and results under `VERSIONS`, of which some pass in the
    last.
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
        "SELECT id, :torch, '', CASE WHEN :last AND id LIKE '%%1' THEN 'passes' ELSE 'fails' END, 1, 1, '', :now "
        "FROM findings"
    )

    def add(session: Connected) -> None:
        session.execute(insert(PROGRESS), points)
        for torch in VERSIONS:
            session.execute(text(added), {"torch": torch, "last": torch == VERSIONS[-1], "now": stamp(START)})

    database.write(add)
