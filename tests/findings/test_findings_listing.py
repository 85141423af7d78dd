"""SQL selects, orders and counts what the records themselves say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event
from sqlalchemy.orm import Session

from ddefuzz.answers.model import Control
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import is_open
from ddefuzz.findings.listing import Query
from ddefuzz.findings.model import Finding, FindingSummary, Progress, stamp, summary_of
from tests.findings.arbitrary_findings import CHUNK, ROLL, START, findings, sighting
from tests.findings.servers import new_database

many = st.lists(findings(), max_size=6, unique_by=lambda finding: finding.id)


CASES: dict[str, tuple[Query, Callable[[Finding, set[str]], bool]]] = {
    "all": (Query(), lambda _one, _torch: True),
    "state": (Query(states=("new", "fixed")), lambda one, _torch: one.state in ("new", "fixed")),
    "open": (Query(open_only=True), lambda one, torch: is_open(one.state, one.fixed_in, torch)),
    "kind": (Query(kinds=("crash",)), lambda one, _torch: one.kind == "crash"),
    "cause": (Query(causes=("avoidable", "user")), lambda one, _torch: one.cause in ("avoidable", "user")),
    "stage": (Query(stages=("compile",)), lambda one, _torch: "compile" in one.stages),
    "verdict": (
        Query(verdict="regressed"),
        lambda one, _torch: any(seen.verdict == "regressed" for seen in one.occurrences),
    ),
    "returned": (Query(returned=True), lambda one, _torch: one.id not in (CHUNK.key, ROLL.key)),
    "torch": (Query(torch="2.15.0"), lambda one, _torch: "2.15.0" in one.torch_versions),
    "op": (Query(op="torch.roll"), lambda one, _torch: "torch.roll" in one.ops),
    "ops": (Query(op="torch.*"), lambda one, _torch: bool(one.ops)),
    "site": (Query(site=str(ROLL.site)), lambda one, _torch: one.site == ROLL.site),
    "sites": (Query(site="at::*"), lambda one, _torch: one.site == CHUNK.site),
    "words": (Query(words=("NATIVE", "operator=")), lambda one, _torch: one.site == CHUNK.site),
    "percent": (Query(words=("%_%",)), lambda one, _torch: "%_%" in f"{one.given_title} {one.owner} {one.notes}"),
    "owner": (Query(owner="a"), lambda one, _torch: one.owner == "a"),
    "high": (Query(priority="high"), lambda one, _torch: one.priority == "high"),
}


def place(site: Site) -> tuple[str, str, str]:
    return site.language, site.module or "\x7f", site.function or "\x7f"


KEYS: dict[listing.Sort, Callable[[FindingSummary], object]] = {
    "id": lambda one: one.id,
    "kind": lambda one: (one.signature.kind, one.cause),
    "cause": lambda one: (one.cause, one.signature.kind),
    "site": lambda one: place(one.signature.site),
    "state": lambda one: (one.state, one.signature.kind),
    "steps": lambda one: one.steps if one.steps is not None else 2**63,
    "count": lambda one: one.count or 2**63,
    "first": lambda one: one.first_seen or "\x7f",
    "last": lambda one: one.last_seen or "\x7f",
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest) -> Iterator[Database]:
    """One database for all examples, because creating one takes longest."""
    is_sqlite = request.param == "sqlite"
    with Database.open("sqlite://" if is_sqlite else new_database(request.getfixturevalue("postgres"))) as database:
        yield database


def select(
    database: Database, query: Query, sort: listing.Sort = "id", first: int = 0, most: int = 99
) -> listing.FindingsOfPage:
    return database.read(lambda session: listing.page(session, query, sort, descending=False, first=first, most=most))


@pytest.mark.slow
@given(found=many)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sql_selects_orders_and_counts_what_the_records_say(shared: Database, found: list[Finding]) -> None:
    torch = {version for one in found for version in one.torch_versions}
    shared.put(found, [one.id for one in shared.findings()])
    for name, (query, expected) in CASES.items():
        wanted = sorted(one.id for one in found if expected(one, torch))
        page = select(shared, query)
        assert (name, page.total, [one.id for one in page.findings]) == (name, len(wanted), wanted)
        listed, whole = (
            shared.read(partial(listing.selected, query=query)),
            shared.read(partial(listing.whole, query=query)),
        )
        assert (name, [one.id for one in listed]) == (name, wanted)
        assert list(listed) == [summary_of(one) for one in whole.values()]
    for sort, key in KEYS.items():
        pages = [select(shared, Query(), sort, first, 2).findings for first in range(0, len(found), 2)]
        shown = tuple(one for page in pages for one in page)
        assert sorted(one.id for one in shown) == sorted(one.id for one in found)
        keys: list[Any] = [key(one) for one in shown]
        assert (sort, keys) == (sort, sorted(keys))
    counts = shared.read(listing.counts)
    assert counts.total == len(found)
    assert counts.open == sum(is_open(one.state, one.fixed_in, torch) for one in found)
    assert counts.regressed == sum(any(seen.verdict == "regressed" for seen in one.occurrences) for one in found)
    assert counts.returned == sum(one.id not in (CHUNK.key, ROLL.key) for one in found)
    times = shared.read(listing.first_sightings)
    assert list(times) == sorted(one.first_seen for one in found if one.first_seen)


def test_a_failure_with_static_sizes_is_not_about_data(tmp_path: Path) -> None:

    other = Signature("internal-error", Site("C++", None, "f"), "x")
    with Database.open(f"sqlite:///{tmp_path / 'a.db'}") as database:
        for signature in (CHUNK, ROLL, other):
            database.record(sighting(signature), START)
        for one in (CHUNK, other):
            database.set_control(one.key, Control("fails", "fails"))
        expectations: dict[listing.AboutData, set[str]] = {"yes": {CHUNK.key, ROLL.key}, "no": {other.key}}
        for about, expected in expectations.items():
            page = select(database, Query(about_data=about))
            shown = page.findings
            assert ({one.id for one in shown}, page.total, page.left_out) == (
                expected,
                len(expected),
                3 - len(expected),
            )
            assert all((one.data_dependent is not False) == (about == "yes") for one in shown)


def test_lists_do_not_read_the_documents(tmp_path: Path) -> None:
    """Programs and failures are long: what selects, sorts and counts reads columns of other tables."""
    read: list[str] = []
    with Database.open(f"sqlite:///{tmp_path / 'a.db'}") as database:
        database.record(sighting(), START)

        def explained(session: Session) -> None:
            def explain(_connection: object, cursor: Any, statement: str, parameters: Any, *_: object) -> None:
                cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
                read.extend(row[3] for row in cursor.fetchall())

            event.listen(session.connection(), "before_cursor_execute", explain)
            for query in (
                Query(words=("a", "b")),
                Query(owner="a"),
                Query(label="a"),
                Query(site="a*"),
                Query(op="*a"),
            ):
                for sort in KEYS:
                    listing.page(session, query, sort, descending=False, first=0, most=9)
            listing.counts(session)
            listing.versions(session)
            listing.first_sightings(session)

        database.read(explained)
    assert len(read) > 10
    assert [plan for plan in read if plan.startswith("SCAN documents")] == []


def test_progress_is_kept_by_campaign(tmp_path: Path) -> None:
    point = Progress(
        when=stamp(START), cases=1, seconds=1.5, cpu_seconds=2.0, fallback_sites=3, dde_sites=4, findings=5
    )
    with Database.open(f"sqlite:///{tmp_path / 'a.db'}") as database:
        ids = [
            database.start_campaign(profile="default", seed=seed, generator="1", options={}, when=START)
            for seed in (1, 2)
        ]
        database.add_progress(ids[0], point)
        assert database.read(lambda session: listing.progress(session, ids, 200)) == {ids[0]: (point,), ids[1]: ()}
        assert [one.seed for one in database.read(lambda session: listing.campaigns(session, 9))] == [2, 1]


def test_progress_of_a_long_campaign_is_thinned_by_the_database(tmp_path: Path) -> None:
    """500 points: the first, the last eight, and others that lie evenly."""
    with Database.open(f"sqlite:///{tmp_path / 'a.db'}") as database, database.transaction():
        campaign = database.start_campaign(profile="default", seed=1, generator="1", options={}, when=START)
        for at in range(500):
            database.add_progress(
                campaign,
                Progress(
                    when=stamp(START + timedelta(seconds=10 * at)),
                    cases=at,
                    seconds=10.0 * at,
                    cpu_seconds=0.0,
                    fallback_sites=0,
                    dde_sites=0,
                    findings=0,
                ),
            )
        points = database.read(lambda session: listing.progress(session, [campaign], 20))[campaign]
    cases = [one.cases for one in points]
    assert cases[-8:] == list(range(492, 500))
    assert cases[:-8] == list(range(0, 492, 26))
