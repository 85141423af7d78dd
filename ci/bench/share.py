"""What drivers find that share what they learn, beside drivers that do not, and one driver with all the CPU seconds."""

from __future__ import annotations

import subprocess
import sys
from statistics import mean
from typing import NamedTuple

import msgspec

from ci.bench.command import Result, Session, ratios
from ddefuzz.errors import DdefuzzError
from ddefuzz.findings.database import Database
from ddefuzz.show.blocks import prose, table


class SeenFinding(msgspec.Struct, frozen=True):
    """A finding of a summary. `steps` says that this driver has minimized it."""

    finding: str
    steps: int | None = None


class RunSummary(msgspec.Struct, frozen=True):
    """A summary, as `ddefuzz run --format json` writes it."""

    torch: str
    digests: tuple[str, ...]
    findings: tuple[SeenFinding, ...]
    cpu_seconds: dict[str, float]


class Driver(NamedTuple):
    """A driver's database, its number of workers and its part of the CPU seconds, and more of its command line."""

    database: str
    jobs: int
    share: float
    words: tuple[str, ...]


class Found(msgspec.Struct, frozen=True):
    """What the drivers of a way found together: distinct `sites` that took a fallback and call sites of errors, the
    cases and how many of them differ, and how often a finding was minimized again.
    """

    way: str
    seed: int
    cpu_seconds: float
    sites: int
    call_sites: int
    findings: int
    cases: int
    different: int
    again: int


COUNTED = ("cpu_seconds", "sites", "call_sites", "findings", "cases", "different", "again")


class Record(msgspec.Struct, frozen=True):
    """The results of each way with each seed."""

    torch: str
    budget: float
    rows: tuple[Found, ...]
    schema: str = "ddefuzz.bench.share/1"


def run(session: Session, budget: int, drivers: int, seeds: int, round_size: int) -> Result:
    """Run campaigns of so many CPU seconds in each way, with each seed."""
    rows, torch = [], ""
    for seed in range(seeds):
        ways = {
            "one driver": [Driver("one", drivers, 1.0, ("--seed", str(seed)))],
            "apart, guided": [
                Driver(f"apart{number}", 1, 1 / drivers, ("--seed", str(seed + 1000 * number)))
                for number in range(drivers)
            ],
            "apart, shards": [
                Driver(f"shard{number}", 1, 1 / drivers, ("--seed", str(seed), "--shard", f"{number}/{drivers}"))
                for number in range(1, drivers + 1)
            ],
            "sharing": [
                Driver("sharing", 1, 1 / drivers, ("--seed", str(seed), "--share", "--shard", f"{number}/{drivers}"))
                for number in range(1, drivers + 1)
            ],
        }
        for way, members in ways.items():
            session.live.say(f"seed {seed}, {way}: {budget} CPU seconds")
            summaries = _run(session, members, budget, round_size, seed)
            torch = summaries[0].torch
            urls = {_url(session, one, seed) for one in members}
            rows.append(_found(way, seed, summaries, urls))
    names = tuple(dict.fromkeys(row.way for row in rows))
    head = prose(
        "{} drivers, {} CPU seconds together, {} seeds, rounds of {}, torch {}; means", drivers, budget, seeds,
        round_size, torch,
    )  # fmt: skip
    cells, rates = [], {}
    for way in names:
        chosen = [row for row in rows if row.way == way]
        cells.append((way, *(f"{mean(getattr(row, name) for row in chosen):.1f}" for name in COUNTED)))
        rates[way] = mean((row.sites + row.call_sites) / row.cpu_seconds for row in chosen)
    lines = [(rates["sharing"] / rates[way], f"sites a CPU second of drivers that share, over: {way}") for way in names]
    titles = ("drivers", *(name.replace("_", " ") for name in COUNTED))
    shown = table(titles, cells, right=titles[1:])
    return Result(Record(torch, budget, tuple(rows)), [head, shown, ratios(lines[:-1])])


def _url(session: Session, driver: Driver, seed: int) -> str:
    return f"sqlite:///{session.folder / f'{driver.database}-{seed}.db'}"


def _run(session: Session, drivers: list[Driver], budget: int, round_size: int, seed: int) -> list[RunSummary]:
    """Run the drivers of a way at the same time, to their end."""
    processes = []
    for number, driver in enumerate(drivers):
        command = (
            sys.executable, "-m", "ddefuzz", "run", "--db", _url(session, driver, seed), "--format", "json",
            "--fail-on", "never", "--budget", f"{budget * driver.share:g}cpu", "-j", str(driver.jobs),
            "--round", str(round_size), *driver.words,
        )  # fmt: skip
        with (session.folder / f"{number}.json").open("wb") as file:
            processes.append(subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL))
    codes = [process.wait() for process in processes]
    if session.stopped():
        raise KeyboardInterrupt
    if any(codes):
        raise DdefuzzError(f"the campaigns ended with the codes {codes}, expected 0")
    texts = [(session.folder / f"{number}.json").read_bytes() for number in range(len(drivers))]
    return [msgspec.json.decode(text, type=RunSummary) for text in texts]


def _found(way: str, seed: int, summaries: list[RunSummary], urls: set[str]) -> Found:
    places, blamed = set[tuple[object, ...]](), set[str]()
    for url in urls:
        with Database.open(url, create=False) as database:
            for record in database.sites(summaries[0].torch):
                places |= {record.key[:3]} if record.fallbacks else set()
                blamed |= set(record.blamed)
    minimized = [seen.finding for one in summaries for seen in one.findings if seen.steps is not None]
    digests = [digest for one in summaries for digest in one.digests]
    return Found(
        way, seed, round(sum(sum(one.cpu_seconds.values()) for one in summaries), 1), len(places), len(blamed),
        len({seen.finding for one in summaries for seen in one.findings}), len(digests), len(set(digests)),
        len(minimized) - len(set(minimized)),
    )  # fmt: skip
