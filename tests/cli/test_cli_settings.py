"""Defaults of options from files and the environment, and errors in them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import rich_click as click
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from ddefuzz.cli.command import click_command
from ddefuzz.cli.options import DB, IN_STAGES, JOBS
from ddefuzz.cli.settings import default_map, read
from ddefuzz.errors import InputError
from ddefuzz.findings.url import DatabaseUrl


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, and an environment without settings."""
    for name in [name for name in os.environ if name.startswith("DDEFUZZ_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_environment_goes_before_ddefuzz_toml_before_pyproject(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read() == {}
    (folder / "pyproject.toml").write_text("[tool.ruff]\n")
    assert read() == {}
    (folder / "pyproject.toml").write_text('[tool.ddefuzz]\njobs = 1\nseed = 1\nprofile = "long"\n[tool.ruff]\n')
    (folder / "ddefuzz.toml").write_text('jobs = 2\nseed = 2\nstage = ["export", "compile"]\n')
    for name, value in {"DDEFUZZ_JOBS": "3", "DDEFUZZ_SEED": "", "DDEFUZZ_DEBUG": "1"}.items():
        monkeypatch.setenv(name, value)
    assert read() == {"jobs": "3", "seed": 2, "profile": "long", "stages": ["export", "compile"]}


@pytest.mark.parametrize("name", ["ddefuzz.toml", "pyproject.toml"])
def test_settings_that_are_no_file_are_refused(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    with pytest.raises(InputError, match=f"{name}: cannot be read: Is a directory, expected a regular file"):
        read()
    (folder / name).rmdir()
    (folder / name).symlink_to("nowhere")
    with pytest.raises(InputError, match=f"{name}: "):
        read()


def test_lists_in_the_environment_are_words_or_comma_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDEFUZZ_STAGE", "export, compile")
    monkeypatch.setenv("DDEFUZZ_SEMANTICS", "explicit")
    assert read() == {"stages": ["export", "compile"], "semantics": ["explicit"]}


@pytest.mark.parametrize(
    "text",
    [
        'check.targets = ["a.py:f", "b:g"]\nknown = ["x.toml"]',
        'known = "x.toml"\n[check]\ntargets = ["a.py:f", "b:g"]',
    ],
)
def test_the_models_of_a_repository_and_lists_of_known_findings(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (folder / "ddefuzz.toml").write_text(text)
    assert read() == {"targets": ["a.py:f", "b:g"], "known_files": ["x.toml"]}
    monkeypatch.setenv("DDEFUZZ_CHECK_TARGETS", "c.py:h")
    monkeypatch.setenv("DDEFUZZ_CHECK_ACCEPTED", "mine.toml")
    assert read() == {"targets": ["c.py:h"], "known_files": ["x.toml"], "accepted": "mine.toml"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "check.target = ['a']",
            r"ddefuzz.toml: found the unknown key 'check.target', did you mean 'check.targets'\? expected one of .*",
        ),
        ("check.targets = [1]", r"ddefuzz.toml: found check.targets = \[1\], expected a list of strings"),
        ("check = 3", r"ddefuzz.toml: found the unknown key 'check', .*expected one of db, .*"),
        ("known = 3", r"ddefuzz.toml: found known = 3, expected a string or a list of strings"),
        ("jbos = 3", r"ddefuzz.toml: found the unknown key 'jbos', did you mean 'jobs'\? expected one of db, jobs, .*"),
        ("[run]\njobs = 3", r"ddefuzz.toml: found the unknown key 'run', .*expected one of db, .*"),
        ("jobs = true", r"ddefuzz.toml: found jobs = True, expected a number or a string"),
        ("db = 3", r"ddefuzz.toml: found db = 3, expected a string"),
        ("stage = 3", r"ddefuzz.toml: found stage = 3, expected a list of strings"),
        ("stage = [3]", r"ddefuzz.toml: found stage = \[3\], expected a list of strings"),
        ("stage = []", r"ddefuzz.toml: found stage = \[\], expected a list of strings"),
        ("= 3", r"ddefuzz.toml: found an unreadable file \(.*\), expected a table in TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line(folder: Path, text: str, said: str) -> None:
    (folder / "ddefuzz.toml").write_text(text)
    with pytest.raises(InputError) as raised:
        read()
    assert re.fullmatch(said, str(raised.value))
    if not text.startswith("["):
        (folder / "ddefuzz.toml").unlink()
        (folder / "pyproject.toml").write_text(f"[tool.ddefuzz]\n{text}")
        with pytest.raises(InputError, match=r"pyproject.toml: found "):
            read()


def test_a_table_that_is_none_is_no_internal_error(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool]\nddefuzz = 3\n")
    with pytest.raises(InputError, match=r"pyproject.toml: found .*, expected a table in TOML"):
        read()


def test_the_place_named_is_the_one_with_the_wrong_value(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "ddefuzz.toml").write_text("jobs = 3\ndb = 3\n")
    monkeypatch.setenv("DDEFUZZ_JOBS", "2")
    with pytest.raises(InputError, match=r"^ddefuzz.toml: found db = 3, "):
        read()


def test_an_unknown_variable_is_named_as_it_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDEFUZZ_JOB", "1")
    with pytest.raises(InputError, match=r"found the unknown key 'DDEFUZZ_JOB', did you mean 'DDEFUZZ_JOBS'\?"):
        read()


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)


@settings(database=None, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(["DDEFUZZ_X", "DDEFUZZ_JOBS", "DDEFUZZ_STAGE", "X"]), TEXT))
def test_an_environment_is_read_or_refused_in_one_line(environment: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        try:
            found = read()
        except InputError as error:
            assert environment.get("DDEFUZZ_X") or not environment["DDEFUZZ_STAGE"].replace(",", " ").split()
            assert "\n" not in str(error)
        else:
            assert set(found) == {
                parameter
                for name, parameter in {"DDEFUZZ_JOBS": "jobs", "DDEFUZZ_STAGE": "stages"}.items()
                if environment.get(name)
            }


def test_each_command_takes_what_it_has_an_option_for(folder: Path) -> None:
    @click.group()
    def group() -> None:
        """A group."""

    @click_command("one", group)
    def one(db: DatabaseUrl = DB, jobs: int = JOBS) -> None:
        click.echo(f"{db} {jobs}")

    @click_command("two", group)
    def two(stages: tuple[str, ...] = IN_STAGES) -> None:
        click.echo(stages)

    (folder / "ddefuzz.toml").write_text('db = "sqlite:///a.db"\njobs = 2\nstage = ["fake"]\n')
    runner = CliRunner()
    defaults = default_map(group, read())
    assert runner.invoke(group, ["one"], default_map=defaults).stdout == "sqlite:///a.db 2\n"
    assert runner.invoke(group, ["one", "-j", "3"], default_map=defaults).stdout == "sqlite:///a.db 3\n"
    assert runner.invoke(group, ["two"], default_map=defaults).stdout == "('fake',)\n"
    with pytest.raises(click.BadParameter, match="found '0', expected a number of processes or auto"):
        group.main(["one"], default_map={"one": {"jobs": 0}}, standalone_mode=False)
