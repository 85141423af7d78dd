"""A database that cannot be used gives one clear line, and what was recorded is kept."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import text

from ddefuzz.cli.streams import ends_by_exception, said_of
from ddefuzz.errors import DatabaseError, InputError
from ddefuzz.findings.connection import check
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By, note
from ddefuzz.findings.url import parse_url
from tests.findings.arbitrary_findings import CHUNK, ROLL, START, sighting

ROOT = Path(__file__).parents[2]

RECORD_AND_DIE = """
import os, signal, sys
from tests.findings.arbitrary_findings import CHUNK, ROLL, START, sighting
from ddefuzz.findings.decisions import By, note
from ddefuzz.findings.database import Database
database = Database.open(sys.argv[1])
database.record(sighting(CHUNK), START)
with database.transaction():
    database.record(sighting(ROLL), START)
    if sys.argv[2] == "inside":
        os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""

FILL = """
import resource, signal, sys
from dataclasses import replace
from tests.findings.arbitrary_findings import CHUNK, START, sighting
from ddefuzz.errors import DatabaseError
from ddefuzz.findings.decisions import By, note
from ddefuzz.findings.database import Database
database = Database.open(sys.argv[1])
done = 0
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
try:
    while True:
        name = database.record(sighting(CHUNK), START).finding_id
        database.decide(name, lambda finding: note(finding, f"{done}" + "x" * 10_000, By("ada", START)))
        done += 1
except DatabaseError as error:
    print(done)
    print(error)
"""


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def run(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", program, *args], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.slow
@pytest.mark.parametrize(("when", "survivors"), [("after", {CHUNK.key, ROLL.key}), ("inside", {CHUNK.key})])
def test_what_is_recorded_survives_kill_9(tmp_path: Path, when: str, survivors: set[str]) -> None:
    path = tmp_path / "ddefuzz.db"
    assert run(RECORD_AND_DIE, url(path), when).returncode == -signal.SIGKILL
    with Database.open(url(path), create=False) as database:
        assert {finding.id for finding in database.findings()} == survivors


@pytest.mark.slow
def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ddefuzz.db"
    result = run(FILL, url(path))
    assert result.returncode == 0, result.stderr
    done, message = result.stdout.splitlines()
    assert "disk" in message
    assert "expected" in message
    with Database.open(url(path), create=False) as database:
        (finding,) = database.findings()
        assert finding.count >= int(done) > 0
        assert finding.count - int(done) <= 1  # recorded, but the note did not fit


def test_a_read_only_database_can_be_read_but_not_written(tmp_path: Path) -> None:
    path = tmp_path / "ddefuzz.db"
    with Database.open(url(path)) as database:
        database.record(sighting(), START)
    with Database.open(f"sqlite:///file:{path}?mode=ro&uri=true", create=False) as database:
        assert [finding.id for finding in database.findings()] == [CHUNK.key]
        with pytest.raises(DatabaseError, match="it is read-only, expected a database that can be written"):
            database.record(sighting(), START)


def test_a_full_disk_in_a_transaction_is_said_and_not_the_lost_savepoint(tmp_path: Path) -> None:
    with (
        Database.open(url(tmp_path / "ddefuzz.db")) as database,
        pytest.raises(DatabaseError, match="the disk is full, expected free space"),
        database.transaction(),
    ):
        with database._reading() as session:
            for setting in ("cache_size", "max_page_count"):
                session.execute(text(f"PRAGMA {setting} = 1"))
        for number in range(500):
            database.save_swept("key", f"op{number}", "x" * 4_000)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "ddefuzz.db"
    path.write_text("these are my notes, not a database\n" * 100)
    with pytest.raises(DatabaseError, match="not an SQLite database"):
        Database.open(url(path))


def test_a_corrupt_database(tmp_path: Path) -> None:
    path = tmp_path / "ddefuzz.db"
    with Database.open(url(path)) as database:
        for signature in (CHUNK, ROLL):
            for number in range(20):
                name = database.record(sighting(signature), START).finding_id
                database.decide(name, partial(note, text=f"{number}" + "x" * 3_000, by=By("ada", START)))
    content = bytearray(path.read_bytes())
    content[8_192:] = b"\xa5" * (len(content) - 8_192)
    path.write_bytes(content)
    with pytest.raises(DatabaseError, match="corrupt"):
        check(parse_url(url(path)))
    with (
        pytest.raises(DatabaseError, match="corrupt, expected an intact database"),
        Database.open(url(path)) as database,
    ):
        database.findings()


def test_a_schema_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "ddefuzz.db"
    Database.open(url(path)).close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET name = CAST(x'a5a5' AS TEXT), sql = '' WHERE name = 'findings'")
    connection.close()
    with pytest.raises(DatabaseError, match="corrupt, expected an intact database"):
        Database.open(url(path))


def test_a_database_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "mail.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mails (id INTEGER)")
    connection.close()
    with pytest.raises(DatabaseError, match="found tables without one schema version"):
        Database.open(url(path))
    assert path.exists()


def test_a_database_that_is_held_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddefuzz.findings.connection.BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "ddefuzz.db"
    with Database.open(url(path)) as database:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="another process holds it locked"):
            database.record(sighting(), START)
        assert database.findings() == ()  # readers do not wait for writers
        other.close()
        database.record(sighting(), START)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("sqlite:///{tmp}/none.db", "found no such file as .*, expected a database: `ddefuzz run`"),
        ("sqlite:///{tmp}", "found a folder, expected a regular file"),
        ("sqlite:///{tmp}/pipe", "found a FIFO, expected a regular file"),
        ("sqlite:////dev/null", "found a character device, expected a regular file"),
        ("nonesuch://x/y", "found no driver"),
        ("mysql+nonesuch://x/y", "found no driver"),
    ],
)
def test_a_place_that_is_not_one(tmp_path: Path, given: str, message: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    for create in (False,) if "none.db" in given else (False, True):
        with pytest.raises(DatabaseError, match=message):
            Database.open(given.format(tmp=tmp_path), create=create)


def test_check_returns_a_line_for_doctor(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ddefuzz.db"
    assert check(parse_url(url(path))) == f"sqlite:///{path}: schema 0016, 0 findings, writable"


ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x AS finding_id, '' AS summary FROM r"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"CREATE VIEW documents AS {ENDLESS}", "found the view 'documents', expected tables only"),
        (
            "CREATE TRIGGER gone AFTER INSERT ON sites BEGIN DELETE FROM findings; END",
            "found the trigger 'gone', expected tables only",
        ),
    ],
)
def test_a_file_that_brings_code_is_refused(tmp_path: Path, statement: str, said: str) -> None:
    path = tmp_path / "hostile.db"
    with Database.open(url(path)) as database:
        database.record(sighting(), START)
    with closing(sqlite3.connect(path)) as connection, connection:
        if "VIEW" in statement:
            connection.execute("DROP TABLE documents")
        connection.execute(statement)
    for create in (True, False):
        with pytest.raises(DatabaseError, match=said):
            Database.open(url(path), create=create)


def test_text_that_no_database_can_hold_is_one_line(tmp_path: Path) -> None:
    said = pytest.raises(InputError, match=r"found 'q.udcff', expected text in UTF-8")
    with Database.open(url(tmp_path / "a.db")) as database, said:
        database.resolve("q\udcff")


@pytest.mark.parametrize(("number", "said"), [(signal.SIGTERM, "stopped by SIGTERM"), (signal.SIGINT, "interrupted")])
def test_a_query_that_never_ends_is_ended_by_a_signal(number: signal.Signals, said: str, tmp_path: Path) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
    try:
        with Database.open(f"sqlite:///{tmp_path}/x.db") as database, ends_by_exception():
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt) as caught:
                database.read(lambda session: session.execute(text(endless)).all())
        assert said_of(caught.value) == (said, 128 + number)
    finally:
        signal.signal(signal.SIGALRM, before)
