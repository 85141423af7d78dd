"""The file of the service, and what the command says of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddefuzz.errors import InputError
from ddefuzz.fleet.model import read_fleet
from ddefuzz.fleet.work import only_one
from tests.campaign.real_campaign import wait_until
from tests.typed import typed

ROOT = Path(__file__).parents[2]

LEAST = 'wheels = "wheels"\nbudget = "600cpu"\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("wheels = ", "found an unreadable file (Invalid value"),
        ('budget = "9cpu"', "found no wheels, expected the keys wheels, budget, folder"),
        (LEAST + "hours = 3", "found the unknown key 'hours', expected the keys wheels, budget, folder"),
        (LEAST.replace("600cpu", "10m"), "budget: found '10m', expected CPU seconds of a day such as '14400cpu'"),
        (LEAST.replace("600cpu", "0cpu"), "budget: found '0cpu', expected CPU seconds"),
        (LEAST + 'versions = "2.13"', "versions: found '2.13', expected such as '>=2.13,<3'"),
        (LEAST + "profiles = {no = 1}", "profiles: found 'no', expected one of "),
        (LEAST + "profiles = {default = 0}", "profiles: found no share above 0, expected one"),
        (LEAST + "shares = {fuzz = -1}", "shares.fuzz: "),
        (LEAST + "keep = {environments = 1}", "keep.environments: "),
        (LEAST + 'hook = "mail me"', "hook: found text, expected a list"),
        (LEAST + 'db = "fleet.db"', "db: "),
        (LEAST + 'db = "sqlite://"', "db: found sqlite://, a database in memory, expected one that stays"),
        (LEAST + 'folder = "fleet.toml"', "folder: "),
        (LEAST + 'folder = "a?b"', "folder: found "),
        (LEAST + 'folder = "a\\u0000b"', "folder: "),
        (LEAST + 'hook = ["a\\u0000b"]', "hook: found a word with a null character"),
        (LEAST + 'index = ""', "index: found a text that is no URL, expected true, false or such"),
        (LEAST + 'index = "no url"', "index: found a text that is no URL, expected true, false or such"),
    ],
)
def test_a_wrong_file_is_one_line(text: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(f"{path}: {line}")) as caught:
        read_fleet(path)
    assert "\n" not in str(caught.value)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(LEAST)
    fleet, places = read_fleet(tmp_path / "fleet.toml")
    assert (places.wheels, places.folder) == (tmp_path / "wheels", tmp_path / "fleet")
    assert str(places.db) == f"sqlite:///{tmp_path}/fleet/fleet.db"
    assert (fleet.cpu_seconds, fleet.profiles) == (600.0, {"default": 1.0})


def test_a_path_of_a_database_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(LEAST + 'db = "sqlite:///a/b.db?timeout=3"\n')
    _, places = read_fleet(tmp_path / "fleet.toml")
    assert places.db.path() == tmp_path / "a" / "b.db"
    assert places.db.for_sqlalchemy().query == {"timeout": "3"}
    (tmp_path / "fleet.toml").write_text(LEAST + 'db = "sqlite:////a/b.db"\n')
    assert read_fleet(tmp_path / "fleet.toml")[1].db.path() == Path("/a/b.db")


def test_a_link_is_the_same_service(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "fleet.toml").write_text(LEAST)
    assert read_fleet(tmp_path / "link" / "fleet.toml") == read_fleet(tmp_path / "real" / "fleet.toml")


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        (">=2.14,<2.17", ["2.14.0.dev20260101+cpu", "2.14.0rc1", "2.16.1"]),
        (">=2.14.0rc1", ["2.14.0rc1", "2.16.1", "2.17.0.dev20260101"]),
        ("==2.16.1", ["2.16.1"]),
        ("==2.13.0+cpu", ["2.13.0+cpu"]),
    ],
)
def test_a_nightly_counts_as_its_release(tmp_path: Path, versions: str, chosen: list[str]) -> None:
    (tmp_path / "fleet.toml").write_text(f'{LEAST}versions = "{versions}"\n')
    fleet, _ = read_fleet(tmp_path / "fleet.toml")
    names = ("2.13.0+cpu", "2.14.0.dev20260101+cpu", "2.14.0rc1", "2.16.1", "2.17.0.dev20260101")
    assert [*filter(fleet.selects, names)] == chosen


def test_check_accepts_what_the_day_accepts(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(f"{LEAST}index = true\n")
    ended = typed("fleet", "fleet.toml", "--check", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(
        f"wheels: {tmp_path}/wheels: found no such folder, expected one with wheels of torch\n"
    )


def test_a_day_after_today_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(LEAST)
    ended = typed("fleet", "fleet.toml", "--check", "--day", "9999-01-01", folder=tmp_path)
    assert ended.returncode == 2
    assert "--day: found 9999-01-01, expected 20" in ended.stderr


def test_versions_select_wheels(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(LEAST + 'versions = ">=2.14"\n')
    fleet, _ = read_fleet(tmp_path / "fleet.toml")
    chosen = [name for name in ("2.13.0+cpu", "2.14.1", "2.16.0.dev20261129+cpu") if fleet.selects(name)]
    assert chosen == ["2.14.1", "2.16.0.dev20261129+cpu"]


def test_check_says_what_the_day_would_do_and_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(LEAST + 'versions = ">=2.14"\n')
    (tmp_path / "wheels").mkdir()
    for version in ("2.13.0", "2.14.1"):
        (tmp_path / "wheels" / f"torch-{version}-py3-none-any.whl").touch()
    ended = typed("fleet", "fleet.toml", "--check", "--day", "2026-01-01", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[:4] == [
        "2.13.0: left out by versions, new",
        "2.14.1: selected, new",
        "environments: none yet",
        "day 2026-01-01: 10 steps of 10 to do",
    ]
    assert "  sweep: at least 109 CPU s, if it needs them" in lines
    assert "  hook: skipped, the file has none" in lines
    assert not (tmp_path / "fleet").exists()


def test_a_day_with_no_wheel_that_can_be_used_ends_with_4(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(LEAST + 'hook = ["no-such-program"]\n')
    (tmp_path / "wheels").mkdir()
    ended = typed("fleet", "fleet.toml", "--day", "2026-01-01", folder=tmp_path)
    assert ended.returncode == 4, ended.stderr
    assert ended.stdout == f"{tmp_path}/fleet/days/2026-01-01/report.md\n"
    assert f"ddefuzz: left out (1 of 3): wheels: {tmp_path}/wheels: found no wheel of torch that fits" in ended.stderr
    left_out = [line for line in ended.stderr.splitlines() if line.startswith("ddefuzz: left out")]
    assert len(left_out) == 3
    assert left_out[-1] == "ddefuzz: left out (3 of 3): hook: No such file or directory"
    again = typed("fleet", "fleet.toml", "--day", "2026-01-01", folder=tmp_path)
    assert (again.returncode, again.stdout) == (0, "")
    assert "day 2026-01-01 has ended" in again.stderr


def test_a_second_service_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(LEAST)
    with only_one(tmp_path / "fleet"):
        ended = typed("fleet", "fleet.toml", folder=tmp_path)
    assert ended.returncode == 4
    assert "found another `ddefuzz fleet` at work" in ended.stderr


HOOK = """\
import pathlib, time
pathlib.Path("begun").touch()
try:
    time.sleep(600)
except KeyboardInterrupt:
    print("saved")
"""


@pytest.mark.slow
def test_ctrl_c_ends_the_command_of_the_step_and_the_next_start_goes_on(tmp_path: Path) -> None:
    hook = json.dumps([sys.executable, "-c", HOOK])
    (tmp_path / "fleet.toml").write_text(f"{LEAST}hook = {hook}\n")
    words = ["fleet", "fleet.toml", "--day", "2026-01-01"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-m", "ddefuzz", *words], cwd=tmp_path, env=environment) as service:
        wait_until((tmp_path / "begun").exists)
        service.send_signal(signal.SIGINT)
        assert service.wait() == 130
    assert (tmp_path / "fleet" / "days" / "2026-01-01" / "hook.log").read_text() == "saved\n"
    ended = typed(*words, folder=tmp_path)
    assert ended.returncode == 4
    assert "hook: it was begun before the service was ended, and is not run again" in ended.stderr
