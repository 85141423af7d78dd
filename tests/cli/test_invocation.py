"""The commands that pages print work when they are pasted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddefuzz.cli.command import click_command
from ddefuzz.cli.options import DB, DEFAULT_DB
from ddefuzz.cli.output import current_invocation, program_words
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl, parse_url
from ddefuzz.show.blocks import Invocation
from tests.findings.arbitrary_findings import CHUNK, START, sighting

OTHER = "sqlite:///other.db"


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_how_ddefuzz_is_called_again(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "my project", tmp_path / "elsewhere"
    script = executable(project / ".venv" / "bin" / "ddefuzz")
    python = executable(project / ".venv" / "bin" / "python")
    bin_, nothing = str(script.parent), str(elsewhere)

    def words(called: str | Path, search: str, folder: Path = project) -> str:
        return program_words(str(called), str(python), folder, search)

    assert words(script, bin_) == "ddefuzz"
    assert words(script, nothing) == ".venv/bin/ddefuzz"
    assert words(".venv/bin/ddefuzz", nothing) == ".venv/bin/ddefuzz"
    assert words(".venv/bin/ddefuzz", bin_) == ".venv/bin/ddefuzz", "as it was typed"
    assert words(script, nothing, folder=elsewhere) == f"'{script}'"
    assert words("ddefuzz/cli/main.py", nothing) == ".venv/bin/ddefuzz", "the script beside Python"
    script.unlink()
    assert words("-c", nothing) == "ddefuzz"


def test_another_program_of_the_name_on_the_path_is_not_meant(tmp_path: Path) -> None:
    script = executable(tmp_path / ".venv" / "bin" / "ddefuzz")
    executable(tmp_path / "bin" / "ddefuzz")
    assert program_words(str(script), sys.executable, tmp_path, str(tmp_path / "bin")) == ".venv/bin/ddefuzz"


def test_words_are_quoted_and_the_database_is_last() -> None:
    call = Invocation(db="sqlite:///a b.db")
    assert call.command("findings", "show", "x y") == "ddefuzz findings show 'x y' --db 'sqlite:///a b.db'"
    assert call.command("check", "x.py", with_db=False) == "ddefuzz check x.py"
    assert Invocation().command("sites") == "ddefuzz sites"


@pytest.mark.parametrize(
    ("words", "configured", "expected"),
    [
        ([], None, ""),
        ([], OTHER, ""),
        (["--db", OTHER], None, OTHER),
        (["--db", OTHER], OTHER, ""),
        (["--db", DEFAULT_DB], None, ""),
        (["--db", DEFAULT_DB], OTHER, DEFAULT_DB),
    ],
)
def test_the_database_is_named_where_the_default_is_another(
    words: list[str], configured: str | None, expected: str
) -> None:
    seen = []

    @click_command("command")
    def command(db: DatabaseUrl = DB) -> None:
        del db
        seen.append(current_invocation().db)

    defaults = {} if configured is None else {"db": parse_url(configured)}
    assert CliRunner().invoke(command, words, default_map=defaults).exit_code == 0
    assert seen == [expected]


@pytest.mark.slow
def test_a_printed_command_runs_as_it_is_pasted(tmp_path: Path) -> None:
    script = executable(tmp_path / "venv" / "bin" / "ddefuzz")
    script.write_text(f"#!{sys.executable}\nfrom ddefuzz.cli.main import main; main()\n")
    with Database.open(f"sqlite:///{tmp_path}/my db") as database:
        database.record(sighting(), START)
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    typed = "venv/bin/ddefuzz findings list --db 'sqlite:///my db'"
    listed = subprocess.run(
        typed, cwd=tmp_path, env=environment, shell=True, capture_output=True, text=True, check=True
    )
    show = next(line for line in listed.stdout.splitlines() if " findings show " in line)
    shown = subprocess.run(show, cwd=tmp_path, env=environment, shell=True, capture_output=True, text=True, check=True)
    assert CHUNK.key in shown.stdout
    assert show.strip().startswith("venv/bin/ddefuzz findings show ")
