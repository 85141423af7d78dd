"""What drivers find that share what they learn, beside drivers that do not, and one driver with all the cases."""

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
    """A driver's database, its number of workers, and more of its command line."""

    database: str
    jobs: int
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

RATES = {"case": "cases", "CPU second": "cpu_seconds"}


class Record(msgspec.Struct, frozen=True):
    """The results of each way with each seed."""

    torch: str
    rows: tuple[Found, ...]
    schema: str = "ddefuzz.bench.share/1"


def run(session: Session, cases: int, drivers: int, seeds: int, round_size: int, minimize: bool) -> Result:
    """Run campaigns of so many cases in each way, with each seed."""
    rows, torch = [], ""
    for seed in range(seeds):
        parts = [f"{number}/{drivers}" for number in range(1, drivers + 1)]
        whole, part, words = ("--budget", f"{cases}x"), ("--budget", f"{cases // drivers}x"), ("--seed", str(seed))
        others = [("--seed", str(seed + 1000 * number)) for number in range(drivers)]
        ways = {
            "one driver": [Driver("one", drivers, (*words, *whole))],
            "apart, other seeds": [Driver(f"apart{seeded[1]}", 1, (*seeded, *part)) for seeded in others],
            "apart, uniform": [Driver(f"shard{one[0]}", 1, (*words, *whole, "--shard", one)) for one in parts],
            "sharing": [Driver("sharing", 1, (*words, *whole, "--share", "--shard", one)) for one in parts],
        }
        for way, members in ways.items():
            session.live.say(f"seed {seed}, {way}: {cases} cases")
            summaries = _run(session, members, round_size, seed, minimize=minimize)
            torch = summaries[0].torch
            urls = {_url(session, one, seed) for one in members}
            rows.append(_found(way, seed, summaries, urls))
    names = tuple(dict.fromkeys(row.way for row in rows))
    head = prose(
        "{} drivers, {} cases together, {} seeds, rounds of {}, oracle capture, torch {}; means", drivers, cases, seeds,
        round_size, torch,
    )  # fmt: skip
    cells, rates = [], {}
    for way in names:
        chosen = [row for row in rows if row.way == way]
        cells.append((way, *(f"{mean(getattr(row, name) for row in chosen):.1f}" for name in COUNTED)))
        for what, count in RATES.items():
            rates[what, way] = mean((row.sites + row.call_sites) / getattr(row, count) for row in chosen)
    lines = [
        (rates[what, "sharing"] / rates[what, way], f"sites a {what} of drivers that share, over: {way}")
        for what in RATES
        for way in names[:-1]
    ]
    titles = ("drivers", *(name.replace("_", " ") for name in COUNTED))
    shown = table(titles, cells, right=titles[1:])
    return Result(Record(torch, tuple(rows)), [head, shown, ratios(lines)])


def _url(session: Session, driver: Driver, seed: int) -> str:
    return f"sqlite:///{session.folder / f'{driver.database}-{seed}.db'}"


def _run(session: Session, drivers: list[Driver], round_size: int, seed: int, *, minimize: bool) -> list[RunSummary]:
    """Run the drivers of a way at the same time, to their end."""
    processes = []
    for number, driver in enumerate(drivers):
        command = (
            sys.executable, "-m", "ddefuzz", "run", "--db", _url(session, driver, seed), "--format", "json",
            "--fail-on", "never", "-j", str(driver.jobs), "--round", str(round_size), "--oracle", "capture",
            *([] if minimize else ["--no-minimize"]), *driver.words,
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
