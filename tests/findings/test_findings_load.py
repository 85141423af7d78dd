"""Many writers at once, many sightings, many shards, and kill -9: on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier

import msgspec
import pytest

from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, stamp, summary_of
from tests.findings.arbitrary_findings import START
from tests.findings.kill_writers import SIGNATURES, sighting_at
from tests.findings.servers import new_database
from tests.parameters import one_in

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=one_in(2, ("postgresql", "sqlite")))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'f.db'}"
    return new_database(request.getfixturevalue("postgres"))


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_half_made_by_kill_9(url: str) -> None:
    """Ten rounds. `python -m tests.findings.kill_writers 200 URL` does more."""
    words = [sys.executable, "-m", "tests.findings.kill_writers", "10", url]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout)
    assert figures["rounds"] == 10
    assert figures["sightings"] > 0


WRITING = """\
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from ddefuzz.findings.database import Database
from tests.findings.kill_writers import sighting_at

url, writer = sys.argv[1], int(sys.argv[2])
with Database.open(url) as database:
    for number in range(100):
        database.record(sighting_at(writer, number), datetime.now(UTC))
"""


@pytest.mark.slow
def test_four_writers_at_once_make_each_finding_once(url: str) -> None:
    """They begin with a database that does not exist yet, so they also migrate it at once."""
    words = [sys.executable, "-c", WRITING, url]
    running = [
        subprocess.Popen([*words, str(writer)], cwd=ROOT, stderr=subprocess.PIPE, text=True) for writer in range(4)
    ]
    for one in running:
        assert (one.communicate()[1], one.returncode) == ("", 0)
    with Database.open(url) as database:
        found = database.findings()
    assert len(found) == SIGNATURES
    assert sum(one.count for one in found) == 400


@pytest.mark.slow
def test_fifty_writers_at_once_count_each_sighting_once(url: str) -> None:
    """Each has connections of its own. They begin with a database that has no tables yet."""
    begin = Barrier(50)

    def write(writer: int) -> None:
        begin.wait()
        with Database.open(url) as database:
            campaign = database.start_campaign(profile="p", seed=writer, generator="g", options={}, when=START)
            for number in range(10):
                with database.transaction():
                    database.record(sighting_at(writer, number), START + timedelta(seconds=number), campaign)
                    database.advance(campaign, number + 1, START)

    with ThreadPoolExecutor(50) as threads:
        list(threads.map(write, range(50)))
    with Database.open(url) as database:
        found, campaigns = database.findings(), database.unfinished()
        assert (len(found), sum(one.count for one in found)) == (10, 500)
        assert {one.ops for one in found} == {tuple(sorted(f"writer{writer}" for writer in range(50)))}
        assert [one.next_index for one in campaigns] == [10] * 50
        assert database.read(listing.versions) == (
            listing.VersionCount("2.13.0", 10, 500, stamp(START), stamp(START + timedelta(seconds=9))),
        )
        listed = database.read(lambda session: listing.selected(session, listing.Query()))
        assert listed == tuple(map(summary_of, found))


def shard(tmp_path: Path, number: int) -> tuple[Finding, ...]:
    with Database.open(f"sqlite:///{tmp_path / f'shard{number}.db'}") as database, database.transaction():
        for case in range(number, SIGNATURES, 7):
            database.record(sighting_at(number, case), START + timedelta(minutes=number))
        return database.findings()


@pytest.mark.slow
def test_twenty_shards_are_merged_in_any_order(url: str, tmp_path: Path) -> None:
    shards = [shard(tmp_path, number) for number in range(20)]
    with Database.open(url) as database:
        for one in shards:
            database.merge(one)
        there = database.findings()
        for one in reversed(shards):
            database.merge(one)
        assert database.findings() == there
    assert sum(one.count for one in there) == sum(one.count for part in shards for one in part)
    with Database.open(f"sqlite:///{tmp_path / 'other.db'}") as other:
        for one in reversed(shards):
            other.merge(one)
        assert other.findings() == there


def test_many_sightings_are_counted(url: str) -> None:
    """A sighting adds to a count: 100,000 of them take no more space than one of each place."""
    with Database.open(url) as database:
        database.record(sighting_at(0, 0), START)
        (finding,) = database.findings()
        (seen,) = finding.occurrences
        many = msgspec.structs.replace(seen, count=100_000)
        database.put([msgspec.structs.replace(finding, occurrences=(many,))])
        database.record(sighting_at(0, 0), datetime.now(UTC))
        assert database.findings()[0].count == 100_001
