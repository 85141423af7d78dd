"""Guard sites that a campaign reaches, compared with other tools for the same CPU seconds.

The tools are campaigns, and outside commands under the hook. Curves are means over the seeds with bootstrap intervals.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

import msgspec
import numpy as np
import psutil  # type: ignore[import-untyped]

from ci.bench.command import Result, Session
from ddefuzz.campaign.launch import start
from ddefuzz.campaign.plan import Plan, parse_budget
from ddefuzz.classify.signature import USER_CODE
from ddefuzz.errors import InputError
from ddefuzz.execute.pool import exit_reason
from ddefuzz.execute.protocol import DEFAULT_STAGES, EXPLICIT, Stage
from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import ENVIRONMENT, Ledger, ProcessLine, SiteCount, SiteRecord, Step, growth, read_lines
from ddefuzz.oracles.program import CAPTURE
from ddefuzz.show.blocks import Block, Items, counted, prose, table

OPINFO = Path(__file__).with_name("opinfo.py")
"""PyTorch's OpInfo samples."""

POLL_SECONDS = 0.5

START_SECONDS = 120.0
"""CPU seconds that a command may use before it installs the hook."""

GRID = 61
"""Points of a curve in the chart, including its ends."""


AREAS = {
    "torch._refs": "decompositions",
    "torch._decomp": "decompositions",
    "torch._prims": "decompositions",
    "torch._prims_common": "decompositions",
    "torch._meta_registrations": "metas",
    "torch._subclasses": "fake tensors",
    "torch.nn": "torch.nn",
    "torch._higher_order_ops": "higher-order ops",
    "torch.distributed": "distributed",
    "torch._functorch": "AOTAutograd",
    "torch._dynamo": "dynamo",
    "torch._inductor": "inductor",
    "torch.fx": "fx, symbolic shapes",
    "torch": "other Python",
}
"""Areas of torch by module or package; the first that fits. C++, and what is outside torch, are areas of their own."""

CXX, OUTSIDE = "C++", "outside torch"

IN_ORDER = tuple(dict.fromkeys((CXX, *AREAS.values(), OUTSIDE)))


class AreaCount(msgspec.Struct, frozen=True):
    """Distinct places that took a fallback, and distinct call sites of errors."""

    fallback: int
    dde: int


def area_of(module: str) -> str:
    """The area of a Python module."""
    return next((area for name, area in AREAS.items() if f"{module}.".startswith(f"{name}.")), OUTSIDE)


def by_area(records: Iterable[SiteRecord]) -> dict[str, AreaCount]:
    """What was reached, by area. A call site of an error is in the area of the function that is blamed."""
    fallback: dict[str, set[tuple[str, int]]] = {}
    dde: dict[str, set[str]] = {}
    for record in records:
        if record.fallbacks:
            area = CXX if record.language == "C++" else area_of(record.file.removesuffix(".py").replace("/", "."))
            fallback.setdefault(area, set()).add((record.file, record.line))
        for blamed in record.blamed:
            file, python, _ = blamed.partition(".py")
            area = area_of(file.replace("/", ".")) if python or blamed == USER_CODE else CXX
            dde.setdefault(area, set()).add(blamed)
    return {
        area: AreaCount(len(fallback.get(area, ())), len(dde.get(area, ())))
        for area in IN_ORDER
        if area in fallback or area in dde
    }


class Curve(msgspec.Struct, frozen=True):
    """What one tool reached with one seed, one step for each new site. `cpu_seconds` is how long it ran, `areas` what
    it had reached by then.

    `killed` is the signal that ended it early, `SIGSEGV (Segmentation fault)`; empty if none did.
    """

    peer: str
    seed: int
    torch: str
    cpu_seconds: float
    steps: tuple[Step, ...]
    areas: dict[str, AreaCount] = {}
    killed: str = ""

    def reached_by(self, cpu_seconds: float) -> SiteCount:
        """What was reached after this many CPU seconds."""
        place = bisect_right([step.cpu_seconds for step in self.steps], cpu_seconds)
        return self.steps[place - 1].sites if place else SiteCount(0, 0, 0, 0)


class Estimate(msgspec.Struct, frozen=True):
    """A mean over the seeds, and the 95% bootstrap interval of it: None with one seed, or without scipy."""

    mean: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + ("" if self.low is None else f"  {self.low:.1f} to {self.high:.1f}")


COUNTS: dict[str, Callable[[SiteCount], float]] = {
    "guard sites": lambda reached: reached.fallback + reached.dde,
    "fallback sites": lambda reached: reached.fallback,
    "C++ fallback sites": lambda reached: reached.fallback_cxx,
    "DDE call sites": lambda reached: reached.dde,
    "C++ DDE call sites": lambda reached: reached.dde_cxx,
}
"""What is counted of a tool. Guard sites are of either kind."""

DRAWN = ("fallback sites", "DDE call sites")


class Peer(msgspec.Struct, frozen=True):
    """One row: the mean counts of a tool at the end of the budget, and the mean of its CPU seconds."""

    name: str
    counts: dict[str, Estimate]
    cpu_seconds: float
    curves: tuple[Curve, ...]


class Peers(msgspec.Struct, frozen=True):
    """A whole comparison; `cpu_seconds` is the budget of each run."""

    torch: str
    cpu_seconds: float
    seeds: tuple[int, ...]
    peers: tuple[Peer, ...]
    interrupted: bool = False
    schema: str = "ddefuzz.bench.peers/3"


Tool: TypeAlias = Callable[[int, Session], Curve | None]
"""One tool with one seed."""


def compare(budget: float, curves: Sequence[Curve], *, interrupted: bool = False) -> Peers:
    """The rows, in the order in which the tools appear first. Runs that took longer are cut at the budget."""
    peers = []
    for name in dict.fromkeys(curve.peer for curve in curves):
        own = tuple(curve for curve in curves if curve.peer == name)
        counts = {what: estimate([count(one.reached_by(budget)) for one in own]) for what, count in COUNTS.items()}
        peers.append(Peer(name, counts, round(mean(min(one.cpu_seconds, budget) for one in own), 1), own))
    torch = ", ".join(sorted({curve.torch for curve in curves}))
    return Peers(torch, budget, tuple(sorted({curve.seed for curve in curves})), tuple(peers), interrupted)


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of one value of each seed."""
    stats, average = scipy_stats(), round(mean(values), 2)
    if len(values) < 2 or stats is None:
        return Estimate(average)
    # Percentiles: with three seeds the corrections of other methods are of no use, and fail where all seeds agree.
    interval = stats.bootstrap((values,), np.mean, method="percentile", rng=np.random.default_rng(0))
    return Estimate(average, *(round(float(end), 2) for end in interval.confidence_interval))


def scipy_stats() -> Any:
    """`scipy.stats`, None where it is not installed."""
    try:
        return import_module("scipy.stats")
    except ImportError:
        return None


def chart(peers: Peers) -> dict[str, Any]:
    """Both curves of every peer: Vega computes the mean over the seeds and its interval."""
    values = [
        {"peer": peer.name, "sites": what, "cpu_seconds": seconds, "number": COUNTS[what](curve.reached_by(seconds))}
        for peer in peers.peers
        for curve in peer.curves
        for seconds in np.linspace(0.0, peers.cpu_seconds, GRID).tolist()
        for what in DRAWN
    ]
    number = {"field": "number", "type": "quantitative", "title": "distinct sites"}
    encoding = {
        "x": {"field": "cpu_seconds", "type": "quantitative", "title": "CPU seconds"},
        "color": {"field": "peer", "type": "nominal", "title": None, "sort": [peer.name for peer in peers.peers]},
    }
    return {
        "data": {"values": values},
        "facet": {"column": {"field": "sites", "title": None, "sort": list(DRAWN)}},
        "spec": {
            "width": 380,
            "height": 300,
            "encoding": encoding,
            "layer": [
                {"mark": {"type": "errorband", "extent": "ci"}, "encoding": {"y": number}},
                {"mark": "line", "encoding": {"y": {**number, "aggregate": "mean"}}},
            ],
        },
    }


class Command(msgspec.Struct, frozen=True):
    """A command of another tool. `{seed}` is replaced. DDEFUZZ_SITES names the file for the hook's output."""

    name: str
    words: tuple[str, ...]


def parse_command(text: str) -> Command:
    """`NAME=CMD ARGS …`; raises InputError."""
    name, separator, line = text.partition("=")
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise InputError(f"--command: found {text[:80]!r}, expected words as in a shell: {error}") from error
    if not name or not separator or not words:
        raise InputError(f"--command: found {text[:80]!r}, expected NAME=COMMAND")
    return Command(name, words)


def run_command(command: Command, budget: float, seed: int, session: Session) -> Curve | None:
    """Run a command until it ends or has used its CPU seconds; None if stopped before. Raises InputError where it
    writes no site line.
    """
    file = session.folder / f"{command.name}-{seed}.jsonl"
    killed = ""
    with _started([word.replace("{seed}", str(seed)) for word in command.words], file) as process:
        while process.poll() is None:
            if session.stopped():
                return None
            hooked = _hooked(file)
            if _used(process.pid) > (START_SECONDS if hooked is None else hooked.cpu_seconds + budget):
                break
            time.sleep(POLL_SECONDS)
        else:
            killed = exit_reason(process.returncode) if process.returncode < 0 else ""
    hooked = _hooked(file)
    if hooked is None:
        raise InputError(
            f"--command {command.name}: found no line of the hook's, expected a command that imports "
            f"ddefuzz.site_hook; it ended with {process.returncode}"
        )
    ledger = Ledger()
    steps = tuple(growth(read_lines(file), ledger))
    return Curve(command.name, seed, hooked.torch, steps[-1].cpu_seconds, steps, by_area(ledger.drain()), killed)


@contextmanager
def _started(words: list[str], file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a session of its own. No process of it is left running."""
    none = subprocess.DEVNULL
    environment = {**os.environ, ENVIRONMENT: str(file)}
    try:
        process = subprocess.Popen(words, env=environment, stdin=none, stdout=none, stderr=none, start_new_session=True)
    except OSError as error:
        raise InputError(f"--command: found {words[0]!r}, expected a program to run: {error.strerror}") from error
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _used(pid: int) -> float:
    """CPU seconds of a process and all its descendants, including those that have ended.

    `addr2line`, with which the hook names C++ frames, is left out, because it is not in a campaign's count either.
    """
    try:
        process = psutil.Process(pid)
        below = [one for one in process.children(recursive=True) if one.name() != "addr2line"]
        times = [one.cpu_times() for one in (process, *below)]
    except psutil.NoSuchProcess:
        return 0.0
    return float(sum(one.user + one.system + one.children_user + one.children_system for one in times))


def _hooked(file: Path) -> ProcessLine | None:
    """What the first process wrote when the hook was installed, None before it is."""
    lines = read_lines(file) if file.exists() else []
    return next((line for line in lines if isinstance(line, ProcessLine)), None)


def plan_of(
    budget: str, seed: int, jobs: int, stages: tuple[Stage, ...], guided: bool, oracles: tuple[str, ...] = CAPTURE
) -> Plan:
    """A campaign that is measured: its cases are screened, and each is captured in one stage."""
    return Plan(
        profile="default",
        seed=seed,
        budget=parse_budget(budget),
        jobs=jobs,
        stages=stages,
        semantics=(EXPLICIT,),
        minimize=False,
        in_turn=True,
        screen=True,
        guided=guided,
        oracles=oracles,
    )


def run_campaign(budget: str, jobs: int, guided: bool, seed: int, session: Session) -> Curve | None:
    """Run a campaign; None if stopped before."""
    plan = plan_of(budget, seed, jobs, DEFAULT_STAGES, guided)
    name = CAMPAIGNS[guided]
    with Database.open(f"sqlite:///{session.folder / f'{name}-{seed}.db'}") as database:
        summary = start(plan, database, lambda event, tally: None, session.stopped)
        areas = by_area(database.sites(summary.torch))
    if summary.interrupted:
        return None
    steps = tuple(Step(point.cpu_seconds, point.sites) for point in summary.growth)
    return Curve(name, seed, summary.torch, round(sum(summary.cpu_seconds.values()), 3), steps, areas)


CAMPAIGNS = {True: "guided", False: "uniform"}


def run(session: Session, budget: str, seeds: int, commands: tuple[str, ...], jobs: int) -> Result:
    """Run each tool once for each seed, all with the same CPU seconds."""
    cpu_seconds = parse_budget(budget).cpu_seconds
    if cpu_seconds is None:
        raise InputError(f"--budget: found {budget!r}, expected CPU seconds such as 120cpu")
    tools = _tools(budget, cpu_seconds, map(parse_command, commands), jobs)
    curves: list[Curve] = []
    if seeds > 1 and scipy_stats() is None:
        session.live.say("without intervals: scipy is not installed (pip install 'ddefuzz[report]')")
    for number, (seed, name) in enumerate(((seed, name) for seed in range(seeds) for name in tools), 1):
        session.live.say(f"{number}/{seeds * len(tools)}  {name}, seed {seed}, {cpu_seconds:g} CPU seconds")
        curve = tools[name](seed, session)
        if curve is None:
            break
        curves.append(curve)
        sites = curve.reached_by(cpu_seconds)
        session.live.say(f"     {counted(sites.fallback, 'fallback site')}, {counted(sites.dde, 'DDE call site')}")
    record = compare(cpu_seconds, curves, interrupted=len(curves) < seeds * len(tools))
    return Result(record, view(record), chart(record))


def view(record: Peers) -> Iterator[Block]:
    """One row for each tool: means over the seeds at the end of the budget, with their intervals."""
    yield prose(
        "torch {}, {} CPU seconds a run, {}: mean and 95% bootstrap interval",
        record.torch,
        f"{record.cpu_seconds:g}",
        counted(len(record.seeds), "seed"),
    )
    rows = [
        (peer.name, *(str(peer.counts[what]) for what in COUNTS), f"{peer.cpu_seconds:.0f}") for peer in record.peers
    ]
    yield table(("tool", *COUNTS, "CPU s"), rows)
    if areas := _area_rows(record):
        yield prose("by area of torch's source, when each run ended: fallback sites / DDE call sites")
        yield table(("area", *(peer.name for peer in record.peers)), areas)
    killed = [
        f"{peer.name}, seed {curve.seed}: {curve.killed} ended it after {curve.cpu_seconds:.0f} CPU seconds"
        for peer in record.peers
        for curve in peer.curves
        if curve.killed
    ]
    if killed:
        yield Items(tuple(killed))


def _area_rows(record: Peers) -> list[tuple[str, ...]]:
    """A row for each area that any tool reached, a column for each tool: means over its seeds."""

    def cell(peer: Peer, area: str) -> str:
        counts = [curve.areas.get(area, AreaCount(0, 0)) for curve in peer.curves]
        return f"{mean(one.fallback for one in counts):.0f} / {mean(one.dde for one in counts):.0f}"

    reached = {area for peer in record.peers for curve in peer.curves for area in curve.areas}
    return [(area, *(cell(peer, area) for peer in record.peers)) for area in IN_ORDER if area in reached]


def _tools(budget: str, cpu_seconds: float, commands: Iterable[Command], jobs: int) -> dict[str, Tool]:
    """The tools by name. Commands come first, so that a wrong one ends the comparison at once."""
    opinfo = Command("opinfo", (sys.executable, "-m", "ddefuzz.site_hook", str(OPINFO), "--seed", "{seed}"))
    tools: dict[str, Tool] = {}
    for outside in (*commands, opinfo):
        if outside.name in tools or (outside is not opinfo and outside.name in ("opinfo", *CAMPAIGNS.values())):
            raise InputError(f"--command: found the name {outside.name!r}, which is taken, expected another one")
        tools[outside.name] = partial(run_command, outside, cpu_seconds)
    return tools | {name: partial(run_campaign, budget, jobs, guided) for guided, name in CAMPAIGNS.items()}
