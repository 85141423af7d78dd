"""A database of another schema is refused in one line that says the way on, and nothing in it changes. One that lacks
tables only gets them.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ddefuzz.errors import DatabaseError
from ddefuzz.findings.connection import SCHEMA_REVISION
from ddefuzz.findings.database import Database
from ddefuzz.findings.listing import met_by
from tests.findings.arbitrary_findings import CHUNK, START, sighting


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
        for table in ("met", "reached"):
            connection.execute(f"DROP TABLE {table}")
    with Database.open(f"sqlite:///{path}", create=False) as database:
        campaign = database.start_campaign(profile="captures", seed=1, generator="1", options={}, when=START)
        database.record(sighting(), START, campaign)
        assert database.read(lambda session: met_by(session, campaign)) == (CHUNK.key,)
        assert [finding.id for finding in database.findings()] == [CHUNK.key]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(SCHEMA_REVISION,)]


def test_a_new_database_says_its_schema(tmp_path: Path) -> None:
    of_schema(tmp_path / "a.db", SCHEMA_REVISION)
    with Database.open(f"sqlite:///{tmp_path / 'a.db'}") as database:
        assert [finding.id for finding in database.findings()] == [CHUNK.key]
