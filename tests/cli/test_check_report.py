"""The results of `ddefuzz check` and `ddefuzz sweep` in the formats of all reports."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ddefuzz.checking.problems import problems_of
from ddefuzz.checking.record import report_record
from ddefuzz.checking.report import Report as CheckReport
from ddefuzz.checking.report import captures_of
from ddefuzz.execute.protocol import EXPLICIT, Observation
from ddefuzz.show.record import Report
from ddefuzz.show.table import FORMATS
from ddefuzz.sweep.census import sweep_report
from tests.checking.test_check_rows import BRANCH, EAGER, FAILED, SAME, runs
from tests.cli.test_sweep import CENSUS

WRITERS = {one.name: one.write for one in FORMATS}


def checked(folder: Path) -> Report:
    (folder / "model.py").write_text("")
    own = Observation("export", EXPLICIT, "fail", exceptions=FAILED.exceptions, raised=BRANCH)
    passing = Observation("compile", EXPLICIT, "ok", calls=(SAME,))
    case = runs(EAGER, own, passing)
    return report_record(
        CheckReport("model.py:f", "2.13.0", False, captures_of(case)[1:], problems_of(case)), "ddefuzz check"
    )


def test_a_problem_failed_and_a_capture_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = checked(tmp_path)
    passed, problem = report.results
    assert (passed.rule, passed.outcome, passed.title) == ("captured", "passed", "c, compile: captured")
    assert (problem.rule, problem.outcome, problem.path, problem.line) == ("dde", "failed", "model.py", 7)
    assert problem.title == "your code: a branch needs `u0 > 2`, which depends on data"
    assert ("module", "layers.0") in problem.facts
    assert report.counts == {"failed": 1, "passed": 1}


def test_a_problem_is_at_the_users_line_in_sarif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (run,) = json.loads(WRITERS["sarif"](checked(tmp_path)))["runs"]
    (result,) = run["results"]
    where = result["locations"][0]["physicalLocation"]
    assert (where["artifactLocation"]["uri"], where["region"]["startLine"]) == ("model.py", 7)
    assert result["ruleId"] == "dde"


def test_a_sweep_has_a_result_for_each_failure_and_each_passing_op() -> None:
    report = sweep_report(CENSUS)
    assert [(one.outcome, one.title.partition(":")[0]) for one in report.results] == [
        ("failed", "a|b<c>"),
        ("failed", "chunk"),
        ("passed", "add"),
    ]
    suite = ET.fromstring(WRITERS["junit"](report))
    assert len(list(suite.iter("testcase"))) == 3
    assert len(list(suite.iter("failure"))) == 2
