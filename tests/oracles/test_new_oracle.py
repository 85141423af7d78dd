"""A new oracle is one file and one row: that here reports programs that are captured again when they are called, and
`toy_oracle.py` brings a stage of its own.

The rest of ddefuzz judges, locates, stores, shows and replays its failures without being changed.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner

import ddefuzz
from ddefuzz.campaign.replay import compare, finding_cases, kept_cases, trial_of
from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Site
from ddefuzz.cli.findings import command
from ddefuzz.execute.protocol import EXPLICIT, Call, CallEnd, Observation, Run, Runner
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import sighting
from ddefuzz.findings.textform import read_findings, write_findings
from ddefuzz.oracles import table
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.oracle import KindRow, Oracle, OwnStage
from ddefuzz.oracles.program import Suspect, TriedRun, judge_program, kept, shows, suspect_of
from ddefuzz.oracles.table import ORACLES, classified
from ddefuzz.show.table import NAMES

PACKAGE = Path(ddefuzz.__file__).parent
TEXT = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    return torch.relu(x)
"""
NOW = datetime(2025, 1, 31, 12, tzinfo=UTC)


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    again = [call for call in seen.observation.calls if call.recompiled]
    return tuple(Failure("captured-again", seen.observation, f"at size {one.size}", one.size) for one in again[:1])


def locate(failure: Failure, seen: OracleInput, runner: Runner) -> Location:
    return Location(Site("op", None, "torch.relu"), None, f"size {failure.size}")


def keep(failure: Failure) -> Failure:
    calls = tuple(call for call in failure.observation.calls if call.recompiled)
    return Failure(failure.kind, Observation("aot", EXPLICIT, "ok", calls=calls), failure.evidence, failure.size)


TOY = Oracle(
    "toy",
    "a call captures a program again",
    {"captured-again": KindRow("a call captures it again", "{site} is captured again {evidence}", locate)},
    judge,
    ("1", "2"),
    keep,
)


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ORACLES", (ORACLES[0], TOY))
    monkeypatch.setattr(table, "NAMES", ("capture", "toy"))


def runner(run: Run) -> Observation:
    calls = tuple(Call(size, CallEnd(), CallEnd(), "same", recompiled=size == "2") for size in run.calls)
    return Observation(run.stage, run.semantics, "ok", calls=calls)


def test_it_judges_and_a_smaller_program_can_show_its_failure() -> None:
    (judged,) = judge_program(TEXT, ("aot",), (EXPLICIT,), runner, oracles=("capture", "toy"))
    (found,) = judged.failures
    assert str(found.signature) == "captured-again at torch.relu [size 2]"
    assert (found.cause, found.rule) == ("wrong-capture", "toy")
    assert [call.size for call in judged.observation.calls] == ["1", "2"]
    suspect = suspect_of(TEXT, found.signature, kept(found.failure))
    assert suspect == Suspect(TEXT, found.signature, "aot", EXPLICIT, ("2",))
    assert shows(suspect, TEXT, runner) is not None
    assert shows(suspect, TEXT, lambda run: Observation(run.stage, run.semantics, "ok")) is None


def test_its_finding_is_stored_shown_and_replayed(tmp_path: Path) -> None:
    (judged,) = judge_program(TEXT, ("aot",), (EXPLICIT,), runner, oracles=("toy",))
    url = f"sqlite:///{tmp_path}/ddefuzz.db"
    with Database.open(url) as database:
        name = database.record(sighting(judged.failures[0], TEXT, judged.verdict, "2.13.0"), NOW).finding_id
        database.set_minimal(name, TEXT, steps=1, attempts=1)
        database.set_confirmed(name, 1, 1, kept(judged.failures[0].failure))
        (finding,) = database.findings()
    assert finding.title == "torch.relu is captured again at size 2"

    write_findings([finding], tmp_path / "findings")
    assert read_findings(tmp_path / "findings", NOW) == (finding,)
    page = CliRunner().invoke(command, ["show", name, "--db", url], catch_exceptions=False).output
    assert "captured-again" in page
    assert "torch.relu is captured again at size 2" in page

    cases = (*finding_cases([finding], url), *kept_cases([tmp_path / "findings"]))
    assert len(cases) == 4
    for case in cases:
        trial = trial_of(case)
        assert (trial.run.calls, trial.oracles) == (("2",), ("capture", "toy"))
        seen = runner(trial.run)
        failures = classified(OracleInput(TEXT, seen), runner, trial.oracles)
        assert compare(case, TriedRun(seen, failures)).status == "as expected"
        assert compare(case, TriedRun(seen)).status == "gone"


COMMANDS = """\
import json
from click.testing import CliRunner
from ddefuzz.cli.main import cli
from ddefuzz.findings.database import Database
from ddefuzz.show.table import NAMES
from tests.web.served import client_of

db, found = "sqlite:///a.db", {}

def named(words):
    return words.replace(found.get("id") or "?", "ID").replace(" --db sqlite:///a.db", "")

def ran(*words):
    result = CliRunner().invoke(cli, words)
    found[named(" ".join(words))] = [result.exit_code, result.output]
    return result.stdout

ran("run", "--help")
ran(*"run --stage export --oracle toy --budget 43x --seed 1 -j 1 --db".split(), db)
listed = ran("findings", "list", "--db", db, "--kind", "calls-twice", "--format", "json")
name = found["id"] = json.loads(listed)[0]["id"]
for format in NAMES:
    ran("report", name, "--db", db, "--format", format)
for words in ((), ("--repro",), ("--snippet",)):
    ran("findings", "show", name, "--db", db, *words)
open("script.py", "w").write(found["findings show ID --repro"][1])
ran("report", name, "--db", db, "--format", "issue")
ran("minimize", name, "--db", db)
ran("findings", "export", "out", "--db", db)
ran("replay", f"out/{name}")
with Database.open(db) as database:
    client = client_of(database)
    for path in ("/", f"/findings/{name}", f"/findings/{name}?format=json", "/findings?oracle=toy&stage=dispatch"):
        found[named(path)] = [client.get(path).status_code, client.get(path).text]
json.dump(found, open("found.json", "w"))
"""


Said: TypeAlias = dict[str, tuple[int, str]]
"""The exit code, or the status, and the text that each command and page answered. `ID` is that of the finding."""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What a package says to which one file and one line were added."""
    folder = tmp_path_factory.mktemp("new")
    shutil.copytree(PACKAGE, folder / "ddefuzz", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(__file__).with_name("toy_oracle.py"), folder / "ddefuzz/oracles/toy.py")
    rows = folder / "ddefuzz/oracles/table.py"
    rows.write_text(rows.read_text().replace('    "keys",\n', '    "keys",\n    "toy",\n', 1))
    found = in_folder(folder, {"PYTHONPATH": f"{folder}:{PACKAGE.parent}"}, "-c", COMMANDS)
    assert found.returncode == 0, found.stderr
    by_command: Said = json.loads((folder / "found.json").read_text())
    script = in_folder(folder, {}, "script.py")
    return {**by_command, "the script": (script.returncode, script.stdout)}


def in_folder(folder: Path, more: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.long
def test_an_oracle_with_its_own_stage_is_one_file_and_one_line(said: Said) -> None:
    title = "is called again: "
    assert "toy (a program calls an op of ATen twice)" in " ".join(said["run --help"][1].split())
    campaign = next(text for words, (_, text) in said.items() if words.startswith("run --stage"))
    assert "calls-twice-" in campaign, "it is scheduled and judged"
    assert "shown in 3/3 fresh processes" in said["minimize ID"][1], "it is minimized, and confirmed"
    assert "2 as expected" in said["replay out/ID"][1], "it is stored as text"
    assert said["the script"][0] == 1
    assert json.loads(said["the script"][1])["verdict"] == "shows"
    assert said["findings show ID --snippet"][1].startswith("# aten.")
    assert "called twice" in said["findings show ID"][1], "with what it measured"
    assert "seen in eager's dispatcher" in said["report ID --format issue"][1]
    for name in NAMES:
        code, text = said[f"report ID --format {name}"]
        assert (code, title in text or title in text.replace("\\_", "_")) == (0, True), name
    for page in ("/findings/ID", "/findings/ID?format=json", "/findings?oracle=toy&stage=dispatch"):
        assert (said[page][0], title in said[page][1]) == (200, True), page


@pytest.mark.slow
@pytest.mark.parametrize(
    "stage", [stage for oracle in ORACLES for stage in oracle.stages], ids=lambda stage: stage.name
)
def test_each_stage_of_an_oracle_is_named_in_one_file(stage: OwnStage) -> None:
    files = {file for file, texts in texts_in_files().items() if stage.name in texts}
    elsewhere = OTHER_WORD if stage.name == "key" else ()
    assert len([file for file in files if not file.startswith(elsewhere)]) == 1, files


@cache
def texts_in_files() -> dict[str, set[str]]:
    """The texts in the code of each file of the package."""
    return {
        path.relative_to(PACKAGE).as_posix(): {
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        for path in PACKAGE.rglob("*.py")
    }


OTHER_WORD = ("checking/", "cli/", "execute/protocol.py", "findings/", "show/", "web/")
"""Where `key` is the name of a column, or the tag of a record."""
