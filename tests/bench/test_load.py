"""The benchmark of a database with many sightings: what it writes, loses and prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.bench import load
from ddefuzz.errors import EXIT_FOUND, InputError
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
    assert len(measured_twice) == 6 + len(load.PATHS)
    assert "/findings?sort=last&order=asc" in measured_twice
    assert all(one["cpu_milliseconds"] > 0 for one in document["steps"])


def test_a_lost_sighting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    merge = Database.merge
    monkeypatch.setattr(Database, "merge", lambda self, findings: merge(self, findings[1:]))
    text = run(code=EXIT_FOUND)
    assert text.startswith("sqlite: 60 sightings in 3 shards. Merged: 57 sightings, 57 records, 57 findings")


def test_findings_are_given_again_with_many_sightings() -> None:
    findings = list(load.recorded(100_000, 500, 10))
    assert len({one.id for one in findings}) == 500
    assert {len(one.occurrences) for one in findings} == {20}
    assert sum(one.count for one in findings) == 100_000
    assert any(seen.observed for one in findings for seen in one.occurrences)


def test_a_url_has_its_database(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / name}" for name in ("many.db", "one.db")]
    run("--each", "2", "--db", urls[0], "--db", urls[1])
    for url, sightings in zip(urls, (60, 0), strict=True):
        with Database.open(url, create=False) as database:
            assert sum(one.count for one in database.findings() if one.minimal) == sightings
    with pytest.raises(InputError, match="found 1, expected two"):
        run("--db", urls[0])
