"""A campaign on a Ray cluster of this machine, as typed: the cases and findings are those of the local engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddefuzz.errors import EXIT_INTERRUPTED
from ddefuzz.findings.database import Database
from tests.campaign.real_campaign import url, wait_until
from tests.typed import typed

WORDS = ("run", "--budget", "8x", "--seed", "3", "--stage", "export", "--oracle", "capture", "-j", "1")
OUTPUT = ("--format", "json", "--fail-on", "never")


def on_ray(folder: Path, *words: str) -> subprocess.Popen[str]:
    """`ddefuzz WORDS --engine ray`, in a process group of its own."""
    command = [sys.executable, "-m", "ddefuzz", *words, "--engine", "ray"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def has_begun(path: Path) -> bool:
    """Whether the campaign in the database has the result of a case."""
    with Database.open(url(path)) as database:
        return any(True for entry in database.unfinished() for _ in database.steps(entry.id))


@pytest.mark.slow
@pytest.mark.long
def test_a_cluster_runs_the_cases_of_one_machine_and_ctrl_c_saves_them(tmp_path: Path) -> None:
    local = json.loads(typed(*WORDS, *OUTPUT, "--db", url(tmp_path / "local.db"), folder=tmp_path).stdout)
    Database.open(url(tmp_path / "ray.db")).close()
    stopped = on_ray(tmp_path, *WORDS, *OUTPUT, "--db", url(tmp_path / "ray.db"))
    wait_until(lambda: has_begun(tmp_path / "ray.db"))
    os.killpg(stopped.pid, signal.SIGINT)
    _, said = stopped.communicate()
    assert (stopped.returncode, "Traceback" in said) == (EXIT_INTERRUPTED, False), said
    resumed = on_ray(tmp_path, "run", "--resume", *OUTPUT, "-j", "1", "--db", url(tmp_path / "ray.db"))
    printed, said = resumed.communicate()
    assert (resumed.returncode, "Traceback" in said) == (0, False), said
    theirs = json.loads(printed)
    assert theirs["digests"] == local["digests"]
    assert {one["finding"]: one["cases"] for one in theirs["findings"]} == {
        one["finding"]: one["cases"] for one in local["findings"]
    }
