"""Every command that reports, in every format: what is written can be read, and has each result."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import rich_click as click

from ddefuzz.campaign.page import replay_report, run_report
from ddefuzz.campaign.replay import Expectation, KeptCase, ReplayResult
from ddefuzz.cli.check import command as check
from ddefuzz.cli.diff import command as diff
from ddefuzz.cli.matrix import command as matrix
from ddefuzz.cli.replay import command as replay
from ddefuzz.cli.report import command as report
from ddefuzz.cli.run import command as run
from ddefuzz.cli.sweep import command as sweep
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.findings.textform import read_finding
from ddefuzz.repro.run import ScriptResult
from ddefuzz.show.findings import findings_report, scripts_report
from ddefuzz.show.record import Report
from ddefuzz.show.table import FORMATS, NAMES
from ddefuzz.sweep.census import sweep_report
from ddefuzz.versions.model import Cell, Interpreter, Line
from ddefuzz.versions.page import matrix_report
from tests.cli.test_check_report import checked
from tests.cli.test_run_page import SUMMARY
from tests.cli.test_sweep import CENSUS
from tests.show.test_formats import checked_sarif

FINDING = read_finding(Path(__file__).parents[2] / "findings" / "dde-08f7b02bbb")
SEEN = tuple(msgspec.structs.replace(one, finding=FINDING.id) for one in SUMMARY.findings[:1])
CASE = KeptCase("a.py@export/explicit", ProgramSubject("x"), Expectation("export", kind="dde"), "")
INTERPRETERS = (Interpreter("old", "python", "2.6.0"), Interpreter("new", "python", "2.13.0", full=True))
LINE = Line(FINDING.id, FINDING.title, {"old": Cell("passes", 0), "new": Cell("fails", 1)}, FINDING.id)

REPORTS: dict[str, Callable[[Path], Report]] = {
    "check": checked,
    "matrix": lambda _: matrix_report([LINE], INTERPRETERS),
    "replay": lambda _: replay_report([ReplayResult(CASE, "fails otherwise", "export/explicit ok")], "2.13.0"),
    "replay --scripts": lambda _: scripts_report([ScriptResult(FINDING.id, "passes")], [FINDING], "2.13.0"),
    "report": lambda _: findings_report([FINDING], "2.13.0", lambda _finding: True),
    "run": lambda _: run_report(msgspec.structs.replace(SUMMARY, findings=SEEN), [FINDING]),
    "sweep": lambda _: sweep_report(CENSUS),
}
"""A report of each command, from records of its own. Nothing is run."""


def of_json(text: str, _report: Report) -> None:
    json.loads(text)


def of_jsonl(text: str, made: Report) -> None:
    assert len([json.loads(line) for line in text.splitlines()]) == len(made.records) > 0


def of_markdown(text: str, made: Report) -> None:
    assert text.startswith("## ")
    assert all(f"{number} {outcome}" in text for outcome, number in made.counts.items())


def of_html(text: str, _report: Report) -> None:
    assert text.startswith("<!doctype html>")
    assert not [word for word in ("<script", "src=", "@import", "<link") if word in text]


def of_junit(text: str, made: Report) -> None:
    assert [case.get("name") for case in ET.fromstring(text).iter("testcase")] == [one.id for one in made.results]


def of_sarif(text: str, made: Report) -> None:
    assert len(checked_sarif(text)["runs"][0]["results"]) == made.counts.get("failed", 0)


def of_github(text: str, made: Report) -> None:
    *errors, summary = text.splitlines()
    assert len(errors) == made.counts.get("failed", 0) < 10
    assert all(line.startswith("::error") for line in errors)
    assert summary.startswith("::notice")


def of_csv(text: str, made: Report) -> None:
    assert [row["id"] for row in csv.DictReader(io.StringIO(text))] == [one.id for one in made.results]


READ: dict[str, Callable[[str, Report], None]] = {
    "json": of_json,
    "jsonl": of_jsonl,
    "markdown": of_markdown,
    "html": of_html,
    "junit": of_junit,
    "sarif": of_sarif,
    "github": of_github,
    "csv": of_csv,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("command", REPORTS)
def test_a_report_of_each_command_can_be_read(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = REPORTS[command](tmp_path)
    assert made.results
    text = next(one for one in FORMATS if one.name == name).write(made)
    READ[name](text, made)
    assert str(tmp_path) not in text


@pytest.mark.parametrize("command", [check, diff, matrix, replay, report, run, sweep])
def test_each_command_takes_each_format(command: click.Command) -> None:
    (option,) = (one for one in command.params if one.name == "format_")
    assert isinstance(option.type, click.Choice)
    assert set(NAMES) <= set(option.type.choices)
