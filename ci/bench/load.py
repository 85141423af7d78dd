"""The cost of a database with many sightings: to record, list, show and decide, and to merge databases of shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Final

import msgspec
from sqlalchemy import func, select

from ci.bench.command import Result, Session
from ddefuzz.classify.cause import Classified
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.errors import EXIT_FOUND
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By, set_state
from ddefuzz.findings.model import Sighting
from ddefuzz.findings.schema import OCCURRENCES
from ddefuzz.instrument.events import Frame, Place, Raised
from ddefuzz.show.blocks import Block, prose, table

SIGNATURES: Final = 1_000
"""Sightings are of so many signatures in turn. Each sighting of one has an op of its own, so it is a record."""

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
BATCH: Final = 200
"""The number of sightings that are saved together, and of those that are saved one by one to be measured."""

REPEATS: Final = 5


class LoadStep(msgspec.Struct, frozen=True):
    """CPU milliseconds of one step with all sightings, and with those of an almost empty database, if that has them."""

    step: str
    cpu_milliseconds: float
    empty_cpu_milliseconds: float | None = None


class LoadCost(msgspec.Struct, frozen=True):
    """The sightings that were written to the shards, and what the merged database has: nothing may be lost."""

    sightings: int
    shards: int
    findings: int
    records: int
    counted: int
    bytes: int
    steps: tuple[LoadStep, ...]
    schema: str = "ddefuzz.bench.load/1"


def sighting(number: int) -> Sighting:
    """The sighting of a case: another op after each round of signatures."""
    name = f"at::native::f{number % SIGNATURES}"
    signature = Signature("dde", Site("C++", None, name), "guard_int operator==")
    frame = Frame("aten/src/ATen/native/Load.cpp", 1, name, "guard_int operator==", exact=True)
    raised = Raised("Eq(u0, 0)", "guard_int", Place("C++", frame.file, frame.line), (frame,))
    error = ExceptionInfo("GuardOnDataDependentSymNode", "Could not guard")
    return Sighting(
        classified=Classified(
            Failure("dde", Observation("export", EXPLICIT, "fail", "", (error,), raised), "Eq(u0, 0)"),
            signature,
            "avoidable",
            "rule",
        ),
        verdict="fails",
        ops=(f"torch.op{number // SIGNATURES}",),
        torch="2.13.0",
        program=None,
    )


def run(session: Session, sightings: int, shards: int) -> Result:
    """Write the sightings to the databases of shards, merge these, and measure what people and campaigns do then."""
    listen, folder = session.live.update, session.folder
    steps: list[LoadStep] = []
    urls = [f"sqlite:///{folder / f'shard{number}.db'}" for number in range(shards)]
    with _cpu(steps, f"record one sighting, {BATCH} in a transaction", sightings):
        for shard, url in enumerate(urls):
            listen(f"writing shard {shard + 1} of {shards}")
            _write(url, range(shard, sightings, shards))
    merged, empty = (folder / name for name in ("merged.db", "empty.db"))
    with Database.open(f"sqlite:///{merged}") as database, Database.open(f"sqlite:///{empty}") as small:
        with _cpu(steps, "merge one shard", shards), database.transaction():
            for shard, url in enumerate(urls):
                listen(f"merging shard {shard + 1} of {shards}")
                with Database.open(url, create=False) as other:
                    database.merge(other.findings())
        counted = database.read(lambda session: session.scalar(select(func.sum(OCCURRENCES.c.count)))) or 0
        records = database.read(lambda session: session.scalar(select(func.count()).select_from(OCCURRENCES))) or 0
        findings = database.read(lambda session: listing.counts(session).total)
        _write(f"sqlite:///{empty}", range(1))
        listen("measuring")
        steps += [_both(name, step, database, small, sightings) for name, step in STEPS.items()]
        with _cpu(steps, "list all findings", 1):
            database.read(lambda session: listing.selected(session, listing.Query()))
        with _cpu(steps, "read all findings", 1):
            database.findings()
    size = sum(path.stat().st_size for path in folder.glob("merged.db*"))
    cost = LoadCost(sightings, shards, findings, records, int(counted), size, tuple(steps))
    return Result(cost, list(view(cost)), exit_code=0 if cost.counted == cost.sightings else EXIT_FOUND)


def view(cost: LoadCost) -> Iterator[Block]:
    """What the merged database has, and a row for each step."""
    yield prose(
        "{} sightings in {} shards. Merged: {} sightings, {} records, {} findings, {} MB",
        cost.sightings,
        cost.shards,
        cost.counted,
        cost.records,
        cost.findings,
        f"{cost.bytes / 1e6:.0f}",
    )
    rows = [
        (
            f"{step.cpu_milliseconds:.2f}",
            f"{step.cpu_milliseconds / step.empty_cpu_milliseconds:.1f}" if step.empty_cpu_milliseconds else "",
            step.step,
        )
        for step in cost.steps
    ]
    yield table(("CPU ms", "over one finding", "step"), rows, right=("CPU ms", "over one finding"))


def _write(url: str, numbers: range) -> None:
    with Database.open(url) as database:
        for first in range(0, len(numbers), BATCH):
            with database.transaction():
                for number in numbers[first : first + BATCH]:
                    database.record(sighting(number), START + timedelta(seconds=number))


@contextmanager
def _cpu(steps: list[LoadStep], step: str, times: int) -> Iterator[None]:
    start = time.process_time()
    yield
    steps.append(LoadStep(step, 1_000 * (time.process_time() - start) / max(1, times)))


Step = Callable[[Database, int], object]


def _both(name: str, step: Step, full: Database, empty: Database, number: int) -> LoadStep:
    """One step in both databases, in turn."""
    costs: tuple[list[float], list[float]] = [], []
    for repeat in range(REPEATS):
        for database, cost in zip((full, empty), costs, strict=True):
            start = time.process_time()
            step(database, number + repeat)
            cost.append(1_000 * (time.process_time() - start))
    return LoadStep(name, *map(median, costs))


def _page(database: Database, _number: int) -> object:
    query = listing.Query(open_only=True)
    return database.read(lambda session: listing.page(session, query, "last", descending=True, first=0, most=50))


def _decide(database: Database, number: int) -> object:
    by = By("bench", START, "measured")
    return database.decide(
        sighting(0).signature.key, lambda one: set_state(one, "triaged" if one.state == "new" else "new", by)
    )


STEPS: Final[dict[str, Step]] = {
    "record one sighting, in a transaction of its own": lambda database, number: database.record(
        sighting(number * SIGNATURES), START
    ),
    "list a page of 50, the latest first": _page,
    "show one finding": lambda database, _number: database.resolve(sighting(0).signature.key),
    "decide on one finding": _decide,
}
"""What a campaign and a person do with one database."""
