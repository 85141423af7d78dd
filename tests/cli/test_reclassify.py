"""`ddefuzz findings reclassify`: its output, and that it saves only with --write."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from ddefuzz.cli.findings import command
from ddefuzz.findings.database import Database
from ddefuzz.oracles.capture import classify
from tests.findings.arbitrary_findings import CHUNK, START, sighting

MOVED = classify(sighting(CHUNK).failure).signature.key
"""Of the failure of `sighting`, whose frames are those of roll, whatever signature it is recorded under."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with one finding under an id that today's rules do not give."""
    url = f"sqlite:///{tmp_path}/ddefuzz.db"
    with Database.open(url) as database:
        database.record(sighting(CHUNK), START)
        database.record(sighting(CHUNK), START)
    return url


def findings(url: str, *args: str, columns: int = 120) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(command, [*args, "--db", url], catch_exceptions=False)


def ids(url: str) -> list[str]:
    with Database.open(url) as database:
        return [found.id for found in database.findings()]


@pytest.mark.parametrize("columns", [60, 80, 120, 160])
def test_it_says_what_would_change_and_changes_nothing(url: str, columns: int) -> None:
    said = findings(url, "reclassify", columns=columns).stdout
    table = said.partition("1 finding become")[0]
    assert max(map(len, table.splitlines())) <= columns
    assert next(line for line in table.splitlines() if line.startswith("moved")).split() == ["moved", CHUNK.key, MOVED]
    assert "at::native::chunk → torch/_refs/__init__.py:roll" in table
    assert "1 finding become 1: 1 moved, 0 merged into others, 0 split off" in " ".join(said.split())
    assert "Nothing is saved: --write saves it." in said
    assert ids(url) == [CHUNK.key]


def test_written_the_old_id_is_still_understood(url: str) -> None:
    assert "Saved." in findings(url, "reclassify", "--write").stdout
    assert ids(url) == [MOVED]
    shown = findings(url, "show", CHUNK.key)
    assert f"{CHUNK.key} is now {MOVED}" in shown.stderr
    assert shown.stdout.startswith(f"{MOVED}: ")
    assert f"id {CHUNK.key} → {MOVED}" in shown.stdout
    assert "Nothing changes." in findings(url, "reclassify", "--write").stdout


def test_machines_get_counts_and_changes(url: str) -> None:
    document = json.loads(findings(url, "reclassify", "--format", "json").stdout)
    assert (document["schema"], document["written"]) == ("ddefuzz.reclassify/1", False)
    assert (document["findings"], document["moved"], document["sightings"], document["sightings_after"]) == (1, 1, 2, 2)
    rows = [json.loads(line) for line in findings(url, "reclassify", "--format", "jsonl").stdout.splitlines()]
    assert rows == document["changes"]
    assert ("moved", CHUNK.key, MOVED) in {(row["change"], row["finding"], row["becomes"]) for row in rows}


def test_occurrences_without_a_failure_of_their_own_can_be_dropped(url: str) -> None:
    with Database.open(url) as database:
        (found,) = database.findings()
        other = msgspec.structs.replace(found.occurrences[0], op="torch.other", observed=None)
        database.put([msgspec.structs.replace(found, occurrences=(*found.occurrences, other))])
    assert "1 occurrence kept no failure" in findings(url, "reclassify").stdout
    findings(url, "reclassify", "--write", "--drop-unobserved")
    with Database.open(url) as database:
        assert database.findings()[0].ops == ("torch.chunk",)
