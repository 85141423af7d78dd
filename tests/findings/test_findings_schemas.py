"""A database of another schema is refused in one line that says the way on, and nothing in it changes. One that lacks
tables only gets them.
"""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import inspect, select, text

from ddefuzz.errors import DatabaseError
from ddefuzz.findings import listing
from ddefuzz.findings.connection import SCHEMA_REVISION
from ddefuzz.findings.database import Database
from ddefuzz.findings.listing import met_by
from ddefuzz.findings.model import Finding
from ddefuzz.findings.schema import SEEN
from tests.findings.arbitrary_findings import CHUNK, ROLL, START, sighting
from tests.findings.servers import new_database


def of_schema(path: Path, revision: str) -> None:
    """A database whose table of schemas has this one."""
    with Database.open(f"sqlite:///{path}") as database:
        database.record(sighting(), START)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))


@pytest.mark.parametrize(
    ("revision", "said"),
    [
        ("0001", "schema 0001 is older than this ddefuzz .*`ddefuzz findings export .*`ddefuzz findings import"),
        ("0013", "schema 0013 is older than this ddefuzz .*`ddefuzz findings export .*`ddefuzz findings import"),
        ("9999", "schema 9999 is newer than this ddefuzz .*: upgrade ddefuzz"),
    ],
)
def test_another_schema_is_refused_with_the_way_on(tmp_path: Path, revision: str, said: str) -> None:
    path = tmp_path / "other.db"
    of_schema(path, revision)
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(DatabaseError, match=said) as caught:
            Database.open(f"sqlite:///{path}", create=create)
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_tables_that_a_schema_lacks_are_added(tmp_path: Path) -> None:
    path = tmp_path / "extended.db"
    of_schema(path, "0014")
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("met", "reached", "seen"):
            connection.execute(f"DROP TABLE {table}")
    with Database.open(f"sqlite:///{path}", create=False) as database:
        campaign = database.start_campaign(profile="captures", seed=1, generator="1", options={}, when=START)
        database.record(sighting(), START, campaign)
        assert database.read(lambda session: met_by(session, campaign)) == (CHUNK.key,)
        assert [finding.id for finding in database.findings()] == [CHUNK.key]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(SCHEMA_REVISION,)]


def older(url: str) -> tuple[Finding, ...]:
    """Make a database as schema 0015 had it: no sums of sightings, and ops are not searched."""
    with Database.open(url) as database:
        for signature, torch in ((CHUNK, "2.13.0"), (CHUNK, "2.15.0"), (ROLL, "2.13.0")):
            database.record(sighting(signature, torch=torch, ops=("torch.a_b", "torch.c")), START)
        findings = database.findings()
        statements = [
            "DROP TABLE seen",
            "DROP INDEX ix_occurrences_verdict",
            "CREATE INDEX ix_occurrences_seen ON occurrences (torch, finding_id, first_seen, last_seen, count)",
            "UPDATE findings SET searched = 'Searched'",
            "UPDATE alembic_version SET version_num = '0015'",
        ]
        database.write(lambda session: [session.execute(text(statement)) for statement in statements])
    return findings


def sums(database: Database) -> set[tuple[object, ...]]:
    return {tuple(row) for row in database.read(lambda session: session.execute(select(SEEN)).all())}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_older_schema_is_extended_once_by_fifty_at_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_file = kind == "sqlite"
    url = f"sqlite:///{tmp_path / 'a.db'}" if is_file else new_database(request.getfixturevalue("postgres"))
    findings = older(url)
    with ThreadPoolExecutor(50) as threads:
        opened = list(threads.map(Database.open, [url] * 50))
    for database in opened:
        database.close()
    with Database.open(url, create=False) as database, Database.open("sqlite://") as new:
        new.put(findings)
        assert database.findings() == new.findings() == findings
        assert sums(database) == sums(new)
        assert {len(row) for row in sums(new)} == {6}
        for word, ids in (("a_B", [CHUNK.key, ROLL.key]), ("axb", []), ("seaRched", [CHUNK.key, ROLL.key])):
            query = listing.Query(words=(word,))
            assert [one.id for one in database.read(partial(listing.selected, query=query))] == sorted(ids)
        indexes = database.read(lambda session: inspect(session.connection()).get_indexes("occurrences"))
        assert [index["name"] for index in indexes] == ["ix_occurrences_verdict"]


def test_a_new_database_says_its_schema(tmp_path: Path) -> None:
    of_schema(tmp_path / "a.db", SCHEMA_REVISION)
    with Database.open(f"sqlite:///{tmp_path / 'a.db'}") as database:
        assert [finding.id for finding in database.findings()] == [CHUNK.key]
