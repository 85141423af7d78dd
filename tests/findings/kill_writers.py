"""Kill writers of a findings database at random moments: `python -m tests.findings.kill_writers ROUNDS URL [SEED]`.

In each round two campaigns record sightings, a triage loop decides, and a reader lists what is there, all in processes
of their own on one database. At a random time of up to 0.5 s after the first write all are killed by SIGKILL. Then it
is checked that

- the database opens, and SQLite's own check finds nothing
- every sighting whose transaction was acknowledged is there, and none twice: the sightings of a campaign are as many as
  the cases that it says are done
- no change of a state is half-made: a finding's state is the one of its last entry in the history
- the text form, read again, is the database

It prints the figures as JSON, and exits with 1 if anything is wrong.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count, pairwise
from pathlib import Path

from ddefuzz.classify.signature import Signature, Site
from ddefuzz.errors import InputError
from ddefuzz.findings.connection import check
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By, set_state
from ddefuzz.findings.model import Sighting
from ddefuzz.findings.textform import read_findings, write_findings
from ddefuzz.findings.url import parse_url
from tests.findings.arbitrary_findings import sighting

WRITERS = 2
SIGNATURES = 40
LONGEST = 0.5
STARTING = 60.0
"""How long the first acknowledgement may take, in seconds. The random time begins with it."""


def sighting_at(writer: int, number: int) -> Sighting:
    """The sighting of a case: 40 signatures in turn, and an op that names the writer."""
    signature = Signature("dde", Site("C++", None, f"at::native::f{number % SIGNATURES}"), "guard_int operator==")
    return sighting(signature, ops=(f"writer{writer}",))


def write(url: str, writer: int, campaign: int, acknowledged: int) -> None:
    """A campaign: each sighting in one transaction with the progress."""
    with Database.open(url) as database:
        start = next(one.next_index for one in database.unfinished() if one.id == campaign)
        for number in count(start):
            now = datetime.now(UTC)
            with database.transaction():
                database.record(sighting_at(writer, number), now)
                database.advance(campaign, number + 1, now)
            os.write(acknowledged, f"{writer} {number + 1}\n".encode())


def triage(url: str, acknowledged: int, seed: int) -> None:
    """A person: findings go back and forth between two states."""
    chooser = random.Random(seed)
    with Database.open(url) as database:
        while True:
            for finding in chooser.sample(found := database.findings(), min(5, len(found))):
                state = "triaged" if finding.state == "new" else "new"
                by = By("triage", datetime.now(UTC), "because")
                try:
                    database.decide(finding.id, lambda one, to=state, by=by: set_state(one, to, by))  # type: ignore[misc]
                except InputError:  # another has decided
                    continue
                os.write(acknowledged, b"t 1\n")


def read(url: str) -> None:
    """A dashboard: it reads everything again and again."""
    with Database.open(url) as database:
        while True:
            database.findings()


def start(work: Callable[[], None]) -> int:
    """Do the work in a child process. Its number is returned."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    finally:
        os._exit(70)  # it never ends by itself


def main(rounds: int, url: str, seed: int = 0) -> dict[str, int | float]:
    """Do all rounds. Raises AssertionError with what is wrong."""
    chooser = random.Random(seed)
    with Database.open(url) as database:
        campaigns = [
            database.start_campaign(profile="p", seed=one, generator="g", options={}, when=datetime.now(UTC))
            for one in range(WRITERS)
        ]
    acknowledged = [0] * WRITERS
    decisions, slowest = 0, 0.0
    with tempfile.TemporaryFile() as log:
        for number in range(rounds):
            works: list[Callable[[], None]] = [
                lambda writer=writer: write(url, writer, campaigns[writer], log.fileno())  # type: ignore[misc]
                for writer in range(WRITERS)
            ]
            works += [lambda number=number: triage(url, log.fileno(), number), lambda: read(url)]  # type: ignore[misc]
            children = [start(work) for work in works]
            begun = time.monotonic()
            while not os.fstat(log.fileno()).st_size and time.monotonic() < begun + STARTING:
                time.sleep(0.01)
            time.sleep(chooser.uniform(0.0, LONGEST))
            for child in chooser.sample(children, len(children)):
                os.kill(child, signal.SIGKILL)
            ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            assert ended == [-signal.SIGKILL] * len(children), f"round {number}: a process ended by itself: {ended}"
            log.seek(0)
            for line in log.read().decode().splitlines():
                who, done = line.split()
                if who == "t":
                    decisions += 1
                else:
                    acknowledged[int(who)] = max(acknowledged[int(who)], int(done))
            log.seek(0)
            log.truncate()
            begun = time.monotonic()
            verify(url, campaigns, acknowledged)
            slowest = max(slowest, time.monotonic() - begun)
    with Database.open(url) as database:
        sightings = sum(one.count for one in database.findings())
    return {"rounds": rounds, "sightings": sightings, "decisions": decisions, "slowest_check": round(slowest, 2)}


def verify(url: str, campaigns: list[int], acknowledged: list[int]) -> None:
    """Check what the docstring of this file lists."""
    check(parse_url(url))
    with Database.open(url) as database:
        findings = database.findings()
        progress = {one.id: one.next_index for one in database.unfinished()}
        for writer, campaign in enumerate(campaigns):
            recorded = sum(seen.count for one in findings for seen in one.occurrences if seen.op == f"writer{writer}")
            assert recorded == progress[campaign], f"writer {writer}: {recorded} sightings, {progress[campaign]} cases"
            assert recorded >= acknowledged[writer], f"writer {writer}: {recorded} < {acknowledged[writer]}"
        for one in findings:
            states = [entry for entry in sorted(one.history, key=lambda entry: entry.when) if entry.field == "state"]
            assert one.state == (states[-1].after if states else "new"), f"{one.id}: {one.state}, {states[-1:]}"
            for before, after in pairwise(states):
                assert before.after == after.before, f"{one.id}: {before} then {after}"
        with tempfile.TemporaryDirectory() as folder:
            write_findings(findings, Path(folder))
            again = tuple(read_findings(Path(folder), datetime.now(UTC)))
            assert sorted(again, key=lambda one: one.id) == list(findings), "the text form differs from the database"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))) + "\n")
