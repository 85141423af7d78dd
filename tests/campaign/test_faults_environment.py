"""Faults of the machine: a stopped fork server, too few file descriptors, a removed folder or database."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest

from ddefuzz.errors import EXIT_OK, EXIT_UNSUPPORTED
from tests.campaign.real_campaign import (
    PATIENCE_SECONDS,
    arguments,
    environment,
)
from tests.typed import typed

pytestmark = pytest.mark.slow

CASES = ("--seed", "7", "--uniform", "--no-minimize", "-j", "1", "--fail-on", "never")

SUBJECT = """import os, subprocess
import multiprocessing
import torch
LOCK = multiprocessing.RLock()
def fine(x):
    return x + 1
def removes(x):
    subprocess.run(["rm", "-r", os.environ["TMPDIR"]])
    return x
def leaves_nowhere(x):
    os.rmdir(os.getcwd())
    return x
fine_args = removes_args = leaves_nowhere_args = (torch.ones(3),)
"""


def check(folder: Path, name: str, place: Path | None = None) -> subprocess.CompletedProcess[str]:
    (folder / "user.py").write_text(SUBJECT)
    words = ("check", f"{folder / 'user.py'}:{name}", "--stage", "export")
    return typed(*words, folder=place or folder, environment=environment(folder), timeout=PATIENCE_SECONDS)


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
