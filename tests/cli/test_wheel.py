"""The generated workflows in an empty repository, with the wheel of ddefuzz: the very commands, without the network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from ddefuzz.cli.init import TORCHES, contents
from ddefuzz.cli.settings import KEYS
from tests.planted_torch import seeing
from tests.show.test_formats import checked_sarif, code_scanning
from tests.typed import end, typed

ROOT = Path(__file__).parents[2]
GITHUB, GITLAB = ".github/workflows/ddefuzz.yml", ".gitlab-ci.yml"
REPORTS = {"sarif", "xml", "md", "html", "jsonl"}


def commands(job: dict[str, Any]) -> list[str]:
    """What a job of GitHub or GitLab types, without the installation."""
    steps = [step.get("run", "") for step in job.get("steps", ())] + job.get("script", []) + job.get("after_script", [])
    return [step for step in steps if step.startswith("ddefuzz ")]


def test_the_workflows_call_every_command() -> None:
    github = YAML(typ="safe").load(contents("github")[GITHUB])["jobs"]
    assert {name: commands(job) for name, job in github.items()} == {
        "pull-request": ["ddefuzz ci pull-request --base HEAD^1"],
        "fuzz": ["ddefuzz ci fuzz"],
        "batch": ["ddefuzz ci batch --shard ${{ matrix.shard }}/2"],
        "merge": ["ddefuzz findings merge shards/*/.ddefuzz/ddefuzz.db", "ddefuzz ci coverage"],
        "prune": ["ddefuzz ci prune"],
        "versions": ['ddefuzz ci versions --python "${{ matrix.torch }}=.versions/bin/python"'],
    }
    assert github["batch"]["strategy"]["matrix"]["shard"] == [1, 2]
    gitlab = YAML(typ="safe").load(contents("gitlab")[GITLAB])
    assert {name: commands(job) for name, job in gitlab.items() if not name.startswith(".")} == {
        "pull-request": ["ddefuzz ci pull-request --base FETCH_HEAD"],
        "fuzz": ["ddefuzz ci fuzz"],
        "batch": [
            'ddefuzz ci batch --shard "$CI_NODE_INDEX/$CI_NODE_TOTAL"',
            'ddefuzz findings merge .ddefuzz/ddefuzz.db --db "sqlite:///shard-$CI_NODE_INDEX.db"',
        ],
        "merge": ["ddefuzz findings merge shard-*.db", "ddefuzz ci coverage"],
        "prune": ["ddefuzz ci prune"],
        "versions": ['ddefuzz ci versions --python "$TORCH=.versions/bin/python"'],
    }
    others = [github["versions"]["strategy"]["matrix"]["torch"], gitlab["versions"]["parallel"]["matrix"][0]["TORCH"]]
    assert others == [[one for one in TORCHES if one != version("torch").partition("+")[0]]] * 2


@pytest.mark.parametrize(("ci", "place"), [("github", GITHUB), ("gitlab", GITLAB)])
def test_no_variable_of_a_workflow_is_taken_for_an_option(ci: str, place: str) -> None:
    """ddefuzz refuses a variable DDEFUZZ_… that is no option."""
    allowed = {f"DDEFUZZ_{key.upper()}" for key in KEYS} | {"DDEFUZZ_"}
    text = "".join(line for line in contents(ci)[place].splitlines(keepends=True) if not line.startswith("#"))
    words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split()
    assert {word for word in words if word.startswith("DDEFUZZ_")} <= allowed


MODEL = """\
import torch


def model(x):
    return torch.diff(x[x > 0])


model_args = (torch.tensor([1.0, -1.0, 2.0]),)
"""


class Machine:
    """A checkout of the repository on a machine whose Python has the wheel."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder, self.python = folder, python

    def types(self, command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """What a command does that begins with `ddefuzz`. The shell makes words of it."""
        shell = ["bash", "-c", f"printf '%s\\0' {command}"]
        made = subprocess.run(shell, cwd=self.folder, capture_output=True, text=True, check=True).stdout
        _, *words = made.removesuffix("\0").split("\0")
        return typed(*words, folder=self.folder, environment={"DDEFUZZ_STAGE": "export", **more}, python=self.python)

    def commits(self, message: str) -> None:
        """Commit all files; also a commit without a change."""
        author = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
        subprocess.run(["git", "add", "."], cwd=self.folder, check=True)
        words = ["git", *author, "commit", "-q", "--allow-empty", "-m", message]
        subprocess.run(words, cwd=self.folder, check=True)

    def found(self) -> set[str]:
        """The findings in the database of this machine."""
        listed = self.types("ddefuzz findings list --format jsonl").stdout.splitlines()
        return {json.loads(line)["id"] for line in listed}

    def reports(self, name: str) -> set[str]:
        return {path.suffix[1:] for path in (self.folder / "ddefuzz-report").glob(f"{name}.*")}


def install(folder: Path) -> Path:
    """Build the wheel of this tree, and install it beside the packages of this environment."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").iterdir()
    words = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(folder / "installed")]
    subprocess.run([*words, str(wheel)], check=True, capture_output=True)
    return folder / "installed"


def versions_job(machine: Machine, job: dict[str, Any]) -> None:
    """Week: another version of torch. Here its environment has the same one, so the results are kept ones."""
    other = machine.folder / ".versions" / "bin" / "python"
    other.parent.mkdir(parents=True)
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    (line,) = commands(job)
    compared = machine.types(line.replace("${{ matrix.torch }}", "other"))
    assert compared.returncode == 0, compared.stderr
    assert machine.reports("versions") == REPORTS
    rows = [
        json.loads(line) for line in (machine.folder / "ddefuzz-report" / "versions.jsonl").read_text().splitlines()
    ]
    assert machine.found() | {"corpora/smoke/relu.py@export/explicit"} <= {row["id"] for row in rows}
    assert {row["id"] for row in rows if row["finding"] and row["change"] == "fails"} == machine.found()
    assert all(set(row["cells"]) == {version("torch").partition("+")[0], "other"} for row in rows)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_commands_of_the_workflow_with_a_wheel(tmp_path: Path) -> None:  # noqa: PLR0915 one week, one story
    wheel = install(tmp_path)
    python = seeing(wheel, tmp_path / "python")
    first = Machine(tmp_path / "pull-request", python)
    subprocess.run(["git", "init", "-q", str(first.folder)], check=True)
    alone = os.environ | {"PYTHONPATH": str(wheel)}
    subprocess.run([wheel / "bin" / "ddefuzz", "init", "--no-baseline"], cwd=first.folder, env=alone, check=True)
    where = subprocess.check_output([python, "-P", "-c", "import ddefuzz; print(ddefuzz.__file__)"], text=True)
    assert Path(where.strip()).is_relative_to(wheel)
    shards = [Machine(tmp_path / f"shard{number}", python) for number in (1, 2)]
    last = Machine(tmp_path / "merge", python)
    for machine in (*shards, last):
        shutil.copytree(first.folder, machine.folder)
    jobs = YAML(typ="safe").load((first.folder / GITHUB).read_text())["jobs"]

    # Pull request: green without models, red with one that does not export.
    (line,) = commands(jobs["pull-request"])
    first.commits("the main branch")
    first.commits("a pull request")
    green = first.types(line)
    assert green.returncode == 0, green.stderr
    assert first.reports("replay") == REPORTS
    settings = first.folder / "ddefuzz.toml"
    settings.write_text(settings.read_text().replace("# check.targets", 'check.targets = ["model.py:model"] #'))
    (first.folder / "model.py").write_text(MODEL)
    first.commits("a model")
    red = first.types(line)
    assert red.returncode == 1, red.stderr
    assert first.reports("models") == REPORTS
    assert "+    torch._check(" in (first.folder / "ddefuzz-report" / "comment.md").read_text()
    log = checked_sarif((first.folder / "ddefuzz-report" / "models.sarif").read_text())
    assert list(code_scanning(log)) == []
    settings.write_text(settings.read_text().replace("check.targets", "# check.targets"))

    # Fuzzing: red by findings that nobody knows.
    (line,) = commands(jobs["fuzz"])
    summary = tmp_path / "summary.md"
    on_github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary), "DDEFUZZ_BUDGET": "12x"}
    red = first.types(line, **on_github)
    assert red.returncode == 1, red.stderr
    assert "run exit 1" in red.stderr
    assert first.reports("run") == REPORTS
    assert "::error title=dde dde-" in red.stdout
    assert "ddefuzz campaign: 12 cases" in summary.read_text()
    assert first.types("ddefuzz findings merge ddefuzz-report/fuzz.db").returncode == 0

    # Night: two shards on machines of their own, then their databases as one.
    (line,) = commands(jobs["batch"])
    for number, machine in enumerate(shards, 1):
        ran = machine.types(line.replace("${{ matrix.shard }}", str(number)), DDEFUZZ_BUDGET="6x")
        new = json.loads((machine.folder / "ddefuzz-report" / "run.sarif").read_text())["runs"][0]["results"]
        assert ran.returncode == (1 if new else 0), ran.stderr  # the seed is the date
        uploaded = last.folder / "shards" / f"ddefuzz-batch-{number}" / ".ddefuzz"
        shutil.copytree(machine.folder / ".ddefuzz", uploaded)
    merge, coverage = commands(jobs["merge"])
    merged = last.types(merge)
    assert merged.returncode == 0, merged.stderr
    assert last.found() == shards[0].found() | shards[1].found()
    reached = last.types(coverage)
    assert reached.returncode == 0, reached.stderr
    assert last.reports("coverage") == {"md", "json"}

    # Week: a case that another covers goes.
    smoke = first.folder / "corpora" / "smoke" / "relu.py"
    failing = smoke.read_text().replace("ok", "dde at at::native::chunk").replace("torch.relu(x)", "torch.chunk(x, 2)")
    for name in ("chunk.py", "other_process.py"):
        smoke.with_name(name).write_text(failing)
    (line,) = commands(jobs["prune"])
    pruned = first.types(line)
    assert pruned.returncode == 0, pruned.stderr
    assert len(list((first.folder / "corpora").rglob("*.py"))) == 2
    assert first.reports("prune") == {"md", "json"}
    versions_job(first, jobs["versions"])
    end(python)
