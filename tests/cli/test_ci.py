"""`ddefuzz init` and `ddefuzz ci` in an empty repository."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
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

from ddefuzz.cli import ci as jobs
from ddefuzz.cli.ci import MARKER, REPORTS, Step, _waited, command, comment
from ddefuzz.cli.init import command as init
from ddefuzz.cli.init import contents
from ddefuzz.errors import EXIT_INTERRUPTED, InputError
from ddefuzz.ops import catalogue
from ddefuzz.show.table import rows_of
from tests.show.test_formats import applied, checked_sarif, code_scanning
from tests.typed import typed

FILES = {
    ".ddefuzz/.gitignore",
    ".github/workflows/ddefuzz.yml",
    "corpora/smoke/relu.py",
    "ddefuzz-report/.gitignore",
    "ddefuzz.toml",
    "findings/baseline.toml",
    "findings/known.toml",
    "findings/rules.toml",
}


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_init_writes_what_a_repository_needs(tmp_path: Path) -> None:
    CliRunner().invoke(init, [str(tmp_path)], catch_exceptions=False)
    assert files(tmp_path) == FILES
    settings = tomllib.loads((tmp_path / "ddefuzz.toml").read_text())
    assert settings.keys() == {"db", "known"}
    assert settings["known"] == ["findings/baseline.toml", "findings/known.toml"]
    assert all(map(FILES.__contains__, settings["known"]))
    assert tomllib.loads((tmp_path / "findings" / "known.toml").read_text()) == {}
    assert catalogue.parse((tmp_path / "corpora/smoke/relu.py").read_text(), "relu.py").expect


@pytest.mark.slow
def test_the_baseline_has_the_findings_of_the_source_tree() -> None:
    """After a change of findings/: python ci/baseline.py."""
    root = Path(__file__).parents[2]
    checked = subprocess.run([sys.executable, str(root / "ci/baseline.py"), "--check"], check=False)
    assert checked.returncode == 0, "expected what `ci/baseline.py` writes"
    written = contents("none")["findings/baseline.toml"]
    assert len(written.encode()) < 2_000_000
    others = tomllib.loads((root / "ci" / "other-versions.toml").read_text())
    assert len(tomllib.loads(written)) == len(list((root / "findings").glob("*/finding.toml"))) + len(others)
    assert all(one["versions"] and "2.13.0" not in one["versions"] for one in others.values())


def test_a_baseline_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert CliRunner().invoke(command, ["baseline"]).exit_code == 0
        assert (tmp_path / "findings" / "baseline.toml").read_text() == contents("none")["findings/baseline.toml"]
        (tmp_path / "findings" / "baseline.toml").write_text("old")
    assert files(tmp_path) == {"findings/baseline.toml"}


def test_init_without_a_baseline(tmp_path: Path) -> None:
    CliRunner().invoke(init, [str(tmp_path), "--no-baseline"], catch_exceptions=False)
    assert files(tmp_path) == FILES - {"findings/baseline.toml"}
    assert tomllib.loads((tmp_path / "ddefuzz.toml").read_text())["known"] == "findings/known.toml"


def test_the_workflow_installs_the_package_of_a_repository(tmp_path: Path) -> None:
    for ci, place in (("github", ".github/workflows/ddefuzz.yml"), ("gitlab", ".gitlab-ci.yml")):
        for package in (False, True):
            text = contents(ci, package=package)[place]
            assert (re.search(r"^ +- (run: )?python -m pip install \. #", text, re.MULTILINE) is not None) == package
    (tmp_path / "pyproject.toml").touch()
    CliRunner().invoke(init, [str(tmp_path)], catch_exceptions=False)
    assert contents("github", package=True)[".github/workflows/ddefuzz.yml"] == (
        tmp_path / ".github/workflows/ddefuzz.yml"
    ).read_text(encoding="utf-8")


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
    assert typed("check", "model.py:good", folder=tmp_path).returncode == 0
    red = typed("check", "model.py:bad", "--no-advice", "--format", "json", folder=tmp_path)
    assert red.returncode == 1, red.stderr
    [problem] = [
        problem for problem in json.loads(red.stdout)["problems"] if problem["classified"]["signature"]["kind"] == "dde"
    ]
    [key] = problem["keys"]
    (tmp_path / "findings" / "known.toml").write_text(f'[{key}]\nstate = "reported"\ntitle = "ours"\n')
    known = typed("check", "model.py:bad", "--no-advice", folder=tmp_path)
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


MODEL = """\
import torch


def model(x):
    return torch.diff(x[x > 0])


model_args = (torch.tensor([1.0, -1.0, 2.0]),)
"""
GOOD = MODEL.replace("torch.diff(x[x > 0])", "torch.relu(x)")
IN_EXPORT = {"DDEFUZZ_STAGE": "export"}
"""For tests in which the stages do not matter."""


def with_model(folder: Path, text: str, targets: str = '["model.py:model"]') -> None:
    """A repository with one model."""
    assert typed("init", folder=folder).returncode == 0
    settings = folder / "ddefuzz.toml"
    settings.write_text(settings.read_text().replace("# check.targets", f"check.targets = {targets} #"))
    (folder / "model.py").write_text(text)


@pytest.mark.slow
def test_a_pull_request_is_red_on_a_problem_of_a_model_until_it_is_mended_or_accepted(tmp_path: Path) -> None:
    with_model(tmp_path, GOOD)
    green = typed("ci", "pull-request", folder=tmp_path)
    assert green.returncode == 0, green.stderr
    assert "models exit 0, replay exit 0" in green.stderr

    # The model is broken: red, with the change in comment and SARIF.
    shutil.rmtree(tmp_path / "corpora")
    (tmp_path / "model.py").write_text(MODEL)
    summary = tmp_path / "summary.md"
    on_github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    red = typed("ci", "pull-request", folder=tmp_path, environment=on_github)
    assert red.returncode == 1, red.stderr
    assert "::error file=model.py,line=5,title=dde model.py%3Amodel/dde-" in red.stdout
    comment = (tmp_path / "ddefuzz-report" / "comment.md").read_text()
    assert comment.startswith("<!-- ddefuzz ci -->\n\n**ddefuzz models**: exit 1\n")
    assert "+    torch._check(made_u0.shape[0] >= 1)" in comment
    log = checked_sarif((tmp_path / "ddefuzz-report" / "models.sarif").read_text())
    assert list(code_scanning(log)) == []
    [result] = log["runs"][0]["results"]
    [file] = result["fixes"][0]["artifactChanges"]
    mended = applied(MODEL, file["replacements"])

    # The change of the report is applied: green.
    (tmp_path / "model.py").write_text(mended)
    green = typed("ci", "pull-request", folder=tmp_path)
    assert green.returncode == 0, green.stderr

    # Or it is accepted for now: green, but not any more after its last day, or with another problem.
    (tmp_path / "model.py").write_text(MODEL)
    accepted = typed("ci", "accept", "--reason", "waits for torch", "--expires", "2099-01-31", folder=tmp_path)
    assert accepted.returncode == 0, accepted.stderr
    assert "now accepted: model.py:model: dde-" in accepted.stderr
    green = typed("ci", "pull-request", folder=tmp_path)
    assert green.returncode == 0, green.stderr
    assert "until 2099-01-31: waits for torch" in green.stdout
    assert "made_u0" not in green.stdout  # no change is looked for
    decisions = tmp_path / "findings" / "accepted.toml"
    decisions.write_text(decisions.read_text().replace("2099-01-31", "2020-01-31"))
    red = typed("ci", "pull-request", folder=tmp_path)
    assert red.returncode == 1, red.stderr
    assert "was accepted until 2020-01-31: it fails since then" in red.stderr
    (tmp_path / "model.py").write_text(GOOD)
    gone = typed("ci", "accept", "--reason", "unused", folder=tmp_path)
    assert gone.returncode == 0, gone.stderr
    assert "not there any more: model.py:model: dde-" in gone.stderr
    assert tomllib.loads(decisions.read_text()) == {"problem": []}


def git(folder: Path, *words: str) -> None:
    names = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.long
def test_only_what_the_base_does_not_have_is_red(tmp_path: Path) -> None:
    repository, folder = tmp_path / "repository", tmp_path / "repository" / "part"
    folder.mkdir(parents=True)
    with_model(folder, MODEL, '["model.py:model", "other.py:model"]')
    shutil.rmtree(folder / "corpora")
    git(repository, "init", "-q", "-b", "main")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "base")

    # A model that is good: green, because the base has the problem of the first one.
    (folder / "other.py").write_text(GOOD)
    green = typed("ci", "pull-request", "--base", "HEAD", folder=folder, environment=IN_EXPORT)
    assert green.returncode == 0, green.stderr
    assert "looking for the problems in HEAD, too" in green.stderr
    assert "1 problem in HEAD" in green.stderr
    assert "not new: HEAD has it, too" in (folder / "ddefuzz-report" / "comment.md").read_text()
    assert not (folder / "findings" / "accepted.toml").exists()

    # A model that is broken: red, and only its problem is in SARIF.
    (folder / "other.py").write_text(MODEL.replace("torch.diff", "torch.unbind"))
    red = typed("ci", "pull-request", "--base", "HEAD", folder=folder, environment=IN_EXPORT)
    assert red.returncode == 1, red.stderr
    told = [row["id"].partition("/")[0] for row in rows_of((folder / "ddefuzz-report" / "models.sarif").read_text())]
    assert set(told) == {"other.py:model"}

    # What was accepted until a day that has passed is red, although the base has it.
    (folder / "other.py").write_text(GOOD)
    assert typed("ci", "accept", "--reason", "later", "--expires", "2099-01-31", folder=folder).returncode == 0
    decisions = folder / "findings" / "accepted.toml"
    decisions.write_text(decisions.read_text().replace("2099-01-31", "2020-01-31"))
    assert typed("ci", "pull-request", "--base", "HEAD", folder=folder, environment=IN_EXPORT).returncode == 1
    worktrees = subprocess.run(["git", "worktree", "list"], cwd=folder, capture_output=True, text=True, check=True)
    assert len(worktrees.stdout.splitlines()) == 1


def test_a_base_that_is_no_commit_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for base in ("main", "--output=a", "a\0b", ""):
        done = CliRunner().invoke(command, ["pull-request", "--base", base])
        assert isinstance(done.exception, InputError)
        assert str(done.exception).startswith(f"--base: found no commit {base!r}, expected one of this git repository")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_target_that_cannot_be_built_does_not_end_the_others(tmp_path: Path) -> None:
    with_model(tmp_path, MODEL, '["model.py:nothing", "nowhere.py:f", "model.py:model"]')
    red = typed("check", "--no-advice", folder=tmp_path)
    assert red.returncode == 2, red.stderr
    assert "nowhere.py: found no such file" in red.stderr
    assert "model.py:model does not export" in red.stdout
    assert "model.py:nothing: found no such name" in red.stdout
    accepted = typed("ci", "accept", "--reason", "later", folder=tmp_path)
    assert accepted.returncode == 2, accepted.stderr
    [problem] = tomllib.loads((tmp_path / "findings" / "accepted.toml").read_text())["problem"]
    assert problem["target"] == "model.py:model"
    assert typed("check", "model.py:model", "--no-advice", folder=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["accept", "--reason", " ", "model.py:f"], "--reason: found an empty reason"),
        (["accept", "--reason", "a", "--expires", "2020-01-31", "model.py:f"], "--expires: found 2020-01-31, expected"),
        (["accept", "--reason", "a"], "found no TARGET, expected one such as model.py:make_model"),
        (["accept", "--reason", "a", "nowhere.py:f"], "nowhere.py: found no such file"),
    ],
)
def test_what_cannot_be_accepted_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, words)
    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith(said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.long
def test_a_hook_gets_what_failed_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpora").mkdir()
    smoke = contents("none")["corpora/smoke/relu.py"]
    (tmp_path / "corpora" / "relu.py").write_text(smoke.replace("explicit ok", "explicit dde at at::native::chunk"))
    (tmp_path / "corpora" / "other.py").write_text(smoke.replace("torch.relu(x)", "torch.diff(x)"))
    script = "import sys; open('told.json', 'w').write(sys.stdin.read()); sys.exit(3)"
    monkeypatch.setenv("DDEFUZZ_CI_HOOK", shlex.join([sys.executable, "-c", script]))
    done = CliRunner().invoke(command, ["pull-request"])
    assert done.exit_code == 1
    told = json.loads((tmp_path / "told.json").read_text())
    assert (told["schema"], told["exit"]) == ("ddefuzz.ci/1", 1)
    assert told["steps"] == [{"name": "replay", "exit": 1, "report": "ddefuzz-report/replay.md"}]
    [failed] = told["failed"]
    assert (failed["step"], failed["path"], failed["line"]) == ("replay", "corpora/other.py", 1)
    assert failed["id"] == "corpora/other.py@export/explicit"
    assert f"the hook {os.environ['DDEFUZZ_CI_HOOK']} ended with 3" in done.stderr
    monkeypatch.setenv("DDEFUZZ_CI_HOOK", "no-such-command 'a")
    done = CliRunner().invoke(command, ["pull-request"])
    assert done.exit_code == 1
    assert "the hook no-such-command 'a failed: " in done.stderr
    (tmp_path / "corpora" / "other.py").unlink()
    (tmp_path / "told.json").unlink()
    assert CliRunner().invoke(command, ["pull-request"]).exit_code == 0
    assert not (tmp_path / "told.json").exists()


def test_a_report_of_an_earlier_run_is_not_taken_for_one_of_this_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "_step", lambda step: 2)
    script = "import sys; open('told', 'w').write(sys.stdin.read())"
    monkeypatch.setenv("DDEFUZZ_CI_HOOK", shlex.join([sys.executable, "-c", script]))
    REPORTS.mkdir()
    for name in ("models.md", "models.sarif", "comment.md"):
        (REPORTS / name).write_bytes(b"\xff of the run before")
    with pytest.raises(SystemExit) as ended:
        jobs._run([Step("models", ("check",), 1.0)])
    assert ended.value.code == 2
    assert (REPORTS / "comment.md").read_text() == f"{MARKER}\n\n**ddefuzz models**: exit 2\n"
    told = json.loads(Path("told").read_text())
    assert (told["failed"], told["steps"][0]["report"]) == ([], "")


def test_no_password_is_in_the_words_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["batch", "--shard", "postgresql://ada:SECRET@127.0.0.1:1/x"]
    done = CliRunner().invoke(command, words)
    assert "postgresql://ada:***@127.0.0.1:1/x" in done.stderr
    assert "SECRET" not in done.stderr.partition("\n")[0]


def test_a_comment_has_what_failed_first_and_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    REPORTS.mkdir()
    (REPORTS / "models.md").write_text("m" * 59_000)
    (REPORTS / "replay.md").write_text("r" * 9_000)
    written = comment({"models": 0, "replay": 1, "run": 0})
    assert written.startswith(f"{MARKER}\n\n**ddefuzz models**: exit 0\n\n**ddefuzz replay**: exit 1\n")
    assert "r" * 9_000 in written
    assert "The report of models is too long for a comment: see ddefuzz-report/models.md." in written
    assert len(written) < 65_536


@pytest.mark.slow
def test_fuzzing_is_red_on_new_findings_and_green_when_they_are_known(tmp_path: Path) -> None:
    assert typed("init", "--no-baseline", folder=tmp_path).returncode == 0
    summary = tmp_path / "summary.md"
    on_github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary), **IN_EXPORT}
    for _ in range(2):  # nobody has decided anything in between
        red = typed("ci", "fuzz", "--budget", "8x", folder=tmp_path, environment=on_github)
        assert red.returncode == 1, red.stderr
    assert "run exit 1" in red.stderr
    assert "::error title=dde dde-" in red.stdout
    assert "## ddefuzz campaign: 8 cases" in summary.read_text()
    log = json.loads((tmp_path / "ddefuzz-report" / "run.sarif").read_text())
    assert list(code_scanning(log)) == []
    new = [result["partialFingerprints"]["ddefuzz/signature/v1"] for result in log["runs"][0]["results"]]
    assert new
    known = "".join(f'[{name}]\nstate = "triaged"\nreason = "seen"\n' for name in new)
    (tmp_path / "findings" / "known.toml").write_text(known)
    green = typed("ci", "fuzz", "--budget", "8x", folder=tmp_path, environment=IN_EXPORT)
    assert green.returncode == 0, green.stderr
    assert ET.parse(tmp_path / "ddefuzz-report" / "run.xml").getroot()[0].get("failures") == "0"


@pytest.mark.slow
def test_with_the_baseline_known_findings_are_not_red(tmp_path: Path) -> None:
    assert typed("init", folder=tmp_path).returncode == 0
    ran = typed("ci", "fuzz", "--budget", "8x", folder=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "ddefuzz-report" / "run.jsonl").read_text().splitlines()]
    baseline = tomllib.loads((tmp_path / "findings" / "baseline.toml").read_text())
    new = [row["finding"] for row in rows if row["finding"] not in baseline]
    assert len(new) < len(rows)
    log = json.loads((tmp_path / "ddefuzz-report" / "run.sarif").read_text())
    failed = [result["partialFingerprints"]["ddefuzz/signature/v1"] for result in log["runs"][0]["results"]]
    assert set(failed) <= set(new)
    assert ran.returncode == (1 if failed else 0), ran.stderr


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
