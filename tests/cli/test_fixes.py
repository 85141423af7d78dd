"""`ddefuzz fixes`: the list, one fix, what is written, and bad input. Nothing is verified here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from ddefuzz.answers.model import Answers, Tally
from ddefuzz.answers.patch import Patch
from ddefuzz.cli.fixes import command
from ddefuzz.files import unified_diff
from ddefuzz.findings.database import Database
from ddefuzz.fixes.model import Fix, read_fixes, write_fixes
from ddefuzz.fixes.verify import torch_folder
from tests.findings.arbitrary_findings import ROLL, START, sighting

BEFORE = (torch_folder() / "version.py").read_text()
PATCH = Patch("guard_or_false", "torch/version.py", "", BEFORE, f"{BEFORE}more = 1\n")


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, ...]:
    """The options of a database with one finding, and of a folder with its verified fix."""
    url = f"sqlite:///{tmp_path}/findings.db"
    with Database.open(url) as database:
        database.record(sighting(ROLL), START)
        tally = Tally(answer="False", programs=1, captures=1, agrees=("example", "0"))
        database.set_answers(ROLL.key, Answers("guard_or_false here", "aot", "2.13.0", 1, (tally,)), lambda one: one)
    return "--db", url, "--fixes", str(tmp_path / "fixes")


def run(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def made(words: tuple[str, ...], patch: str = PATCH.diff) -> Fix:
    """A verified fix, written to the folder."""
    (row,) = json.loads(run("list", *words, "--format", "json").stdout)["fixes"]
    fix = Fix(
        id=row["id"],
        label="verified",
        form="guard_or_false",
        change="one becomes another",
        site=ROLL.site,
        severity="cannot capture",
        findings=(ROLL.key,),
        torch="2.0",
        file="torch/version.py",
        patch=patch,
        test="import torch\n",
        pull_request="# title\n",
    )
    write_fixes([fix], Path(words[-1]))
    return fix


def test_the_list_says_how_much_is_known(words: tuple[str, ...]) -> None:
    for typed in ((), ("list",)):
        assert "1 fix. Of 1 open finding" in run(*typed, *words).output
    assert "1 backed by forced answers" in run(*words).output
    fix = made(words)
    page = run(*words).output
    assert "1 verified, 0 backed by forced answers" in page
    assert f"fixes show {fix.id}" in page
    assert "0 fixes." in run(*words, "--label", "untested idea").output


def test_one_fix_is_shown_by_its_finding(words: tuple[str, ...]) -> None:
    fix = made(words)
    page = run("show", ROLL.key, *words).output
    assert fix.change in page
    assert "+more = 1" in page
    assert json.loads(run("show", fix.id, *words, "--format", "json").stdout)["id"] == fix.id


def test_the_patch_the_test_and_the_request_are_written(words: tuple[str, ...], tmp_path: Path) -> None:
    fix = made(words)
    assert run("export", str(tmp_path / "out"), *words).exit_code == 0
    files = {path.name: path.read_text() for path in (tmp_path / "out" / fix.id).iterdir()}
    assert files == {"change.patch": fix.patch, "test.py": fix.test, "pull_request.md": fix.pull_request}


def test_all_groups_are_written_and_what_was_tried_is_kept(words: tuple[str, ...]) -> None:
    fix = made(words)
    gone = replace(fix, id="fix-0000000000", findings=("dde-0000000000",), label="untested idea", patch="")
    write_fixes([gone], Path(words[-1]))
    assert run("write", *words).exit_code == 0
    (kept,) = read_fixes(Path(words[-1]))
    assert (kept.id, kept.patch, kept.test) == (fix.id, fix.patch, fix.test)


def test_bad_input_has_one_line(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = str(tmp_path / "out")

    def refused(*typed: str) -> str:
        error = run(*typed, *words).exception
        assert getattr(error, "exit_code", 2) == 2
        return str(error)

    assert "'nope': found no such fix" in refused("show", "nope")
    assert "found a change that is backed by forced answers" in refused("export", out, "--id", ROLL.key)
    fix = made(words)
    assert "found no such fix" in refused("verify", "nope")
    other = replace(fix, patch=unified_diff("torch/version.py", "another\n", "changed\n"))
    write_fixes([other], Path(words[-1]))
    assert f"{fix.id}: found torch " in (message := refused("export", out))
    assert "expected torch 2.0" in message
    made(words)
    monkeypatch.setenv("PATH", "")
    assert "expected git on the PATH" in refused("export", out)
    assert not Path(out).exists()
