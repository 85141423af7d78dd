"""Faults of the machine: a stopped fork server, too few file descriptors, a removed folder or database."""

from __future__ import annotations

import resource
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ddefuzz.errors import EXIT_OK, EXIT_UNSUPPORTED
from ddefuzz.execute.protocol import STAGES
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import read_findings
from tests.campaign.real_campaign import (
    DDEFUZZ,
    PATIENCE_SECONDS,
    arguments,
    begun,
    environment,
    journal,
    server,
    summary_in,
    url,
    wait_until,
    workers,
)

pytestmark = pytest.mark.slow

CASES = ("--seed", "7", "--uniform", "--no-minimize", "-j", "1", "--fail-on", "never")

SUBJECT = """import os, shutil, tempfile
import multiprocessing
import torch
LOCK = multiprocessing.RLock()
def fine(x):
    return x + 1
def removes(x):
    shutil.rmtree(tempfile.gettempdir())
    return x
def leaves_nowhere(x):
    os.rmdir(os.getcwd())
    return x
fine_args = removes_args = leaves_nowhere_args = (torch.ones(3),)
"""


def findings(database: Path) -> tuple[Finding, ...]:
    with Database.open(url(database), create=False) as opened:
        return opened.findings()


def check(folder: Path, name: str, place: Path | None = None) -> subprocess.CompletedProcess[str]:
    (folder / "user.py").write_text(SUBJECT)
    return subprocess.run(
        [*DDEFUZZ, "check", f"{folder / 'user.py'}:{name}", "--stage", "export"],
        cwd=place or folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def test_a_stopped_fork_server_is_continued(tmp_path: Path) -> None:
    with begun(tmp_path, tmp_path / "ddefuzz.db", *CASES, "--max-examples", "6") as campaign:
        wait_until(lambda: any(entry.stage in STAGES for entry in journal(tmp_path)))
        server(campaign.pid).suspend()
        for worker in workers(campaign.pid):
            worker.kill()
        stdout, stderr = campaign.communicate(timeout=PATIENCE_SECONDS)
    assert campaign.returncode == EXIT_OK, stderr
    assert summary_in(stdout).cases == 6


def test_too_few_file_descriptors_are_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        arguments(tmp_path / "ddefuzz.db", *CASES, "--max-examples", "2"),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14)),
    )
    assert done.returncode == EXIT_UNSUPPORTED, done.stderr
    assert "Too many open files" in done.stderr.splitlines()[-1]
    assert "expected more open files to be allowed" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_temporary_folder_that_the_code_removes_is_one_line(tmp_path: Path) -> None:
    done = check(tmp_path, "removes")
    assert done.returncode == EXIT_UNSUPPORTED, done.stderr
    assert "has been removed, expected it to stay" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_working_folder_that_the_code_removes_is_one_line(tmp_path: Path) -> None:
    place = tmp_path / "here"
    place.mkdir()
    done = check(tmp_path, "leaves_nowhere", place)
    assert done.returncode == EXIT_UNSUPPORTED, done.stderr
    assert "the working folder has been removed, expected it to stay" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_semaphore_that_a_module_makes_is_not_left_behind(tmp_path: Path) -> None:
    done = check(tmp_path, "fine")
    assert done.returncode == EXIT_OK, done.stderr
    assert "leaked" not in done.stderr
    assert not list(tmp_path.glob("ddefuzz-*"))


def test_a_deleted_database_ends_the_campaign_and_its_findings_are_saved_as_text(tmp_path: Path) -> None:
    database = tmp_path / "ddefuzz.db"
    with begun(tmp_path, database, "--seed", "1", "--max-examples", "400", "--no-minimize") as campaign:
        wait_until(lambda: database.exists() and bool(findings(database)))
        database.unlink()
        stdout, stderr = campaign.communicate(timeout=PATIENCE_SECONDS)
    assert campaign.returncode == EXIT_UNSUPPORTED, stderr
    assert not stdout
    folder = tmp_path / "ddefuzz.db-rescued"
    assert f"are in {folder}: `ddefuzz findings import {folder}` reads them" in stderr.splitlines()[-1]
    assert read_findings(folder, datetime.now(UTC))


def test_a_deleted_database_ends_a_sweep(tmp_path: Path) -> None:
    database = tmp_path / "ddefuzz.db"
    words = ("sweep", "--ops", "c*", "-j", "1", "--db", url(database))
    with subprocess.Popen(
        [*DDEFUZZ, *words],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as sweep:
        try:
            wait_until(lambda: database.exists() and bool(findings(database)))
            database.rename(tmp_path / "elsewhere.db")
            _, stderr = sweep.communicate(timeout=PATIENCE_SECONDS)
        finally:
            sweep.kill()
    assert sweep.returncode == EXIT_UNSUPPORTED, stderr
    assert "was deleted, moved or replaced while it was open" in stderr.splitlines()[-1]
