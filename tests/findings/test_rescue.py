"""A database file that disappears while it is written: an error, with the findings saved as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddefuzz.errors import DatabaseError
from ddefuzz.findings.database import Database
from ddefuzz.findings.textform import read_findings
from tests.findings.arbitrary_findings import CHUNK, ROLL, START, sighting


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replaced(path: Path) -> None:
    path.unlink()
    path.touch()


def without_its_log(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


@pytest.mark.parametrize("done", [Path.unlink, moved, replaced, without_its_log])
def test_findings_of_a_deleted_database_are_saved_as_text(tmp_path: Path, done: object) -> None:
    path = tmp_path / "new.db"
    with Database.open(f"sqlite:///{path}") as database:
        database.record(sighting(CHUNK), START)
        assert callable(done)
        done(path)
        for number in ("", "1"):  # each time anew: nothing that is there is overwritten
            with pytest.raises(DatabaseError, match="was deleted, moved or replaced while it was open") as caught:
                database.record(sighting(ROLL), START)
            folder = tmp_path / f"new.db-rescued{number}"
            assert f"its findings (2) are in {folder}: `ddefuzz findings import {folder}` reads them" in str(
                caught.value
            )
            assert {finding.signature for finding in read_findings(folder, START)} == {CHUNK, ROLL}


def test_a_database_without_a_file_is_always_there() -> None:
    with Database.open("sqlite://") as database:
        database.record(sighting(CHUNK), START)
        assert len(database.findings()) == 1
