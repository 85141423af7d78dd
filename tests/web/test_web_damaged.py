"""Databases with a damaged column: each page shows all other rows, and says what it left out."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ddefuzz.answers.model import Answers
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By, changed, link, note
from ddefuzz.findings.model import Progress, Result, stamp
from ddefuzz.findings.schema import METADATA
from ddefuzz.findings.tokens import add
from ddefuzz.web.pages import PAGES
from tests.findings.arbitrary_findings import CHUNK, ROLL, START, sighting
from tests.web.served import client_of, filled

GOOD = Signature("dde", Site("C++", None, "at::native::undamaged"), "guard_int operator==")

VALUES = (None, 2**62, float("inf"), "x", "2025-02-30T25:00:00.000000Z", "{", "{}", "[1, null]", b"\x00\xff")
"""Wrong types, bad JSON, NULL, invalid dates, unknown states, and bytes that are no UTF-8."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with rows in each table. No column has a constraint, so that each can be damaged."""
    path = tmp_path_factory.mktemp("damaged") / "whole.db"
    filled(path)
    with Database.open(f"sqlite:///{path}") as database:
        database.record(sighting(GOOD), START)
        by = By("ada", START)
        database.decide(CHUNK.key, lambda one: link(note(one, "a note", by), "https://example.org/1", by))
        database.decide(CHUNK.key, lambda one: changed(one, by, state="fixed", fixed_in=("2.14.0",)))
        database.set_answers(CHUNK.key, ANSWERS, lambda one: one)
        campaign = database.start_campaign(profile="p", seed=1, generator="1", options={"budget": "9x"}, when=START)
        for at in range(3):
            counts = {"cases": at, "fallback_sites": at, "dde_sites": at, "findings": at}
            when = stamp(START.replace(minute=at))
            database.add_progress(campaign, Progress(when=when, seconds=at, cpu_seconds=at, **counts))
        swept = {"op": "torch.chunk", "source": "catalogue", "explicit": "dde", "size_oblivious": "ok", "samples": 3}
        database.save_swept("key 1", "torch.chunk", json.dumps(swept))
        for torch, status in (("2.13.0", "fails"), ("2.14.0", "passes")):
            database.save_results([Result(CHUNK.key, torch, "", status, 1, 1, "", stamp(START))])
        database.write(lambda session: add(session, "ada", START))
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in METADATA.tables:
            connection.execute(f'CREATE TABLE "plain_{table}" AS SELECT * FROM "{table}"')
            connection.execute(f'DROP TABLE "{table}"')
            connection.execute(f'ALTER TABLE "plain_{table}" RENAME TO "{table}"')
    return path


ANSWERS = Answers("not a guard", "export", "2.13.0", 1, (), None)

SOURCE = "/sites/source?file=torch/_refs/__init__.py"
PATHS = [SOURCE if page.path == "/sites/source" else page.path.format(finding_id=CHUNK.key) for page in PAGES]
OWN = {SOURCE, f"/findings/{CHUNK.key}"}
"""Pages of one thing, which may be lost with it."""

COLUMNS = [(table.name, column.name) for table in METADATA.tables.values() for column in table.columns]


@pytest.mark.slow
@pytest.mark.parametrize(("table", "name"), COLUMNS)
def test_every_page_survives_a_damaged_column(
    whole: Path, tmp_path: Path, table: str, name: str, request: pytest.FixtureRequest
) -> None:
    """By default with three of the values, which are others for the next column."""
    some = VALUES[COLUMNS.index((table, name)) % 3 :: 3]
    path = tmp_path / "a.db"
    shutil.copy(whole, path)
    with closing(sqlite3.connect(path)) as connection:
        (row,) = connection.execute(f'SELECT min(rowid) FROM "{table}"').fetchone()
        with Database.open(f"sqlite:///{path}") as database:
            client = client_of(database)
            for value in VALUES if request.config.getoption("--all-payloads") else some:
                with connection:
                    connection.execute(f'UPDATE "{table}" SET "{name}" = ? WHERE rowid = ?', (value, row))
                check_pages(client, f"{table}.{name} = {str(value)[:40]!r}")


def check_pages(client: TestClient, damage: str) -> None:
    for path in PATHS:
        answer = client.get(path)
        allowed = (200, 404) if path in OWN else (200,)
        assert answer.status_code in allowed, (damage, path, answer.status_code, answer.text[-2_000:])
        if path == "/findings":
            assert f'href="/findings/{GOOD.key}"' in answer.text, (damage, "other rows are shown")
    assert client.get("/?format=json").status_code == 200, damage


def test_text_that_json_cannot_have_is_escaped(database: Database) -> None:
    options: dict[str, object] = {"budget": "1m", "shard": "\ud800"}
    database.start_campaign(profile="p", seed=1, generator="1", options=options, when=START)
    client = client_of(database)
    for path in ("/", "/campaigns"):
        document = client.get(path, params={"format": "json"})
        assert (document.status_code, r"\\ud800" in document.text) == (200, True)


def test_what_is_left_out_is_counted_named_and_logged(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = client_of(database)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        for column in ("summary", "document"):
            damaged = f"UPDATE documents SET {column} = json_set({column}, '$.%s', '%s') WHERE finding_id = ?"
            connection.execute(damaged % ("state", "odd"), (CHUNK.key,))
        connection.execute(
            "UPDATE documents SET summary = json_set(summary, '$.first_seen', 'soon') WHERE finding_id = ?", (ROLL.key,)
        )
        connection.execute("UPDATE findings SET first_seen = 'soon' WHERE id = ?", (ROLL.key,))
    with caplog.at_level(logging.WARNING, "ddefuzz.web"):
        for _ in range(3):
            page = client.get("/findings")
    document = client.get("/findings?format=json").json()["unreadable"]
    assert document["rows"] == len(caplog.records) == 2
    assert "2 rows of the database cannot be read and are left out" in page.text
    for said in (
        f"finding &#39;{CHUNK.key}&#39; in the database: Invalid enum value &#39;odd&#39;",
        "found the time &#39;soon&#39;",
    ):
        assert page.text.count(said) == 1
    overview = client.get("/")
    assert (overview.status_code, "sighting of" in overview.text) == (200, True)
    own = client.get(f"/findings/{CHUNK.key}")
    assert (own.status_code, "Invalid enum value" in own.text) == (404, True)
