"""Run the tools that are compared: campaigns, and outside commands under the hook, each for the same CPU seconds."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]

from ddefuzz.bench.curves import Curve
from ddefuzz.bench.sites import ENVIRONMENT, ProcessLine, Step, growth, read_lines
from ddefuzz.campaign.launch import start
from ddefuzz.campaign.plan import Plan
from ddefuzz.errors import InputError
from ddefuzz.execute.pool import Stopped, exit_reason
from ddefuzz.findings.database import Database

OPINFO = Path(__file__).parents[2] / "ci" / "peers" / "opinfo.py"
"""PyTorch's OpInfo samples; in a source checkout, not in the installed package."""

POLL_SECONDS = 0.5

START_SECONDS = 120.0
"""CPU seconds that a command may use before it installs the hook."""


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


def opinfo_command() -> Command | None:
    """The sweep of PyTorch's own samples, in an order drawn by the seed; None outside of a source checkout."""
    if not OPINFO.is_file():
        return None
    return Command("opinfo", (sys.executable, "-m", "ddefuzz.bench.outside", str(OPINFO), "--seed", "{seed}"))


def run_command(command: Command, budget: float, seed: int, folder: Path, stopped: Stopped) -> Curve | None:
    """Run a command until it ends or has used its CPU seconds. Raises InputError where it writes no site line."""
    file = folder / f"{command.name}-{seed}.jsonl"
    words = [word.replace("{seed}", str(seed)) for word in command.words]
    killed = ""
    with _started(words, file) as process:
        while process.poll() is None:
            if stopped():
                return None
            before = _before(file)
            if _used(process.pid) > (START_SECONDS if before is None else before + budget):
                break
            time.sleep(POLL_SECONDS)
        else:
            killed = exit_reason(process.returncode) if process.returncode < 0 else ""
    lines = read_lines(file) if file.exists() else []
    torch = next((line.torch for line in lines if isinstance(line, ProcessLine)), None)
    if torch is None:
        raise InputError(
            f"--command {command.name}: found no line of the hook's, expected a command that imports "
            f"ddefuzz.bench.outside; it ended with {process.returncode}"
        )
    steps = tuple(growth(lines))
    return Curve(command.name, seed, torch, steps[-1].cpu_seconds, steps, killed)


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


def _before(file: Path) -> float | None:
    """CPU seconds that the first process had used when the hook was installed, None before it is."""
    lines = read_lines(file) if file.exists() else []
    return next((line.cpu_seconds for line in lines if isinstance(line, ProcessLine)), None)
