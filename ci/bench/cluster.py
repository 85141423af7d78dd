"""Campaigns on a Ray cluster whose nodes are simulated on this machine, beside campaigns of the local engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]
from ray import cluster_utils

from ci.bench.command import Result, Session, ratios
from ddefuzz.errors import EXIT_FOUND, EXIT_USAGE, DdefuzzError
from ddefuzz.execute.engine import Engine, EngineName, Setup
from ddefuzz.show.blocks import prose, table

STORE_BYTES = 100_000_000
"""The memory of a node for Ray's objects. Tasks and results are far below it."""

KILL_EVERY_SECONDS = (2.0, 12.0)
TASKS = 400
TASK_SECONDS = 60.0


class Nodes:
    """A head without workers, and nodes of one worker each."""

    def __init__(self, number: int) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        before = signal.getsignal(signal.SIGTERM)
        head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        self.cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        self.members = [self._add() for _ in range(number)]
        signal.signal(signal.SIGTERM, before)  # Ray has set one of its own
        self.address: str = self.cluster.address

    def _add(self) -> Any:
        return self.cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)

    def kill_node(self, random: Random) -> None:
        """End a node without a word, and start another."""
        self.cluster.remove_node(self.members.pop(random.randrange(len(self.members))), allow_graceful=False)
        self.members.append(self._add())

    def end(self) -> None:
        """End all nodes."""
        self.cluster.shutdown()


@contextmanager
def nodes(number: int) -> Iterator[Nodes]:
    """Nodes of one worker each, in a `with` block."""
    made = Nodes(number)
    try:
        yield made
    finally:
        made.end()


class Digest(msgspec.Struct, frozen=True):
    """What has to be the same with any workers: the cases, and the signatures with the number of cases of each."""

    cases: tuple[str, ...]
    findings: dict[str, int]


class FindingCases(msgspec.Struct, frozen=True):
    """A finding of a summary."""

    finding: str
    cases: int


class RunSummary(msgspec.Struct, frozen=True):
    """A summary, as `ddefuzz run --format json` writes it."""

    digests: tuple[str, ...]
    findings: tuple[FindingCases, ...]
    seconds: float
    start_seconds: float

    @property
    def digest(self) -> Digest:
        """What has to be the same."""
        return Digest(self.digests, {one.finding: one.cases for one in self.findings})

    @property
    def rate(self) -> float:
        """Cases a second, without the start of the workers."""
        return len(self.digests) / (self.seconds - self.start_seconds)


class Record(msgspec.Struct, frozen=True):
    """What was measured. `equal` says for each number of nodes whether cases and signatures are those of the local
    engine; `rates` are cases a second (0: the local engine with two workers). `kills` counts what was killed, and
    `unharmed` says whether the campaigns came to the same end. `task_ms` are those of a task that does nothing.
    """

    cases: int
    equal: dict[int, bool]
    rates: dict[int, float]
    kills: dict[str, int]
    unharmed: bool
    task_ms: dict[str, float]
    schema: str = "ddefuzz.bench.cluster/1"


def run(session: Session, cases: int, seed: int, numbers: tuple[int, ...], kills: int) -> Result:
    """Compare campaigns of so many cases; and kill nodes, actors and drivers at random."""
    say = session.live.say
    words = ("--budget", f"{cases}x", "--seed", str(seed), "--oracle", "capture")
    say(f"{cases} cases with two workers of the local engine")
    database = session.folder / "local.db"
    local = _ended(_start(database, *words, "-j", "2"), database)
    equal, rates = dict[int, bool](), {0: round(local.rate, 2)}
    for number in numbers:
        say(f"the same on {number} nodes of one worker")
        with nodes(number) as cluster:
            database = session.folder / f"nodes-{number}.db"
            ended = _ended(_start(database, *words, *_on(cluster)), database)
        equal[number], rates[number] = ended.digest == local.digest, round(ended.rate, 2)
    killed, unharmed = Counter[str](), True
    for turn in count():
        if killed.total() >= kills:
            break
        say(f"the same with {kills - killed.total()} kills to go: nodes, actors, drivers")
        database = session.folder / f"killed-{turn}.db"
        ended = _killed(session, database, words, Random(f"{seed} {turn}"), killed, kills)
        unharmed &= ended.digest == local.digest
    task_ms = {name: round(1000 * _task_seconds(session.folder, name), 2) for name in ("local", "ray")}
    record = Record(cases, equal, rates, dict(killed), unharmed, task_ms)
    head = prose("{} cases, seed {}, oracle capture; all nodes are on this machine", cases, seed)
    cells = [("local, 2 workers", "", f"{rates[0]:.2f}")]
    cells += [(f"{number} nodes of 1", "yes" if equal[number] else "NO", f"{rates[number]:.2f}") for number in numbers]
    rows = [(rates[number] / rates[0], f"cases a second of {number} nodes over the local engine") for number in numbers]
    rows += [(task_ms["ray"] / task_ms["local"], f"of a task that does nothing: {task_ms['ray']} ms on a node")]
    ends = prose(
        "killed: {}; the same cases and findings at the end: {}",
        ", ".join(f"{number} {what}" for what, number in sorted(killed.items())) or "nothing",
        "yes" if unharmed else "NO",
    )
    code = 0 if unharmed and all(equal.values()) else EXIT_FOUND
    titles = ("workers", "same cases and findings", "cases a second")
    return Result(record, [head, table(titles, cells, right=titles[2:]), ratios(rows), ends], exit_code=code)


def _on(cluster: Nodes) -> tuple[str, ...]:
    return ("--engine", "ray", "--address", cluster.address)


def _start(database: Path, *words: str) -> subprocess.Popen[bytes]:
    """A campaign whose summary goes to a file beside the database: nobody reads a pipe while things are killed."""
    command = (sys.executable, "-m", "ddefuzz", "run", "--db", f"sqlite:///{database}", "--format", "json", *words)
    with database.with_suffix(".json").open("wb") as file:
        return subprocess.Popen(
            [*command, "--fail-on", "never"], stdout=file, stderr=subprocess.DEVNULL, start_new_session=True
        )


def _ended(process: subprocess.Popen[bytes], database: Path) -> RunSummary:
    if process.wait():
        raise DdefuzzError(f"the campaign ended with code {process.returncode}, expected 0")
    return msgspec.json.decode(database.with_suffix(".json").read_bytes(), type=RunSummary)


def _killed(
    session: Session, database: Path, words: tuple[str, ...], random: Random, killed: Counter[str], most: int
) -> RunSummary:
    """A campaign of which something is killed every few seconds, to its end."""
    with nodes(2) as cluster:
        process = _start(database, *words, *_on(cluster))
        while not session.stopped():
            with suppress(subprocess.TimeoutExpired):
                process.wait(random.uniform(*KILL_EVERY_SECONDS))
                if process.returncode != EXIT_USAGE:
                    return _ended(process, database)
                process = _start(database, *words, *_on(cluster))  # it was killed before its campaign was entered
            if killed.total() >= most:
                continue
            what = random.choice(("node", "actor", "driver"))
            if what == "node":
                cluster.kill_node(random)
            elif what == "actor":
                actors = [one for one in psutil.Process().children(recursive=True) if _is_actor(one)]
                if not actors:
                    continue
                random.choice(actors).kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                process = _start(database, "--resume", *_on(cluster))
            killed[what] += 1
        process.kill()
        raise KeyboardInterrupt


def _is_actor(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.cmdline()[0].startswith("ray::Node"))
    return False


def nothing(number: int) -> int:
    """A task."""
    return number


def _task_seconds(folder: Path, name: EngineName) -> float:
    """The seconds of a task that does nothing, with one worker."""
    journal = folder / f"journal-{name}"
    journal.mkdir()
    with Engine(name).start(1, journal, Setup()) as workers:
        workers.submit(nothing, 0, TASK_SECONDS).result()
        before = time.monotonic()
        futures = [workers.submit(nothing, number, TASK_SECONDS) for number in range(TASKS)]
        for future in futures:
            future.result()
        return (time.monotonic() - before) / TASKS
