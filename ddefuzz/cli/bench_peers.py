"""`ddefuzz bench peers`: guard sites that a campaign reaches, compared with other tools for the same CPU seconds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
import rich_click as click
from rich.console import Group

from ddefuzz.bench.curves import EXTRA, Curve, Estimate, Peers, compare, require_chart, scipy_stats, svg
from ddefuzz.bench.peers import Command, opinfo_command, parse_command, run_campaign, run_command
from ddefuzz.campaign.plan import Plan, parse_budget
from ddefuzz.cli.layout import Detailed, counted, table
from ddefuzz.cli.options import DEFAULT_STAGES, jobs_option
from ddefuzz.cli.output import Page, deliver, output_options, plain, rendered
from ddefuzz.cli.progress import LiveLine, stop_on_interrupt
from ddefuzz.errors import EXIT_INTERRUPTED, InputError
from ddefuzz.execute.pool import Stopped
from ddefuzz.execute.protocol import EXPLICIT
from ddefuzz.execute.scratch import scratch_folder

Run: TypeAlias = Callable[[int, Path, Stopped], Curve | None]
"""One tool with one seed, and the folder of its files."""


@click.command("peers")
@click.option(
    "--budget", metavar="Ncpu", default="120cpu", show_default=True, help="CPU seconds for each run of each tool."
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    metavar="N",
    default=3,
    show_default=True,
    help="Number of runs of each tool, with one seed each.",
)
@click.option(
    "--command",
    "commands",
    metavar="NAME=CMD",
    multiple=True,
    help="Another tool: a command that imports ddefuzz.bench.outside. {seed} is replaced by the seed. Can be repeated.",
)
@jobs_option
@output_options("text", "json", "svg")
def command(
    budget: str, seeds: int, commands: tuple[str, ...], jobs: int, format_: str, outputs: tuple[tuple[str, Path], ...]
) -> None:
    """Compare how fast tools reach guard sites: guided and uniform campaigns, PyTorch's OpInfo samples, other commands.

    All tools get the same CPU seconds; the start of their processes does not count. Intervals are 95% bootstrap
    intervals of the mean over the seeds.
    """
    cpu_seconds = parse_budget(budget).cpu_seconds
    if cpu_seconds is None:
        raise InputError(f"--budget: found {budget!r}, expected CPU seconds such as 120cpu")
    if "svg" in (format_, *(name for name, _ in outputs)):
        require_chart()
    named = _named_once(map(parse_command, commands))
    curves: list[Curve] = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=scratch_folder()) as folder,
        stop_on_interrupt() as stopped,
        LiveLine("measuring") as live,
    ):
        if seeds > 1 and scipy_stats() is None:
            live.say(f"without intervals: scipy is not installed ({EXTRA})")
        peers = dict(_peers(budget, cpu_seconds, named, jobs, live.say))
        for number, (seed, name) in enumerate(((seed, name) for seed in range(seeds) for name in peers), 1):
            live.say(f"{number}/{seeds * len(peers)}  {name}, seed {seed}, {cpu_seconds:g} CPU seconds")
            curve = peers[name](seed, Path(folder), stopped)
            if curve is None:
                break
            curves.append(curve)
            sites = curve.steps[-1].sites if curve.steps else None
            if sites is not None:
                live.say(f"     {counted(sites.fallback, 'fallback site')}, {counted(sites.dde, 'DDE call site')}")
    record = compare(cpu_seconds, curves, interrupted=len(curves) < seeds * len(peers))
    document = msgspec.json.encode(record).decode() + "\n"
    deliver(
        {
            "text": lambda page: peers_page(record, page),
            "json": lambda _page: document,
            "svg": lambda _page: svg(record),
        },
        format_,
        outputs,
    )
    if record.interrupted:
        raise SystemExit(EXIT_INTERRUPTED)


def peers_page(record: Peers, page: Page) -> str:
    """One row for each tool: means over the seeds at the end of the budget, with their intervals."""
    columns = ("", "guard sites", "fallback sites", "of them C++", "DDE call sites", "of them C++", "CPU s")
    rows = []
    for peer in record.peers:
        numbers = map(_estimate, (peer.sites, peer.fallback, peer.fallback_cxx, peer.dde, peer.dde_cxx))
        rows.append(Detailed([plain(cell) for cell in (peer.name, *numbers, f"{peer.cpu_seconds:.0f}")]))
    head = (
        f"torch {record.torch}, {record.cpu_seconds:g} CPU seconds a run, {counted(len(record.seeds), 'seed')}: "
        "mean and 95% bootstrap interval"
    )
    killed = [
        plain(f"{peer.name}, seed {curve.seed}: {curve.killed} ended it after {curve.cpu_seconds:.0f} CPU seconds")
        for peer in record.peers
        for curve in peer.curves
        if curve.killed
    ]
    rest = [plain(""), *killed] if killed else []
    return rendered(Group(plain(head), "", table(columns, rows, page.width), *rest), page)


def _estimate(one: Estimate) -> str:
    interval = "" if one.low is None or one.high is None else f"  {one.low:.1f} to {one.high:.1f}"
    return f"{one.mean:.1f}{interval}"


def _peers(
    budget: str, cpu_seconds: float, commands: tuple[Command, ...], jobs: int, say: Callable[[str], None]
) -> Iterator[tuple[str, Run]]:
    """The tools by name. Commands come first, so that a wrong one ends the comparison at once."""
    opinfo = opinfo_command()
    if opinfo is None:
        say("without opinfo: ci/peers/opinfo.py is only in a source checkout")
    for outside in (*commands, *([opinfo] if opinfo else [])):
        yield outside.name, _commanded(outside, cpu_seconds)
    for guided in (True, False):
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
            guided=guided,
        )
        name = "guided" if guided else "uniform"
        yield name, _campaigned(name, plan)


def _named_once(commands: Iterable[Command]) -> tuple[Command, ...]:
    taken = {"opinfo", "guided", "uniform"}
    found = tuple(commands)
    for outside in found:
        if outside.name in taken:
            raise InputError(f"--command: found the name {outside.name!r}, which is taken, expected another one")
        taken.add(outside.name)
    return found


def _commanded(outside: Command, cpu_seconds: float) -> Run:
    return lambda seed, folder, stopped: run_command(outside, cpu_seconds, seed, folder, stopped)


def _campaigned(name: str, plan: Plan) -> Run:
    return lambda seed, folder, stopped: run_campaign(name, plan, seed, folder, stopped)
