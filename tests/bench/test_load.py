"""The benchmark of a database with many sightings: what it writes, loses and prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.bench import load
from ci.bench.command import Session
from ddefuzz.cli.output import LiveLine
from ddefuzz.errors import EXIT_FOUND
from ddefuzz.findings.database import Database
from tests.bench.typed_bench import invoked

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CAMPAIGNS", "POINTS", "OPS"):
        monkeypatch.setattr(load, name, 4)


def run(*words: str, code: int = 0) -> str:
    return invoked("load", "--sightings", "60", "--shards", "3", "--requests", "1", *words, code=code)


def test_each_sighting_is_a_record_and_none_is_lost() -> None:
    document = json.loads(run("--signatures", "7", "--format", "json"))
    assert (document["findings"], document["records"], document["counted"]) == (7, 60, 60)
    measured_twice = [one["step"] for one in document["steps"] if one["empty_cpu_milliseconds"] is not None]
    assert len(measured_twice) == 4 + len(load.PATHS)
    assert "/findings?sort=last&order=asc" in measured_twice
    assert all(one["cpu_milliseconds"] > 0 for one in document["steps"])


def test_a_lost_sighting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    merge = Database.merge
    monkeypatch.setattr(Database, "merge", lambda self, findings: merge(self, findings[1:]))
    text = run(code=EXIT_FOUND)
    assert text.startswith("60 sightings in 3 shards. Merged: 57 sightings, 57 records, 57 findings")


def test_a_shard_has_its_part(tmp_path: Path) -> None:
    cost = load.run(Session(LiveLine("measuring"), tmp_path), 10, 1_000, 2, 1).record
    assert isinstance(cost, load.LoadCost)
    with Database.open(f"sqlite:///{tmp_path / 'shard1.db'}") as database:
        assert sorted(one.site.function or "" for one in database.findings()) == [
            f"at::native::f{number}" for number in (1, 3, 5, 7, 9)
        ]
    assert cost.bytes > 0
