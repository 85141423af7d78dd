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
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import psutil  # type: ignore[import-untyped]

from ci.bench.command import Result, Session
from ddefuzz.campaign.launch import start
from ddefuzz.campaign.plan import Plan, parse_budget
from ddefuzz.cli.output import stop_on_interrupt
from ddefuzz.errors import EXIT_INTERRUPTED, InputError
from ddefuzz.execute.pool import Stopped, exit_reason
from ddefuzz.execute.protocol import DEFAULT_STAGES, EXPLICIT
from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import ENVIRONMENT, ProcessLine, SiteCount, Step, growth, read_lines
from ddefuzz.show.blocks import Block, Items, counted, prose, table

OPINFO = Path(__file__).with_name("opinfo.py")
"""PyTorch's OpInfo samples."""

POLL_SECONDS = 0.5

START_SECONDS = 120.0
"""CPU seconds that a command may use before it installs the hook."""


GRID = 61
"""Points of a mean curve, including its ends."""

NOTHING = SiteCount(0, 0, 0, 0)


class Curve(msgspec.Struct, frozen=True):
    """What one tool reached with one seed, one step for each new site. `cpu_seconds` is how long it ran.

    `killed` is the signal that ended it early, `SIGSEGV (Segmentation fault)`; empty if none did.
    """

    peer: str
    seed: int
    torch: str
    cpu_seconds: float
    steps: tuple[Step, ...]
    killed: str = ""


class Estimate(msgspec.Struct, frozen=True):
    """A mean over the seeds, and the 95% bootstrap interval of it: None with one seed, or without scipy."""

    mean: float
    low: float | None = None
    high: float | None = None


class Moment(msgspec.Struct, frozen=True):
    """The mean state of a tool after this many CPU seconds."""

    cpu_seconds: float
    fallback: Estimate
    dde: Estimate


class Peer(msgspec.Struct, frozen=True):
    """One row: at the end of the budget, distinct fallback sites and DDE call sites, with the C++ ones of each.

    `sites` are guard sites of either kind.
    """

    name: str
    sites: Estimate
    fallback: Estimate
    fallback_cxx: Estimate
    dde: Estimate
    dde_cxx: Estimate
    cpu_seconds: float
    moments: tuple[Moment, ...]
    curves: tuple[Curve, ...]


class Peers(msgspec.Struct, frozen=True):
    """A whole comparison; `cpu_seconds` is the budget of each run."""

    torch: str
    cpu_seconds: float
    seeds: tuple[int, ...]
    peers: tuple[Peer, ...]
    interrupted: bool = False
    schema: str = "ddefuzz.bench.peers/1"


Tool: TypeAlias = Callable[[int, Path, Stopped], Curve | None]
"""One tool with one seed, and the folder of its files."""


def compare(budget: float, curves: Sequence[Curve], *, interrupted: bool = False) -> Peers:
    """The rows, in the order in which the tools appear first. Runs that took longer are cut at the budget."""
    names = dict.fromkeys(curve.peer for curve in curves)
    peers = tuple(_peer(name, [curve for curve in curves if curve.peer == name], budget) for name in names)
    torch = ", ".join(sorted({curve.torch for curve in curves}))
    return Peers(torch, budget, tuple(sorted({curve.seed for curve in curves})), peers, interrupted)


def reached_by(steps: Sequence[Step], cpu_seconds: float) -> SiteCount:
    """What was reached after this many CPU seconds."""
    place = bisect_right([step.cpu_seconds for step in steps], cpu_seconds)
    return steps[place - 1].sites if place else NOTHING


def estimates(samples: Sequence[Sequence[float]]) -> list[Estimate]:
    """An estimate for each column. A row belongs to a seed."""
    values = np.asarray(samples, dtype=float)
    means = values.mean(axis=0)
    stats = scipy_stats()
    if len(values) < 2 or stats is None:
        return [Estimate(round(float(mean), 2)) for mean in means]
    # Percentiles: with three seeds the corrections of other methods are of no use, and fail where all seeds agree.
    found = stats.bootstrap((values,), np.mean, axis=0, method="percentile", rng=np.random.default_rng(0))
    low, high = found.confidence_interval
    return [
        Estimate(round(float(mean), 2), round(float(below), 2), round(float(above), 2))
        for mean, below, above in zip(means, low, high, strict=True)
    ]


def scipy_stats() -> Any:
    """`scipy.stats`, None where it is not installed."""
    try:
        return import_module("scipy.stats")
    except ImportError:
        return None


def chart(peers: Peers) -> dict[str, Any]:
    """Both curves of every peer, with their intervals."""
    encoding = {
        "x": {"field": "cpu_seconds", "type": "quantitative", "title": "CPU seconds"},
        "color": {"field": "peer", "type": "nominal", "title": None, "sort": [peer.name for peer in peers.peers]},
    }
    mean = {"field": "mean", "type": "quantitative", "title": "distinct sites"}
    band = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
    return {
        "data": {"values": list(_moments(peers))},
        "facet": {"column": {"field": "sites", "title": None, "sort": ["fallback sites", "DDE call sites"]}},
        "spec": {
            "width": 380,
            "height": 300,
            "encoding": encoding,
            "layer": [
                {"mark": {"type": "area", "opacity": 0.2}, "encoding": band},
                {"mark": "line", "encoding": {"y": mean}},
            ],
        },
    }


def _moments(peers: Peers) -> Iterable[dict[str, Any]]:
    for peer in peers.peers:
        for moment in peer.moments:
            for sites, estimate in (("fallback sites", moment.fallback), ("DDE call sites", moment.dde)):
                yield {
                    "peer": peer.name,
                    "sites": sites,
                    "cpu_seconds": moment.cpu_seconds,
                    "mean": estimate.mean,
                    "low": estimate.mean if estimate.low is None else estimate.low,
                    "high": estimate.mean if estimate.high is None else estimate.high,
                }


COUNTS: dict[str, Callable[[SiteCount], float]] = {
    "sites": lambda reached: reached.fallback + reached.dde,
    "fallback": lambda reached: reached.fallback,
    "fallback_cxx": lambda reached: reached.fallback_cxx,
    "dde": lambda reached: reached.dde,
    "dde_cxx": lambda reached: reached.dde_cxx,
}
"""The columns of a peer."""


def _peer(name: str, curves: Sequence[Curve], budget: float) -> Peer:
    grid = [float(seconds) for seconds in np.linspace(0.0, budget, GRID)]
    at = [[reached_by(curve.steps, seconds) for seconds in grid] for curve in curves]
    of = {column: estimates([[count(sites) for sites in row] for row in at]) for column, count in COUNTS.items()}
    return Peer(
        name=name,
        **{column: moments[-1] for column, moments in of.items()},
        cpu_seconds=round(sum(min(curve.cpu_seconds, budget) for curve in curves) / len(curves), 1),
        moments=tuple(map(Moment, (round(seconds, 2) for seconds in grid), of["fallback"], of["dde"])),
        curves=tuple(curves),
    )


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


def run_command(command: Command, budget: float, seed: int, folder: Path, stopped: Stopped) -> Curve | None:
    """Run a command until it ends or has used its CPU seconds. Raises InputError where it writes no site line."""
    file = folder / f"{command.name}-{seed}.jsonl"
    killed = ""
    with _started([word.replace("{seed}", str(seed)) for word in command.words], file) as process:
        while process.poll() is None:
            if stopped():
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
    steps = tuple(growth(read_lines(file)))
    return Curve(command.name, seed, hooked.torch, steps[-1].cpu_seconds, steps, killed)


def run_campaign(name: str, plan: Plan, seed: int, folder: Path, stopped: Stopped) -> Curve | None:
    """Run a campaign, its database in the folder."""
    plan = replace(plan, seed=seed)
    with Database.open(f"sqlite:///{folder / f'{name}-{seed}.db'}") as database:
        summary = start(plan, database, lambda event, tally: None, stopped)
    if summary.interrupted:
        return None
    spent = sum(summary.cpu_seconds.values())
    steps = tuple(Step(point.cpu_seconds, point.sites) for point in summary.growth)
    return Curve(name, seed, summary.torch, round(spent, 3), steps)


@contextmanager
def _started(words: list[str], file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a session of its own. No process of it is left running."""
    try:
        process = subprocess.Popen(
            words,
            env={**os.environ, ENVIRONMENT: str(file)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
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

    `addr2line`, with which the hook names C++ frames, is left out, because it is not in a campaign's count
    either.
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


def run(session: Session, budget: str, seeds: int, commands: tuple[str, ...], jobs: int) -> Result:
    """Run each tool once for each seed, all with the same CPU seconds."""
    cpu_seconds = parse_budget(budget).cpu_seconds
    if cpu_seconds is None:
        raise InputError(f"--budget: found {budget!r}, expected CPU seconds such as 120cpu")
    tools = _tools(budget, cpu_seconds, map(parse_command, commands), jobs)
    curves: list[Curve] = []
    with stop_on_interrupt() as stopped:
        if seeds > 1 and scipy_stats() is None:
            session.live.say("without intervals: scipy is not installed (pip install 'ddefuzz[report]')")
        for number, (seed, name) in enumerate(((seed, name) for seed in range(seeds) for name in tools), 1):
            session.live.say(f"{number}/{seeds * len(tools)}  {name}, seed {seed}, {cpu_seconds:g} CPU seconds")
            curve = tools[name](seed, session.folder, stopped)
            if curve is None:
                break
            curves.append(curve)
            if curve.steps:
                sites = curve.steps[-1].sites
                session.live.say(
                    f"     {counted(sites.fallback, 'fallback site')}, {counted(sites.dde, 'DDE call site')}"
                )
    record = compare(cpu_seconds, curves, interrupted=len(curves) < seeds * len(tools))
    return Result(record, list(view(record)), chart(record), EXIT_INTERRUPTED if record.interrupted else 0)


def view(record: Peers) -> Iterator[Block]:
    """One row for each tool: means over the seeds at the end of the budget, with their intervals."""
    yield prose(
        "torch {}, {} CPU seconds a run, {}: mean and 95% bootstrap interval",
        record.torch,
        f"{record.cpu_seconds:g}",
        counted(len(record.seeds), "seed"),
    )
    columns = ("tool", "guard sites", "fallback sites", "of them C++", "DDE call sites", "of them C++", "CPU s")
    yield table(
        columns,
        [
            (
                peer.name,
                *(_estimate(getattr(peer, column)) for column in COUNTS),
                f"{peer.cpu_seconds:.0f}",
            )
            for peer in record.peers
        ],
    )
    killed = [
        f"{peer.name}, seed {curve.seed}: {curve.killed} ended it after {curve.cpu_seconds:.0f} CPU seconds"
        for peer in record.peers
        for curve in peer.curves
        if curve.killed
    ]
    if killed:
        yield Items(tuple(killed))


def _estimate(estimate: Estimate) -> str:
    low, high = estimate.low, estimate.high
    return f"{estimate.mean:.1f}" + ("" if low is None or high is None else f"  {low:.1f} to {high:.1f}")


def _tools(budget: str, cpu_seconds: float, commands: Iterable[Command], jobs: int) -> dict[str, Tool]:
    """The tools by name. Commands come first, so that a wrong one ends the comparison at once."""
    opinfo = Command("opinfo", (sys.executable, "-m", "ddefuzz.site_hook", str(OPINFO), "--seed", "{seed}"))
    own = (opinfo.name, "guided", "uniform")
    tools: dict[str, Tool] = {}
    for outside in commands:
        if outside.name in (*own, *tools):
            raise InputError(f"--command: found the name {outside.name!r}, which is taken, expected another one")
        tools[outside.name] = partial(run_command, outside, cpu_seconds)
    tools[opinfo.name] = partial(run_command, opinfo, cpu_seconds)
    for name in own[1:]:
        plan = Plan(
            profile="default",
            seed=0,
            budget=parse_budget(budget),
            jobs=jobs,
            stages=DEFAULT_STAGES,
            semantics=(EXPLICIT,),
            minimize=False,
            in_turn=True,
            screen=True,
            guided=name == "guided",
        )
        tools[name] = partial(run_campaign, name, plan)
    return tools
