"""`ddefuzz fixes`: the list, one fix, what is written, and bad input. Nothing is verified here."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from ddefuzz.answers.model import Answers, Tally
from ddefuzz.answers.patch import Patch
from ddefuzz.cli.fixes import command
from ddefuzz.errors import InputError, refusals
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
    assert "1 backed by forced answers" in " ".join(run(*words).output.split())
    fix = made(words)
    page = " ".join(run(*words).output.split())
    assert "1 verified, 0 backed by forced answers" in page
    assert f"fixes show {fix.id}" in page
    assert "0 fixes." in run(*words, "--label", "untested idea").output


def test_one_fix_is_shown_by_its_finding(words: tuple[str, ...]) -> None:
    fix = made(words)
    page = run("show", ROLL.key, *words).output
    assert fix.change in page
    assert "+more = 1" in page
    assert json.loads(run("show", fix.id, *words, "--format", "json").stdout)["id"] == fix.id


def test_verified_changes_of_the_same_function_are_named(words: tuple[str, ...]) -> None:
    fix = made(words)
    beside = replace(fix, id="fix-0123456789", findings=("dde-0123456789",))
    write_fixes([beside, replace(beside, id="fix-9876543210", label="in doubt")], Path(words[-1]))
    assert f"same function  {beside.id}\n" in run("show", fix.id, *words).output


def test_why_none_is_known_is_shown_for_a_finding_without_a_change(words: tuple[str, ...]) -> None:
    with Database.open(words[1]) as database:
        database.set_answers(ROLL.key, Answers("another guard decides", "aot", "2.13.0", 1), lambda one: one)
    page = run("show", ROLL.key[:8], *words).output
    assert f"{ROLL.key}: no change of PyTorch is known" in page
    assert "Verdict of the forced answers: another guard decides" in page
    document = json.loads(run("show", ROLL.key, *words, "--format", "json").stdout)
    assert (document["finding"], document["cause"]) == (ROLL.key, "avoidable")


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
    with monkeypatch.context() as patch:
        patch.setattr("ddefuzz.cli.fixes.job_of", lambda fix, findings: None)
        assert "found no change of Python's code for torch/_refs/__init__.py:roll" in refused("verify", ROLL.key)
    other = replace(fix, patch=unified_diff("torch/version.py", "another\n", "changed\n"))
    write_fixes([other], Path(words[-1]))
    assert f"{fix.id}: found torch " in (message := refused("export", out))
    assert "expected torch 2.0" in message
    made(words)
    monkeypatch.setenv("PATH", "")
    assert "expected git on the PATH" in refused("export", out)
    assert not Path(out).exists()


def test_what_is_not_of_a_fix_is_neither_removed_nor_written(words: tuple[str, ...], tmp_path: Path) -> None:
    folder, mine = Path(words[-1]), tmp_path / "mine"
    other = replace(made(words), id="fix-0123456789")
    write_fixes([other], folder)
    (folder / other.id).rename(mine)
    (folder / other.id).symlink_to(mine)
    before = {path.name: path.read_bytes() for path in mine.iterdir()}
    done = run("write", *words)
    assert isinstance(done.exception, InputError)
    assert "found a symbolic link" in str(done.exception)
    assert {path.name: path.read_bytes() for path in mine.iterdir()} == before


@pytest.mark.parametrize("name", ["test.py", "change.patch", "fix.toml"])
def test_a_folder_in_place_of_a_file_is_refused_before_anything_is_written(words: tuple[str, ...], name: str) -> None:
    (row,) = json.loads(run("list", *words, "--format", "json").stdout)["fixes"]
    (Path(words[-1]) / row["id"] / name).mkdir(parents=True)
    done = run("write", *words)
    assert isinstance(done.exception, InputError), done.output
    assert [one.name for one in (Path(words[-1]) / row["id"]).iterdir()] == [name]


@pytest.mark.parametrize(
    "file", ["../site-packages/numpy/version.py", "/etc/hostname", "nope.py", "torch", "", "x" * 300]
)
def test_a_file_that_is_none_of_torch_is_refused(words: tuple[str, ...], tmp_path: Path, file: str) -> None:
    fix = made(words)
    path = Path(words[-1]) / fix.id / "fix.toml"
    path.write_text(path.read_text().replace('file = "torch/version.py"', f'file = "{file}"'))
    done = run("export", str(tmp_path / "out"), *words, "--id", fix.id)
    assert isinstance(done.exception, InputError), done.output
    assert not (tmp_path / "out").exists()


def test_nothing_is_removed_if_a_finding_cannot_be_read(words: tuple[str, ...]) -> None:
    run("write", *words)
    written = {path.name for path in Path(words[-1]).iterdir()}
    with closing(sqlite3.connect(words[1].removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("update documents set document = '{'")
    with refusals() as left_out:
        run("write", *words)
    assert left_out
    assert {path.name for path in Path(words[-1]).iterdir()} == written != set()


def test_a_fix_that_cannot_be_read_is_left_out_and_never_written_over(words: tuple[str, ...]) -> None:
    place = Path(words[-1]) / made(words).id / "fix.toml"
    place.write_text("x = [")
    with refusals() as left_out:
        assert json.loads(run("list", *words, "--format", "json").stdout)["fixes"]
        assert [line.partition(":")[0] for line in left_out] == [str(place)]
    with refusals():
        done = run("write", *words)
    assert "found 1 fix that cannot be read, expected none" in str(done.exception)
    assert place.read_text() == "x = ["
