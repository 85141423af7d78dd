"""Settings: defaults of options from files and the environment, and what is said of wrong ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import rich_click as click
from hypothesis import given, settings
from hypothesis import strategies as st

from ddefuzz.cli.options import db_option, jobs_option, stages_option
from ddefuzz.cli.settings import KEYS, default_map, read
from ddefuzz.errors import InputError


def values(folder: Path, environment: Mapping[str, str] | None = None) -> dict[str, object]:
    return {name: one.value for name, one in read(folder, environment or {}).items()}


def test_the_environment_goes_before_ddefuzz_toml_before_pyproject(tmp_path: Path) -> None:
    assert values(tmp_path) == {}
    (tmp_path / "pyproject.toml").write_text('[tool.ddefuzz]\njobs = 1\nseed = 1\nprofile = "long"\n[tool.ruff]\n')
    (tmp_path / "ddefuzz.toml").write_text('jobs = 2\nseed = 2\nstage = ["export", "compile"]\n')
    expected = {"jobs": "3", "seed": 2, "profile": "long", "stages": ["export", "compile"]}
    assert values(tmp_path, {"DDEFUZZ_JOBS": "3", "DDEFUZZ_DEBUG": "1", "HOME": "/"}) == expected


def test_lists_in_the_environment_are_words_or_comma_separated(tmp_path: Path) -> None:
    environment = {"DDEFUZZ_STAGE": "export, compile", "DDEFUZZ_SEMANTICS": "explicit"}
    assert values(tmp_path, environment) == {"stages": ["export", "compile"], "mechanisms": ["explicit"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jbos = 3", r"ddefuzz.toml: found the unknown key 'jbos', did you mean 'jobs'\? expected one of db, jobs, .*"),
        ("[run]\njobs = 3", r"ddefuzz.toml: found the unknown key 'run', .*expected one of db, .*"),
        ("jobs = true", r"ddefuzz.toml: found jobs = True, expected a number or a string"),
        ("db = 3", r"ddefuzz.toml: found db = 3, expected a string"),
        ("stage = 3", r"ddefuzz.toml: found stage = 3, expected a list of strings"),
        ("stage = [3]", r"ddefuzz.toml: found stage = \[3\], expected a list of strings"),
        ("= 3", r"ddefuzz.toml: found a file that cannot be read \(.*\), expected TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "ddefuzz.toml").write_text(text)
    with pytest.raises(InputError) as raised:
        read(tmp_path, {})
    assert re.fullmatch(said, str(raised.value))


def test_an_unknown_variable_is_named_as_it_is_typed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found the unknown key 'DDEFUZZ_JOB', did you mean 'DDEFUZZ_JOBS'\?"):
        read(tmp_path, {"DDEFUZZ_JOB": "1"})


@settings(database=None, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(["DDEFUZZ_X", "DDEFUZZ_JOBS", "DDEFUZZ_STAGE", "X"]), st.text(max_size=5)))
def test_an_environment_is_read_or_refused_in_one_line(environment: dict[str, str]) -> None:
    try:
        found = read(Path("no such folder"), environment)
    except InputError as error:
        assert environment.get("DDEFUZZ_X")
        assert "\n" not in str(error)
    else:
        assert set(found) <= set(KEYS.values())


def test_each_command_takes_what_it_has_an_option_for(tmp_path: Path) -> None:
    @click.group()
    def group() -> None:
        """A group."""

    @group.command("one")
    @db_option
    @jobs_option
    def one(db: str, jobs: int) -> None:
        click.echo(f"{db} {jobs}")

    @group.command("two")
    @stages_option
    def two(stages: tuple[str, ...]) -> None:
        click.echo(stages)

    (tmp_path / "ddefuzz.toml").write_text('db = "sqlite:///a.db"\njobs = 2\nstage = ["fake"]\n')
    found = read(tmp_path, {})
    expected = {"one": {"db": "sqlite:///a.db", "jobs": 2}, "two": {"stages": ["fake"]}}
    assert default_map(group, found) == expected
