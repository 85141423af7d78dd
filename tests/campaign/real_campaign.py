"""Run campaigns in processes of their own, as a user does, and disturb those processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]

from ddefuzz.campaign.summary import Summary
from ddefuzz.execute.journal import Entry, entries
from tests.typed import typed

ROOT = Path(__file__).parents[2]

DDEFUZZ = (sys.executable, "-c", "from ddefuzz.cli.main import main; main()")
"""The console script, with whatever ddefuzz these tests are of."""

PATIENCE_SECONDS = 120.0
"""How long to wait for what must come; a busy machine needs tens of seconds to import torch."""


def url(path: Path) -> str:
    return f"sqlite:///{path}"


SMALL_ROUND = 8
"""A campaign with `--round 8` learns from its first results after a few cases."""


def words_of(database: Path, *more: str) -> list[str]:
    """What is typed after `ddefuzz`."""
    return ["run", "--stage", "export", "--format", "json", "--db", url(database), *more]


def arguments(database: Path, *more: str) -> list[str]:
    """The arguments of a new process."""
    return [*DDEFUZZ, *words_of(database, *more)]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """One whose temporary files, the workers' journal among them, are in `folder`."""
    return {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT), "COLUMNS": "160", **more}


@contextmanager
def begun(folder: Path, database: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A campaign in a session of its own, as in a terminal; nothing of it is left running."""
    with subprocess.Popen(
        arguments(database, *more),
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def finished(folder: Path, database: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """A campaign that nobody disturbs."""
    place = environment(folder)
    return typed(*words_of(database, *more), folder=folder, environment=place, timeout=PATIENCE_SECONDS)


def summary_in(stdout: str) -> Summary:
    return msgspec.json.decode(stdout, type=Summary)


def wait_until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < limit, f"still waiting for {true} after {PATIENCE_SECONDS:g} s"
        time.sleep(0.02)


def journal(folder: Path) -> Iterator[Entry]:
    """What the workers of the campaign in `folder` have noted."""
    for found in folder.glob("ddefuzz-scratch-*/journal-*"):
        yield from entries(found)


def processes(campaign: int) -> list[psutil.Process]:
    """All that a campaign has started, by its process id."""
    found: list[psutil.Process] = psutil.Process(campaign).children(recursive=True)
    return found


def server(campaign: int) -> psutil.Process:
    """Its fork server, which has started."""
    return next(iter(_servers(campaign)))


def workers(campaign: int) -> list[psutil.Process]:
    """Its workers: the forks of its fork server."""
    found: list[psutil.Process] = [child for server in _servers(campaign) for child in server.children()]
    return found


def _servers(campaign: int) -> list[psutil.Process]:
    """Its fork servers. A child that has ended and that nobody waited for has no command line."""
    children = [child for child in psutil.Process(campaign).children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in children if "forkserver" in " ".join(child.cmdline())]


def all_gone(started: list[psutil.Process]) -> bool:
    """Whether none of them runs; what nobody waited for yet is gone too."""
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in started)
