"""A service whose commands are stubs: they write what the real ones do, and a line to a log. No torch."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from click.testing import CliRunner

from ddefuzz.cli import matrix
from ddefuzz.errors import UnsupportedError
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Progress, stamp
from ddefuzz.fleet.day import Tools, run_day
from ddefuzz.fleet.model import Day, DayReport, read_fleet
from ddefuzz.fleet.work import Command, CommandEnd
from ddefuzz.versions.diff import Difference
from ddefuzz.versions.model import Interpreter
from ddefuzz.versions.wheels import Index, Wheel
from tests.findings.arbitrary_findings import sighting
from tests.versions.interpreters import interpreter

FILE: Final = """\
wheels = "wheels"
budget = "1000cpu"
jobs = 1
hook = ["notify", "--all"]
"""


class Quiet:
    """Progress that nobody reads."""

    def say(self, line: str) -> None:
        """Nothing."""

    def update(self, line: str, *, is_last: bool = False) -> None:
        """Nothing."""


class Service:
    """A folder with a file and wheels. `verdicts` are what the scripts of findings say, by version and finding. `codes`
    are exit codes of commands that leave something out, and `silent` of commands that write no document."""

    def __init__(self, folder: Path, text: str = FILE) -> None:
        self.folder = folder
        self.wheels = folder / "wheels"
        self.wheels.mkdir(parents=True, exist_ok=True)
        self.verdicts: dict[str, dict[str, str]] = {}
        self.broken: dict[str, str] = {}
        self.codes: dict[str, int] = {}
        self.silent: dict[str, int] = {}
        (folder / "fleet.toml").write_text(text, encoding="utf-8")
        self.fleet, self.places = read_fleet(folder / "fleet.toml")

    def add_wheel(self, torch: str, **verdicts: str) -> None:
        """Put a wheel, which is never opened, into the folder."""
        (self.wheels / f"torch-{torch}-py3-none-any.whl").touch()
        self.verdicts[torch] = verdicts

    def database(self) -> Database:
        """The database of the service."""
        return Database.open(self.places.db)

    def log(self) -> list[str]:
        """What was run."""
        path = self.folder / "ran"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def note(self, line: str) -> None:
        """Add a line to the log."""
        with (self.folder / "ran").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def run(
        self,
        day: str,
        at_step: Callable[[str, str], None] = lambda name, moment: None,
        at_command: Callable[[str], None] = lambda name: None,
    ) -> Day:
        """Run a day."""

        def command(given: Command, tell: Callable[[str], None]) -> CommandEnd:
            tell("")
            ended = self.command(given)
            at_command(given.words[4] if "ddefuzz" in given.words else given.words[0])
            return ended

        return run_day(
            self.fleet,
            self.places,
            day,
            lambda: datetime.now(UTC),
            Tools(Quiet(), self.install, command, at_step),
        )

    def install(self, wheel: Wheel, folder: Path, index: Index) -> Interpreter:
        """An environment with an interpreter that only answers."""
        assert index is False
        self.note(f"install {wheel.torch}")
        if reason := self.broken.get(wheel.torch):
            raise UnsupportedError(f"{wheel.path.name}: cannot be imported: {reason}")
        folder.mkdir(parents=True)
        return Interpreter(wheel.torch, interpreter(folder, wheel.torch, **self.verdicts[wheel.torch]), wheel.torch)

    def command(self, given: Command) -> CommandEnd:
        """What a command would do, at once."""
        words = list(given.words)
        if "ddefuzz" not in words:
            self.note(" ".join(Path(word).name for word in words))
            return CommandEnd(0, 0.0, False, "")
        name, torch = words[4], words[0].rpartition("python-")[2]
        output = Path(words[words.index("--output") + 1].removeprefix("json="))
        options = [word for word in words if word in ("--resume", "--close")]
        self.note(" ".join([name, torch, *options]))
        if name in self.silent:
            return CommandEnd(self.silent[name], 1.0, False, "No module named ddefuzz")
        stubs = {"sweep": self.sweep, "run": self.campaign, "diff": self.diff, "matrix": self.matrix}
        code, document = stubs[name](torch, words)
        output.write_text(json.dumps(msgspec.to_builtins(document)), encoding="utf-8")
        if name in self.codes:
            return CommandEnd(self.codes[name], 10.0, False, "ddefuzz: left out (1 of 1): x")
        return CommandEnd(code, 10.0, False, "")

    def sweep(self, torch: str, words: list[str]) -> tuple[int, object]:
        """Nothing is swept."""
        del torch, words
        return 0, {"totals": {"ops": 12, "explicit": {"dde": 2, "ok": 10}}, "interrupted": False}

    def campaign(self, torch: str, words: list[str]) -> tuple[int, object]:
        """A campaign with one finding."""
        with self.database() as database:
            now = datetime.now(UTC)
            if "--resume" in words:
                number = database.unfinished()[0].id
            else:
                seed, profile = (words[words.index(word) + 1] for word in ("--seed", "--profile"))
                number = database.start_campaign(
                    profile=profile, seed=int(seed), generator=f"ddefuzz torch={torch}", options={}, when=now
                )
            database.record(sighting(torch=torch), now, number)
            counts = Progress(
                when=stamp(now), cases=7, seconds=1, cpu_seconds=10, fallback_sites=1, dde_sites=1, findings=1
            )
            database.add_progress(number, counts)
            database.finish_campaign(number, now)
        return 0, {}

    def diff(self, torch: str, words: list[str]) -> tuple[int, object]:
        """One program differs."""
        del torch
        old, new = (word.partition("=")[0] for word in words[5:7])
        row = Difference(id="a", kind="changed answer", what="a.py:f", old=f"{old} True", new=f"{new} False", cases=3)
        return 1, {"cases": 30, "differences": [msgspec.to_builtins(row)]}

    def matrix(self, torch: str, words: list[str]) -> tuple[int, object]:
        """The real command: its scripts run under interpreters that only answer."""
        del torch
        ended = CliRunner().invoke(matrix.command, words[5:], catch_exceptions=False)
        return ended.exit_code, {}

    def report(self, day: str) -> DayReport:
        """The report of a day."""
        return msgspec.json.decode(self.places.of_day(day, "report.json").read_bytes(), type=DayReport)


def killed(run: Callable[[], object]) -> int:
    """Run this in a fork, which may be killed. How the fork ended (`os.waitstatus_to_exitcode`)."""
    process = os.fork()
    if not process:
        try:
            run()
            os._exit(0)
        except BaseException:  # noqa: BLE001 the fork must not go on as pytest
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def kill() -> None:
    """End this process as the kernel does."""
    os.kill(os.getpid(), signal.SIGKILL)
