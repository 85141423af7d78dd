"""Faults of the campaign process (killed, stopped, full disk, wrong torch): what was recorded is kept."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ddefuzz.campaign.summary import Summary
from ddefuzz.campaign.tasks import TAKEN
from ddefuzz.errors import EXIT_INTERRUPTED, EXIT_UNSUPPORTED
from ddefuzz.execute.protocol import STAGES
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding
from ddefuzz.program.text import is_program
from tests.campaign.real_campaign import (
    PATIENCE_SECONDS,
    SMALL_ROUND,
    all_gone,
    arguments,
    begun,
    environment,
    finished,
    journal,
    processes,
    summary_in,
    url,
    wait_until,
)

CASES = 12
SMALL = ("--seed", "7", "--max-examples", str(CASES), "--uniform", "--no-minimize", "-j", "1", "--fail-on", "never")
FINDS_AT_ONCE = ("--seed", "1", "--max-examples", "400", "-j", "2")
NO_TORCH = '__version__ = "1.0"\n'


def findings(database: Path) -> tuple[Finding, ...]:
    """The findings so far; a file that the campaign has only begun to write is made a database here."""
    with Database.open(url(database)) as opened:
        return opened.findings()


@pytest.mark.slow
@pytest.mark.long
def test_a_guided_campaign_killed_twice_is_resumed_as_if_nothing_had_happened(tmp_path: Path) -> None:
    cases = 3 * SMALL_ROUND  # those of the third round are chosen by the results of the first
    plan = (
        "--seed",
        "3",
        "--max-examples",
        str(cases),
        "--no-minimize",
        "-j",
        "2",
        "--fail-on",
        "never",
        "--round",
        str(SMALL_ROUND),
    )
    undisturbed = summary_in(finished(tmp_path, tmp_path / "undisturbed.db", *plan).stdout)
    database = tmp_path / "ddefuzz.db"
    resume = ("--resume", "--no-minimize", "-j", "2", "--fail-on", "never")
    for words, upto in ((plan, SMALL_ROUND // 2), (resume, 2 * SMALL_ROUND)):
        with begun(tmp_path, database, *words) as campaign:
            wait_until(lambda least=upto: done(database) >= least)  # type: ignore[misc]
            started = processes(campaign.pid)
            os.kill(campaign.pid, signal.SIGKILL)
            wait_until(lambda gone=started: all_gone(gone))  # type: ignore[misc]
    resumed = summary_in(finished(tmp_path, database, *resume).stdout)
    assert counted(resumed) == counted(undisturbed)
    assert counts(database) == counts(tmp_path / "undisturbed.db")


def counted(summary: Summary) -> dict[str, object]:
    """The counts of a summary that do not depend on the machine: which of two cases reached a site first may."""
    names = ("cases", "digests", "sites", "outcomes", "verdicts", "calls", "unminimized", "lost")
    seen = {one.finding: (one.cases, one.is_new, one.cause) for one in summary.findings}
    cases = {name: count.cases for name, count in summary.strategies.items()}
    return {**{name: getattr(summary, name) for name in names}, "findings": seen, "strategies": cases}


def done(database: Path) -> int:
    """How many cases of the campaign are done, those ahead of a slower one included."""
    if not database.exists():
        return 0
    with Database.open(url(database)) as opened:
        return sum(campaign.next_index + len(campaign.ahead) for campaign in opened.unfinished())


def counts(database: Path) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """How often each finding was seen at each place, and what is counted of each guard site."""
    with Database.open(url(database), create=False) as opened:
        (torch,) = opened.torch_versions()
        seen = {f"{f.id} {one.place}": one.count for f in opened.findings() for one in f.occurrences}
        sites = {str(site.key): (site.cases, site.raised, *site.fallbacks.values()) for site in opened.sites(torch)}
        return seen, sites


MOMENTS: dict[str, Callable[[int, Path], bool]] = {
    "starting": lambda campaign, _: len(processes(campaign)) > 1,
    "capturing": lambda _, folder: any(entry.stage in STAGES for entry in journal(folder)),
    "minimizing": lambda _, folder: any(entry.stage == TAKEN for entry in journal(folder)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "signals"),
    [
        ("starting", (signal.SIGKILL,)),
        ("capturing", (signal.SIGKILL,)),
        ("capturing", (signal.SIGTERM, signal.SIGTERM)),
        ("minimizing", (signal.SIGINT, signal.SIGINT)),
    ],
)
def test_a_campaign_that_is_ended_leaves_no_semaphore(
    tmp_path: Path, moment: str, signals: tuple[signal.Signals, ...]
) -> None:
    with begun(tmp_path, tmp_path / "ddefuzz.db", *FINDS_AT_ONCE) as campaign:
        wait_until(lambda: MOMENTS[moment](campaign.pid, tmp_path))
        started = processes(campaign.pid)
        named = shared_memory([campaign.pid, *(process.pid for process in started)])
        for number in signals:
            os.kill(campaign.pid, number)
        _, stderr = campaign.communicate(timeout=PATIENCE_SECONDS)
        wait_until(lambda: all_gone(started))
    assert "leaked" not in stderr
    assert "Traceback" not in stderr
    assert not named


def shared_memory(processes: list[int]) -> set[str]:
    """The files in /dev/shm that these processes use, as a semaphore with a name is one."""
    found = set()
    for number in processes:
        with suppress(OSError):
            lines = Path(f"/proc/{number}/maps").read_text().splitlines()
            found |= {line[line.index("/dev/shm/") :] for line in lines if "/dev/shm/" in line}
    return {name for name in found if not name.endswith("(deleted)")}


@pytest.mark.slow
def test_ctrl_c_before_the_workers_have_started_ends_the_campaign(tmp_path: Path) -> None:
    with begun(tmp_path, tmp_path / "ddefuzz.db", *SMALL) as campaign:
        wait_until(lambda: len(processes(campaign.pid)) > 1)
        started = processes(campaign.pid)
        os.killpg(campaign.pid, signal.SIGINT)
        stdout, stderr = campaign.communicate(timeout=PATIENCE_SECONDS)
        wait_until(lambda: all_gone(started))
    assert campaign.returncode == EXIT_INTERRUPTED, stderr
    assert not stdout
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_ctrl_c_while_drawing_saves_what_was_found_and_leaves_no_process(tmp_path: Path) -> None:
    database = tmp_path / "ddefuzz.db"
    with begun(tmp_path, database, *FINDS_AT_ONCE, "--no-minimize") as campaign:
        wait_until(lambda: database.exists() and bool(findings(database)))
        started = processes(campaign.pid)
        os.killpg(campaign.pid, signal.SIGINT)
        stdout, stderr = campaign.communicate(timeout=PATIENCE_SECONDS)
        wait_until(lambda: all_gone(started))
    assert campaign.returncode == EXIT_INTERRUPTED, stderr
    assert "stopping, and saving what was found" in stderr
    assert "Traceback" not in stderr
    summary = summary_in(stdout)
    assert summary.interrupted
    assert {finding.id for finding in findings(database)} == {seen.finding for seen in summary.findings}


@pytest.mark.slow
def test_ctrl_c_while_minimizing_keeps_the_smallest_program_so_far(tmp_path: Path) -> None:
    database = tmp_path / "ddefuzz.db"
    with begun(tmp_path, database, *FINDS_AT_ONCE) as campaign:
        wait_until(lambda: any(entry.stage == TAKEN for entry in journal(tmp_path)))
        started = processes(campaign.pid)
        os.killpg(campaign.pid, signal.SIGINT)
        _, stderr = campaign.communicate(timeout=PATIENCE_SECONDS)
        wait_until(lambda: all_gone(started))
    assert campaign.returncode == EXIT_INTERRUPTED, stderr
    smaller = [finding for finding in findings(database) if finding.minimal is not None]
    assert smaller
    for finding in smaller:
        assert finding.minimal is not None
        assert finding.original is not None
        assert is_program(finding.minimal)
        assert len(finding.minimal) < len(finding.original)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "found"),
    [(b"not a database, but long enough to be read as one" * 100, "not an SQLite database")],
)
def test_a_corrupt_database_is_said_before_anything_starts(tmp_path: Path, content: bytes, found: str) -> None:
    database = tmp_path / "ddefuzz.db"
    database.write_bytes(content)
    result = finished(tmp_path, database, *SMALL)
    assert result.returncode == EXIT_UNSUPPORTED
    assert found in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert database.read_bytes() == content


@pytest.mark.slow
def test_an_unknown_torch_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(NO_TORCH)
    result = subprocess.run(
        arguments(tmp_path / "ddefuzz.db", *SMALL),
        env=environment(tmp_path, PYTHONPATH=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == EXIT_UNSUPPORTED, result.stderr
    assert result.stderr.splitlines()[-1].startswith("ddefuzz: torch 1.0: ")
    assert "Traceback" not in result.stderr
