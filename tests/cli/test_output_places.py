"""Where commands write: outputs into files, links, pipes and devices, and folders that are checked before."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import rich_click as click
from click.testing import CliRunner

from ddefuzz.artifacts.model import Diff
from ddefuzz.artifacts.page import DOCUMENT, write_folder
from ddefuzz.cli.ci import command as ci
from ddefuzz.cli.findings import command as findings
from ddefuzz.cli.init import OF_PEOPLE, contents
from ddefuzz.cli.init import command as init
from ddefuzz.cli.main import cli
from ddefuzz.errors import InputError, refusals
from ddefuzz.findings.database import Database
from ddefuzz.findings.textform import FILES, FINDING, KNOWN, MINIMAL, write_findings
from ddefuzz.show.sites import INDEX, NO_SOURCE
from tests.artifacts.test_page import ALL
from tests.cli.every_command import commands
from tests.findings.arbitrary_findings import CHUNK, PROGRAM, ROLL, START, sighting
from tests.test_files import PLANTED, plant, tree


def words_of(command: click.Command) -> list[list[str]]:
    """The options of a command that write a file, each with `{}` for its path."""
    found = []
    for option in command.params:
        if option.type.name in ("FORMAT=PATH", "FILE"):
            found.append([option.opts[0], "json={}" if "=" in option.type.name else "{}"])
    return found


def test_a_place_that_cannot_be_written_is_refused_before_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    tried = set()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        before = tree(tmp_path)
        for name, command in commands():
            for words in words_of(command):
                for place in ("folder", "loop", "socket", "file/below"):
                    done = CliRunner().invoke(command, [word.format(place) for word in words], standalone_mode=False)
                    assert isinstance(done.exception, click.BadParameter), (name, words, done.exception)
                    assert "cannot be written" in done.exception.format_message()
                    tried.add((name, words[0]))
        assert tree(tmp_path) == before
    assert {("check", "--patch"), ("matrix", "--page"), ("run", "--output")} <= tried
    assert len(tried) > 20


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database of two findings."""
    url = f"sqlite:///{tmp_path_factory.mktemp('database')}/ddefuzz.db"
    with Database.open(url) as database:
        for signature in (CHUNK, ROLL):
            database.record(sighting(signature), START)
        database.set_minimal(CHUNK.key, PROGRAM, steps=1, attempts=11)
    return url


COMMANDS = {
    "findings list": ["findings", "list", "--db", "{url}"],
    "report": ["report", "--db", "{url}"],
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_what_takes_an_output(command: str, tmp_path: Path, url: str) -> None:
    """The kinds of places, in one process each as a shell starts it."""
    words = [word.format(url=url) for word in COMMANDS[command]]

    def run(shell: str) -> subprocess.CompletedProcess[str]:
        made = [sys.executable, "-m", "ddefuzz", *words]
        return subprocess.run(
            ["bash", "-c", shell, "-", *made], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )

    whole = json.loads(run('"$@" --format json').stdout)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o640)
    for shell in (
        '"$@" --output json=new >/dev/null; cat new',
        '"$@" --output json=old >/dev/null; cat old',
        '"$@" --output json=link >/dev/null; cat link',
        '"$@" --output json=/dev/stderr 2>&1 >/dev/null | cat',
        '"$@" --output json=/dev/fd/3 3>&1 >/dev/null',
        '"$@" --output json=/dev/fd/3 3>third >/dev/null; cat third',
        '"$@" --output json=>(cat >substituted) >/dev/null; while [ ! -s substituted ]; do :; done; cat substituted',
        'cat fifo & exec 4>fifo; "$@" --output json=fifo >/dev/null; exec 4>&-; wait',
        '"$@" --output json=/dev/null --format json',
    ):
        done = run(shell)
        assert json.loads(done.stdout) == whole, (shell, done.stderr)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").is_file()
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o640
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    refused = run('"$@" --output json=fifo')
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    "words",
    [
        "findings list --db {url} --output json={db}",
        "report --db {url} --output json={db}-wal",
        "report --db {url} --output json=link",
        "findings list --db sqlite:///link --output json={db}-wal",
        "findings list --db sqlite:///link --output json=link-shm",
        "run --db {url} --budget 1s --output json={db}",
        "check model.py:g --output json=model.py",
        "check model.py --patch model.py",
        "check model.py:g --output json=ddefuzz.toml",
        "replay case.py --output json=case.py",
        "replay cases --output json=cases/below/case.py",
        "matrix cases --python new=python --page case.md --output json=case.md",
    ],
)
def test_a_file_that_is_read_is_no_output(
    tmp_path: Path, url: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases" / "below").mkdir(parents=True)
    for name in ("model.py", "case.py", "cases/below/case.py"):
        (tmp_path / name).write_text(PROGRAM)
    db = Path(url.removeprefix("sqlite:///"))
    (tmp_path / "link").symlink_to(db)
    before = tree(tmp_path), db.read_bytes()
    done = CliRunner().invoke(cli, words.format(url=url, db=db).split(), standalone_mode=False)
    assert isinstance(done.exception, click.UsageError), done.exception
    assert "\n" not in done.exception.format_message()
    assert (tree(tmp_path), db.read_bytes()) == before


@pytest.mark.parametrize(
    "memory", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///file::memory:?uri=true"]
)
@pytest.mark.parametrize("words", ["findings export kept --db {}", "findings import kept --db {}", "report --db {}"])
def test_a_database_in_memory_is_refused(
    tmp_path: Path, url: str, words: str, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not export(tmp_path / "kept", url)
    before = tree(tmp_path)
    for given, variable in ((words.format(memory), ""), (words.removesuffix(" --db {}"), memory)):
        runner = CliRunner(env={"DDEFUZZ_DB": variable})
        done = runner.invoke(cli, given.split(), standalone_mode=False)
        assert isinstance(done.exception, click.UsageError | InputError), done.exception
        assert "a database in memory" in str(done.exception)
    assert tree(tmp_path) == before


INIT = ("findings", "corpora", "corpora/smoke", ".github", ".github/workflows", ".ddefuzz", "ddefuzz.toml")


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize(
    ("place", "kind"),
    [
        (place, kind)
        for place in INIT
        for kind in ("folder" if place == "ddefuzz.toml" else "file", "link", "dangling", "loop", "fifo")
    ],
)
def test_init_refuses_before_it_writes(tmp_path: Path, place: str, kind: str, force: tuple[str, ...]) -> None:
    plant(kind, tmp_path / "top" / place, tmp_path / "outside")
    before = tree(tmp_path)
    done = CliRunner().invoke(init, [str(tmp_path / "top"), *force])
    assert isinstance(done.exception, InputError), done.exception
    assert "\n" not in str(done.exception)
    assert str(tmp_path / "top" / place) in str(done.exception)
    assert tree(tmp_path) == before


def test_init_replaces_files_with_force_and_keeps_others(tmp_path: Path) -> None:
    for name in contents("github"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    (tmp_path / "findings" / "notes").write_text("mine")
    done = CliRunner().invoke(init, [str(tmp_path)])
    assert "expected none there (--force replaces it)" in str(done.exception)
    assert CliRunner().invoke(init, [str(tmp_path), "--force"]).exit_code == 0
    decisions = dict.fromkeys(OF_PEOPLE, "old")
    assert {name: (tmp_path / name).read_text() for name in contents("github")} == contents("github") | decisions
    assert (tmp_path / "findings" / "notes").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loop", "long"])
@pytest.mark.parametrize(
    "words",
    [
        "findings import {}",
        "findings list --db sqlite:///{}",
        "findings merge --db sqlite:///new.db sqlite:///{}",
        "init {}",
        "artifacts {}.py",
        "minimize {}",
        "check-key {}.py:f",
        "cost {}.py",
        "sites --db sqlite:///{}",
        "serve --db sqlite:///{}",
        "replay {}",
        "check {}",
    ],
)
def test_a_path_that_cannot_be_looked_up(
    words: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("loop", "loop.py"):
        (tmp_path / name).symlink_to(name)
    place = "loop" if kind == "loop" else "a" * 300
    done = CliRunner().invoke(cli, words.format(place).split(), standalone_mode=False)
    assert isinstance(done.exception, InputError), done.exception
    assert done.exception.exit_code == 2
    assert "\n" not in str(done.exception)
    assert ("Too many levels" if kind == "loop" else "File name too long") in str(done.exception)


def export(folder: Path, url: str) -> str:
    """`findings export`: its error."""
    done = CliRunner().invoke(findings, ["export", str(folder), "--db", url])
    assert done.exception is None or isinstance(done.exception, InputError), done.exception
    return str(done.exception or "")


GONE = msgspec.structs.replace(ROLL, anchor="a.numel() == 1")

OTHERS = ("notes", "dde-08f7b02bbb-old", "dde-08f7b02bb", "x-dde-", "DDE-08f7b02bbb", "dde")
"""Folders that are not named as findings are."""


def test_an_export_deletes_only_findings_that_it_can_read(
    tmp_path: Path, url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Database.open(f"sqlite:///{tmp_path_factory.mktemp('other')}/ddefuzz.db") as database:
        database.record(sighting(GONE), START)
        write_findings(database.findings(), tmp_path)
    (tmp_path / GONE.key / "notes.txt").write_text("mine")
    for name in (*OTHERS, "dde-0123456789", "outside/dde-9876543210"):
        (tmp_path / name).mkdir(parents=True)
        for file in (FINDING, MINIMAL, "notes.txt"):
            (tmp_path / name / file).write_text("mine")
    (tmp_path / "dde-9876543210").symlink_to("outside/dde-9876543210")
    (tmp_path / CHUNK.key).mkdir()
    (tmp_path / CHUNK.key / "notes.txt").write_text("mine")
    before = tree(tmp_path)
    unreadable = tmp_path / "dde-0123456789" / FINDING
    with refusals() as left_out:
        assert export(tmp_path, url) == ""
    assert [line.partition(": ")[0] for line in left_out] == [str(unreadable)]
    after = tree(tmp_path)
    gone = {f"{GONE.key}/{FINDING}", f"{GONE.key}/original.py", f"{GONE.key}/observed.json.gz"}
    assert {name for name in before if before[name] != after.get(name)} == gone
    made = {f"{one.key}/{name}" for one in (CHUNK, ROLL) for name in FILES}
    assert set(after) - set(before) <= {*made, KNOWN, ROLL.key}


@pytest.mark.parametrize("place", [ROLL.key, f"{ROLL.key}/{FINDING}", f"{ROLL.key}/{MINIMAL}", KNOWN])
@pytest.mark.parametrize("kind", ["link", "dangling", "loop", "fifo"])
def test_an_export_is_refused_before_it_writes(tmp_path: Path, url: str, place: str, kind: str) -> None:
    plant(kind, tmp_path / "top" / place, tmp_path / "outside")
    before = tree(tmp_path)
    said = export(tmp_path / "top", url)
    assert str(tmp_path / "top" / place) in said
    assert "\n" not in said
    assert tree(tmp_path) == before


def test_an_export_to_what_is_no_folder(tmp_path: Path, url: str) -> None:
    (tmp_path / "file").touch()
    assert "is a file, expected a folder" in export(tmp_path / "file", url)
    (tmp_path / "link").symlink_to("made")
    assert export(tmp_path / "link", url) == ""
    assert (tmp_path / "made" / KNOWN).is_file()


def test_an_export_of_nothing_keeps_what_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / FINDING).write_text("mine")
    write_findings([], tmp_path)
    assert sorted(tree(tmp_path)) == [KNOWN, "notes", f"notes/{FINDING}"]


@pytest.mark.parametrize("kind", ["file", "link", "dangling", "loop", "fifo"])
@pytest.mark.parametrize("words", [["pull-request"], ["fuzz"], ["prune"], ["coverage"], ["batch"]])
def test_the_folder_of_a_job_is_refused(
    words: list[str], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "top").mkdir()
    monkeypatch.chdir(tmp_path / "top")
    plant(kind, tmp_path / "top" / "ddefuzz-report", tmp_path / "outside")
    before = tree(tmp_path)
    done = CliRunner().invoke(ci, words)
    assert "ddefuzz-report: found" in str(done.exception)
    assert tree(tmp_path) == before


@pytest.mark.slow
@pytest.mark.parametrize("planted", ["a link for a file", "a folder for a file", "a FIFO"])
@pytest.mark.parametrize("name", [INDEX, NO_SOURCE])
def test_the_pages_of_sites_are_refused(planted: str, name: str, tmp_path: Path, url: str) -> None:
    plant(PLANTED[planted][0], tmp_path / "top" / name, tmp_path / "outside")
    before = tree(tmp_path)
    done = CliRunner().invoke(cli, ["sites", "--db", url, "--html", str(tmp_path / "top")])
    assert f"{tmp_path / 'top' / name}: found" in str(done.exception)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("second", ["report", "./report", "link"])
def test_two_formats_are_not_written_to_one_file(tmp_path: Path, second: str, url: str) -> None:
    (tmp_path / "link").symlink_to("report")
    words = ["sites", "--db", url, "--output", f"json={tmp_path}/report", "--output", f"text={tmp_path}/{second}"]
    done = CliRunner().invoke(cli, words)
    # The frame around the message is as wide as a terminal: where it wraps depends on the paths.
    said = " ".join(done.output.replace("│", " ").split())
    assert (done.exit_code, "expected a file of its own for each" in said) == (2, True)
    assert not (tmp_path / "report").exists()


def test_artifacts_delete_nothing_outside_of_their_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "precious").write_text("mine")
    hostile = msgspec.structs.replace(ALL, diffs=(Diff("a to b", "../precious", "x"),))
    (tmp_path / "folder" / DOCUMENT).write_bytes(msgspec.json.encode(hostile))
    with pytest.raises(InputError, match="found a path that leads out of"):
        write_folder(ALL, tmp_path / "folder")
    assert (tmp_path / "precious").read_text() == "mine"
