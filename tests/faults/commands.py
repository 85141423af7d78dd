"""The commands of the fault matrix: what they are given, their moments, and what they have recorded."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from ddefuzz.checking.study import ModelResult
from ddefuzz.findings.database import Database
from ddefuzz.findings.textform import write_findings
from tests.findings.arbitrary_findings import CHUNK, ROLL, START, sighting

ANSWER_SECONDS: Final = 20.0
"""How long a person waits for a page."""

HELD: Final = (sys.executable, "-m", "tests.faults.held")

USER = """import torch
def fine(x): return x + 1
def lists(x): return x[: int(x.sum())]
CASES = [
    dict(id=name, fn=fn, args=lambda: (torch.ones(4),)) for name, fn in (("one", fine), ("two", lists), ("three", fine))
]
"""

MODELS = """import torch
def fine(x): return x + 1
def again(x): return x * 2
fine_args = (torch.ones(3),)
again_args = (torch.ones(3),)
"""


class Place(NamedTuple):
    """Where one command runs: its folder, and the URL of its database."""

    folder: Path
    url: str

    @property
    def path(self) -> Path:
        """The file of the database."""
        return self.folder / "ddefuzz.db"

    @property
    def temporary(self) -> Path:
        """The folder for temporary files."""
        return self.folder / "tmp"

    def recorded(self) -> dict[str, int]:
        """How much the database has of each finding, guard site, swept op and note. Empty if there is none."""
        if self.url.startswith("sqlite") and not self.path.exists():
            return {}
        with Database.open(self.url) as database:
            found = {finding.id: finding.count + len(finding.notes) for finding in database.findings()}
            for torch in database.torch_versions():
                found |= {str(site.key): site.cases + site.raised for site in database.sites(torch)}
            return found

    def recorded_campaign(self) -> bool:
        """Whether there is a campaign to resume."""
        if self.url.startswith("sqlite") and not self.path.exists():
            return False
        with Database.open(self.url) as database:
            return bool(database.unfinished())


class Command(NamedTuple):
    """A command. `moments` are those of `held.MOMENT`; `again` is what a user types after an interruption.

    `made` makes what the command needs, `results` reads what it printed.
    """

    name: str
    words: tuple[str, ...]
    moments: Mapping[str, str]
    made: Callable[[Place], None]
    results: Callable[[Place, str], dict[str, str]]
    has_workers: bool = False
    has_database: bool = True
    again: tuple[str, ...] = ()


def _nothing(place: Place) -> None:
    del place


def _user_code(place: Place) -> None:
    (place.folder / "user.py").write_text(USER)


def _models(place: Place) -> None:
    (place.folder / "models").mkdir()
    (place.folder / "models" / "m.py").write_text(MODELS)


def _one_finding(place: Place) -> None:
    with Database.open(place.url) as database:
        database.record(sighting(CHUNK), START)


def _text_form(place: Place) -> None:
    _one_finding(place)
    with Database.open(f"sqlite:///{place.folder / 'other.db'}") as database:
        database.record(sighting(ROLL, ops=("torch.roll",)), START)
        write_findings(database.findings(), place.folder / "text")


def _no_results(place: Place, stdout: str) -> dict[str, str]:
    del place, stdout
    return {}


def _of_run(place: Place, stdout: str) -> dict[str, str]:
    """The counts of the summary that do not depend on which case is done first."""
    del place
    found = json.loads(stdout)
    names = ("digests", "sites", "outcomes", "verdicts", "calls", "lost")
    seen = {one["finding"]: f"{one['cases']} {one['is_new']}" for one in found["findings"]}
    return {**{name: json.dumps(found[name]) for name in names}, **seen}


def _of_sweep(place: Place, stdout: str) -> dict[str, str]:
    del place
    return {row["op"]: row["explicit"] for row in json.loads(stdout)["rows"]}


def _of_check(place: Place, stdout: str) -> dict[str, str]:
    del place
    return {f"{one['case']} {one['stage']}": one["outcome"] for one in json.loads(stdout)["captures"]}


def _of_study(place: Place, stdout: str) -> dict[str, str]:
    del stdout
    lines = (place.folder / "rows.jsonl").read_bytes().splitlines()
    rows = (msgspec.json.decode(line, type=ModelResult) for line in lines)
    return {row.name: f"{row.check} {row.plain.error} {row.draft.error}" for row in rows}


COMMANDS: Final = {
    one.name: one
    for one in (
        Command(
            "run",
            (
                *("run", "--stage", "export", "--format", "json", "--seed", "7", "--max-examples", "6"),
                *("--no-minimize", "-j", "1", "--fail-on", "never", "--db", "{url}"),
            ),
            {"start": "task 0", "middle": "task 5", "end": "task 6"},
            _nothing,
            _of_run,
            has_workers=True,
            again=("--resume",),
        ),
        Command(
            "sweep",
            ("sweep", "--ops", "cov", "--ops", "ceil", "-j", "1", "--format", "json", "--db", "{url}"),
            {"start": "task 0", "middle": "task 3", "end": "task 4"},
            _nothing,
            _of_sweep,
            has_workers=True,
        ),
        Command(
            "check",
            ("check", "user.py", "--stage", "export", "--no-advice", "-j", "1", "--format", "json"),
            {"start": "task 0", "middle": "task 4", "end": "task 6"},
            _user_code,
            _of_check,
            has_workers=True,
            has_database=False,
        ),
        Command(
            "study",
            ("study", "--models", "models", "--group", "own", "--format", "json", "--keep", "rows.jsonl"),
            {"start": "task 0", "middle": "task 5", "end": "task 9"},
            _models,
            _of_study,
            has_workers=True,
            has_database=False,
        ),
        Command(
            "serve",
            ("serve", "--port", "0", "--db", "{url}"),
            {"start": "opened", "middle": "writing", "end": "never"},
            _one_finding,
            _no_results,
        ),
        Command(
            "import",
            ("findings", "import", "text", "--db", "{url}"),
            {"start": "opened", "middle": "writing", "end": "saved"},
            _text_form,
            _no_results,
        ),
        Command(
            "merge",
            ("findings", "merge", "other.db", "--db", "{url}"),
            {"start": "opened", "middle": "writing", "end": "saved"},
            _text_form,
            _no_results,
        ),
    )
}
MOMENTS: Final = ("start", "middle", "end")


class Browser:
    """Reads and writes a finding of a dashboard, as a person does."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def read(self) -> tuple[int, str]:
        """The status, and the page of the finding as JSON or what is wrong."""
        return self._ask(f"/findings/{CHUNK.key}?format=json")

    def note(self, text: str) -> tuple[int, str]:
        """Add a note. The status is 200 of the page that follows."""
        _, page = self._ask(f"/findings/{CHUNK.key}")
        token = re.search(r'name="form_token" value="(\w+)"', page)
        fields = {"form_token": token[1] if token else "", "text": text, "by": "ada"}
        return self._ask(f"/findings/{CHUNK.key}/note?format=json", urllib.parse.urlencode(fields).encode())

    def _ask(self, path: str, data: bytes | None = None) -> tuple[int, str]:
        try:
            with self._opener.open(self.address + path, data, ANSWER_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)


def intact(path: Path) -> bool:
    """Whether SQLite finds nothing wrong with a database."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()
