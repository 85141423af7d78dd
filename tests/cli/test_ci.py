"""`ddefuzz init` and `ddefuzz ci` in an empty repository."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddefuzz.cli.ci import Step, _waited, contents, init
from ddefuzz.errors import EXIT_INTERRUPTED, InputError
from ddefuzz.ops import catalogue

FILES = {
    ".ddefuzz/.gitignore",
    ".github/workflows/ddefuzz.yml",
    "corpora/smoke/relu.py",
    "ddefuzz.toml",
    "findings/known.toml",
    "findings/rules.toml",
}


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_init_writes_what_a_repository_needs(tmp_path: Path) -> None:
    CliRunner().invoke(init, [str(tmp_path)], catch_exceptions=False)
    assert files(tmp_path) == FILES
    assert set(tomllib.loads((tmp_path / "ddefuzz.toml").read_text())) == {"db", "known"}
    assert tomllib.loads((tmp_path / "findings" / "known.toml").read_text()) == {}
    assert catalogue.parse((tmp_path / "corpora/smoke/relu.py").read_text(), "relu.py").expect


def test_init_replaces_nothing_unless_told(tmp_path: Path) -> None:
    (tmp_path / "ddefuzz.toml").write_text("seed = 1\n")
    with pytest.raises(InputError, match=r"ddefuzz.toml: found this file, expected none there"):
        CliRunner().invoke(init, [str(tmp_path)], catch_exceptions=False)
    assert files(tmp_path) == {"ddefuzz.toml"}
    CliRunner().invoke(init, [str(tmp_path), "--force", "--ci", "none"], catch_exceptions=False)
    assert files(tmp_path) == FILES - {".github/workflows/ddefuzz.yml"}


@pytest.mark.slow
def test_check_works_in_a_repository_that_has_no_findings_yet(tmp_path: Path) -> None:
    CliRunner().invoke(init, [str(tmp_path)], catch_exceptions=False)
    (tmp_path / "model.py").write_text(
        "import torch\n\n\ndef good(x):\n    return x + 1\n\n\ngood_args = (torch.randn(3),)\n\n\n"
        "def bad(x):\n    return torch.diff(x[x > 0])\n\n\nbad_args = (torch.tensor([1.0, -1.0, 2.0]),)\n"
    )
    assert typed(tmp_path, "check", "model.py:good").returncode == 0
    red = typed(tmp_path, "check", "model.py:bad", "--no-advice", "--format", "json")
    assert red.returncode == 1, red.stderr
    [problem] = [
        problem for problem in json.loads(red.stdout)["problems"] if problem["classified"]["signature"]["kind"] == "dde"
    ]
    [key] = problem["keys"]
    (tmp_path / "findings" / "known.toml").write_text(f'[{key}]\nstate = "reported"\ntitle = "ours"\n')
    known = typed(tmp_path, "check", "model.py:bad", "--no-advice")
    assert f"{key}, reported: ours" in known.stdout


@pytest.mark.parametrize(
    ("ci", "place", "schema"),
    [
        ("github", ".github/workflows/ddefuzz.yml", "vendor.github-workflows"),
        ("gitlab", ".gitlab-ci.yml", "vendor.gitlab-ci"),
    ],
)
def test_the_workflow_fits_the_schema_of_its_ci(tmp_path: Path, ci: str, place: str, schema: str) -> None:
    path = tmp_path / Path(place).name
    path.write_text(contents(ci)[place])
    options = ["--data-transform", "gitlab-ci"] if ci == "gitlab" else []
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *options, str(path)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_actions_are_pinned() -> None:
    uses = [line for line in contents("github")[".github/workflows/ddefuzz.yml"].splitlines() if "uses:" in line]
    assert uses
    for line in uses:
        assert len(line.split("@")[1].split(" ")[0]) == 40, line


SLEEPS = ["sleep", "60"]
"""Ends by SIGINT at any moment. Python would end with status 1 if it came while it starts."""


def test_a_step_beyond_its_limit_is_interrupted() -> None:
    process = subprocess.Popen(SLEEPS, start_new_session=True)
    assert _waited(process, Step("step", (), 1.0)) == -signal.SIGINT


class Cancelled(subprocess.Popen[bytes]):
    """A process whose wait is interrupted once."""

    waits = 0

    def wait(self, timeout: float | None = None) -> int:
        self.waits += 1
        if self.waits == 1:
            raise KeyboardInterrupt
        return super().wait(timeout)


def test_a_cancelled_job_is_interrupted() -> None:
    process = Cancelled(SLEEPS, start_new_session=True)
    assert (_waited(process, Step("step", (), 60.0)), process.returncode) == (EXIT_INTERRUPTED, -signal.SIGINT)


def typed(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("DDEFUZZ_")} | more
    return subprocess.run(
        [sys.executable, "-m", "ddefuzz", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.slow
def test_a_pull_request_is_red_on_new_findings_and_green_when_they_are_known(tmp_path: Path) -> None:
    assert typed(tmp_path, "init").returncode == 0
    summary = tmp_path / "summary.md"
    on_github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    red = typed(tmp_path, "ci", "pull-request", "--budget", "30x", **on_github)
    assert red.returncode == 1, red.stderr
    assert "replay exit 0, run exit 1" in red.stderr
    assert "::error title=dde dde-" in red.stdout
    assert "## ddefuzz campaign: 30 cases" in summary.read_text()
    log = json.loads((tmp_path / "ddefuzz-report" / "run.sarif").read_text())
    new = [result["partialFingerprints"]["ddefuzz/signature/v1"] for result in log["runs"][0]["results"]]
    assert new
    known = "".join(f'[{name}]\nstate = "triaged"\nreason = "seen"\n' for name in new)
    (tmp_path / "findings" / "known.toml").write_text(known)
    (tmp_path / ".ddefuzz" / "ddefuzz.db").unlink()
    green = typed(tmp_path, "ci", "pull-request", "--budget", "30x")
    assert green.returncode == 0, green.stderr
    assert ET.parse(tmp_path / "ddefuzz-report" / "run.xml").getroot()[0].get("failures") == "0"


def found(database: Path) -> int:
    """The number of findings that a campaign has saved."""
    try:
        with closing(sqlite3.connect(database)) as connection:
            number: int = connection.execute("SELECT count(*) FROM findings").fetchone()[0]
    except sqlite3.Error:  # not there yet
        return 0
    return number


@pytest.mark.slow
def test_a_cancelled_campaign_saves_what_it_found(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "ddefuzz", "run", "--budget", "10m", "--seed", "0"]
    running = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    database = tmp_path / "findings" / "ddefuzz.db"
    while not found(database):
        time.sleep(0.2)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=120)
    assert running.returncode == EXIT_INTERRUPTED, err
    assert "run --resume" in out
