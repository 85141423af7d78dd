"""`ddefuzz report`, and the reports of replays."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddefuzz.campaign.page import replay_report
from ddefuzz.campaign.replay import Expectation, KeptCase, ReplayResult, Status
from ddefuzz.cli.report import command
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By, set_state
from ddefuzz.findings.textform import read_finding
from ddefuzz.show.table import FORMATS
from tests.findings.arbitrary_findings import CHUNK, ROLL, START, sighting

ROOT = Path(__file__).parents[2]
DIFF = "dde-08f7b02bbb"


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/ddefuzz.db"
    with Database.open(found) as database:
        for signature in (CHUNK, ROLL):
            database.record(sighting(signature), START)
        database.decide(ROLL.key, lambda finding: set_state(finding, "triaged", By("ada", START)))
        database.put([read_finding(ROOT / "findings" / DIFF)])
    return found


def report(url: str, *args: str) -> Result:
    return CliRunner().invoke(command, [*args, "--db", url], catch_exceptions=False)


@pytest.mark.parametrize("name", [one.name for one in FORMATS])
def test_every_format_can_be_written(url: str, name: str) -> None:
    assert report(url, "--format", name).stdout


def test_new_findings_fail_and_reviewed_ones_are_known(url: str) -> None:
    suite = ET.fromstring(report(url, "--format", "junit").stdout)[0]
    tags = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert tags == {CHUNK.key: ["failure"], ROLL.key: ["skipped"], DIFF: ["skipped"]}
    log = json.loads(report(url, "--format", "sarif").stdout)
    assert [result["partialFingerprints"] for result in log["runs"][0]["results"]] == [
        {"ddefuzz/signature/v1": CHUNK.key}
    ]


def test_an_issue_has_what_pytorch_asks_for(url: str) -> None:
    text = report(url, DIFF, "--format", "issue").stdout
    for part in (
        "label: topic: fuzzer",
        "### 🐛 Describe the bug",
        "return torch.diff(x)",
        "GuardOnDataDependentSymNode",
        "`at::native::diff_helper`, which evaluates `u0 < 1`",
        "With all sizes static the same program is captured",
        "### Versions",
    ):
        assert part in text
    assert "ddefuzz.program" not in text


@pytest.mark.parametrize("name", ["unittest", "exportdb"])
def test_code_for_pytorch_is_python(url: str, name: str) -> None:
    text = report(url, DIFF, "--format", name).stdout
    ast.parse(text)
    assert ("unittest.expectedFailure" in text) == (name == "unittest")


@pytest.mark.slow
def test_the_unit_test_runs_and_fails_as_expected(url: str, tmp_path: Path) -> None:
    path = tmp_path / "test_diff.py"
    path.write_text(report(url, DIFF, "--format", "unittest").stdout)
    # With CI set, torch's run_tests() writes JUnit by a package that torch does not require.
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    ran = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=300, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    assert "expected failures=1" in ran.stderr


@pytest.mark.slow
def test_the_example_for_exportdb_can_be_loaded(url: str) -> None:
    namespace: dict[str, object] = {}
    exec(report(url, DIFF, "--format", "exportdb").stdout, namespace)
    model, arguments = namespace["model"], namespace["example_args"]
    assert callable(model)
    assert isinstance(arguments, tuple)
    assert tuple(model(*arguments).shape) == (5,)


def test_an_issue_needs_a_finding(url: str) -> None:
    with pytest.raises(InputError, match="--format issue: found no ID"):
        report(url, "--format", "issue")


@pytest.mark.parametrize(
    ("status", "kind", "outcome"),
    [
        ("as expected", "dde", "known"),
        ("as expected", None, "passed"),
        ("gone", "dde", "passed"),
        ("fails otherwise", "dde", "failed"),
        ("fails", None, "failed"),
        ("not judged", "dde", "failed"),
    ],
)
def test_the_outcome_of_a_replayed_case(status: Status, kind: str | None, outcome: str) -> None:
    case = KeptCase("a.py@export/explicit", ProgramSubject("x"), Expectation("export", kind=kind), "")
    (result,) = replay_report([ReplayResult(case, status, "export/explicit ok")], "2.13.0").results
    assert (result.outcome, result.rule) == (outcome, kind or "replay")


def test_a_case_that_is_gone_fails_if_asked() -> None:
    case = KeptCase("a.py@export/explicit", ProgramSubject("x"), Expectation("export", kind="dde"), "")
    (result,) = replay_report([ReplayResult(case, "gone", "export/explicit ok")], "2.13.0", gone=True).results
    assert result.outcome == "failed"
