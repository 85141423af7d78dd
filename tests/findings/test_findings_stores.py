"""SQLite and PostgreSQL: commands print the same, and a backup that is made while a campaign writes can be restored."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from ddefuzz.errors import EXIT_OK
from ddefuzz.findings.connection import check
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import parse_url
from tests.findings.arbitrary_findings import CHUNK, ROLL, START, sighting
from tests.findings.kill_writers import sighting_at
from tests.findings.servers import new_database, programs
from tests.typed import typed

COMMANDS = (
    f"findings set {CHUNK.key} triaged --why because",
    f"findings dup {ROLL.key} {CHUNK.key}",
    f"findings undo {ROLL.key}",
    f"findings show {CHUNK.key[:8]} --format json",
    "findings reclassify",
    "findings export text",
    "findings import text",
    "tokens add ada",
    "sites --format json",
    "report --format json",
)
"""Commands that read or write a database and run no programs."""


@pytest.mark.slow
def test_commands_print_the_same_on_both(tmp_path: Path, postgres: str) -> None:
    printed: list[list[str]] = []
    for url, folder in ((f"sqlite:///{tmp_path}/a.db", tmp_path / "a"), (new_database(postgres), tmp_path / "b")):
        folder.mkdir()
        with Database.open(url) as database:
            database.record(sighting(CHUNK), START)
            database.record(sighting(ROLL), START + timedelta(hours=1))
        other = f"sqlite:///{folder}/other.db"
        with Database.open(other) as database:
            database.record(sighting(ROLL, ops=("torch.other",)), START + timedelta(hours=2))
        lines = []
        for words in (*COMMANDS, f"findings merge {other}", "findings list"):
            ended = typed(*words.split(), "--db", url, folder=folder)
            assert ended.returncode == EXIT_OK, (words, ended.stderr)
            known = re.sub(r"20\d\d-\d\d-\d\d[T ][\d:.]+Z?|[\w-]{43}|'?(sqlite|postgresql):\S+", "…", ended.stdout)
            lines.append(f"{words.split()[:2]}\n{known}")
        printed.append(lines)
    assert printed[0] == printed[1]


def backup_of_file(url: str, tmp_path: Path) -> str:
    """As docs/scale.md says: VACUUM INTO copies one state of a database that is in use."""
    path, copy = parse_url(url).path(), tmp_path / "copy.db"
    with closing(sqlite3.connect(str(path), timeout=60)) as connection:
        connection.execute(f"VACUUM INTO '{copy}'")
    return f"sqlite:///{copy}"


def backup_of_server(url: str, tmp_path: Path) -> str:
    """As docs/scale.md says: pg_dump, and pg_restore into a new database."""
    tools, dump = programs(), tmp_path / "copy.dump"
    assert tools is not None
    copy = new_database(re.sub(r"/\w+\?", "/{}?", url))
    subprocess.run([tools / "pg_dump", "--format=custom", f"--file={dump}", url], check=True)
    subprocess.run([tools / "pg_restore", "--no-owner", "--exit-on-error", f"--dbname={copy}", dump], check=True)
    return copy


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "backup"), [("sqlite", backup_of_file), ("postgresql", backup_of_server)])
def test_a_backup_of_a_database_in_use_is_one_state_of_it(
    kind: str, backup: Callable[[str, Path], str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As many sightings as the campaign has done cases, and it can be resumed."""
    url = f"sqlite:///{tmp_path}/a.db" if kind == "sqlite" else new_database(request.getfixturevalue("postgres"))
    stopped, begun = threading.Event(), threading.Event()
    with Database.open(url) as database:
        campaign = database.start_campaign(profile="p", seed=1, generator="g", options={}, when=START)

        def write() -> None:
            for number in count():
                with database.transaction():
                    database.record(sighting_at(0, number), START, campaign)
                    database.add_step(campaign, b"counted")
                    database.advance(campaign, number + 1, START)
                if number == 20:
                    begun.set()
                if stopped.is_set():
                    return

        writer = threading.Thread(target=write)
        writer.start()
        assert begun.wait(60)
        try:
            copy = backup(url, tmp_path)
        finally:
            stopped.set()
            writer.join()
        cases = database.unfinished()[0].next_index
    assert "writable" in check(parse_url(copy))
    with Database.open(copy, create=False) as restored:
        (entry,) = restored.unfinished()
        assert sum(one.count for one in restored.findings()) == entry.next_index == len(restored.steps(entry.id))
        assert 20 < entry.next_index <= cases
        again = restored.record(sighting_at(0, 0), START, campaign)
        assert not again.is_new
