"""A day of the service with the installed torch: nothing of it is a stub but the environment."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from ddefuzz.fleet.day import Tools, run_day
from ddefuzz.fleet.model import DayReport, read_fleet
from ddefuzz.fleet.work import Command, CommandEnd, install, run
from ddefuzz.versions.model import Interpreter
from ddefuzz.versions.run import interpreter_of
from ddefuzz.versions.wheels import Index, Wheel
from tests.fleet.stub_day import FILE as STUB_FILE
from tests.fleet.stub_day import Quiet, Service
from tests.versions.test_wheels import TORCH, add_wheel

FILE = """\
wheels = "wheels"
budget = "90cpu"
jobs = 1
shares = {sweep = 0, fuzz = 1, diff = 0, replay = 8, bisect = 0}
hook = ["%s", "-c", "import pathlib, sys; pathlib.Path('hook').write_text(' '.join(sys.argv[1:]))"]
"""

DAY = "2026-01-01"


def this(wheel: Wheel, folder: Path, index: Index) -> Interpreter:
    """This Python in place of a new environment."""
    assert index is False
    folder.mkdir(parents=True)
    return interpreter_of(f"{wheel.torch}={sys.executable}")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_day_with_the_installed_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ddefuzz.fleet.day.LEAST_SECONDS", 6.0)
    (tmp_path / "wheels").mkdir()
    add_wheel(tmp_path / "wheels", "2.13.0")
    (tmp_path / "fleet.toml").write_text(FILE % sys.executable)
    fleet, places = read_fleet(tmp_path / "fleet.toml")
    day = run_day(fleet, places, DAY, lambda: datetime.now(UTC), Tools(Quiet(), this))
    assert day.lines == ()
    report = msgspec.json.decode(places.of_day(DAY, "report.json").read_bytes(), type=DayReport)
    (campaign,) = report.campaigns
    assert (campaign.seed, campaign.finished) == (20260101, True)
    assert campaign.cases > 0
    assert report.counts.findings == report.counts.new > 0
    assert {row.new for row in report.findings} & {"fails"}  # what the replay has run
    assert report.counts.sites > 0
    paths = [str(places.of_day(DAY, name)) for name in ("report.md", "report.json")]
    assert (tmp_path / "hook").read_text() == " ".join([*paths, str(places.feed)])


@pytest.mark.slow
def test_an_environment_has_the_torch_of_the_wheel_and_this_ddefuzz(tmp_path: Path) -> None:
    """A real environment with a torch that has one module. It sees this ddefuzz, also if it is an editable one."""
    add_wheel(tmp_path, "2.99.1", TORCH)
    interpreter = install(Wheel("2.99.1", tmp_path / "torch-2.99.1-py3-none-any.whl"), tmp_path / "environment", False)
    assert (interpreter.name, interpreter.torch, interpreter.full) == ("2.99.1", "2.99.1", True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("", ""),
        ('index = "FOLDER/nothing"\n', ""),
        ('index = "FOLDER/simple"\n', "2.98.0"),
        ('index = "FOLDER/simple"\npre = true\n', "2.99.0.dev20260101"),
    ],
)
def test_an_index_is_asked_only_where_the_file_says_so(tmp_path: Path, text: str, version: str) -> None:
    served = tmp_path / "simple" / "torch"
    served.mkdir(parents=True)
    wheels = [add_wheel(served, torch) for torch in ("2.98.0", "2.99.0.dev20260101")]
    (served / "index.html").write_text("".join(f'<a href="{wheel.name}">{wheel.name}</a>' for wheel in wheels))
    service = Service(tmp_path / "service", text.replace("FOLDER", tmp_path.as_uri()) + STUB_FILE)
    service.verdicts[version] = {}

    def command(given: Command, tell: Callable[[str], None]) -> CommandEnd:
        return run(given, tell) if "pip" in given.words else service.command(given)

    def make(wheel: Wheel, folder: Path, index: Index) -> Interpreter:
        assert index
        return service.install(wheel, folder, index=False)

    day = run_day(service.fleet, service.places, DAY, lambda: datetime.now(UTC), Tools(Quiet(), make, command))
    assert (day.torch, day.new) == (version, (version,) if version else ())
    assert any("pip download ended with exit code 1" in line for line in day.lines) == ("nothing" in text)
