"""A new decision is one row of `DECISIONS`: the command line, `triage` and the dashboard have it."""

from __future__ import annotations

from pathlib import Path

import pytest
import rich_click as click
from click.testing import CliRunner

from ddefuzz.cli import triage
from ddefuzz.cli.findings import commands
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import DECISIONS, By, Decision, Value, changed, note
from ddefuzz.findings.model import Finding
from ddefuzz.web import decision_forms
from ddefuzz.web.decision_forms import actions_of
from tests.findings.arbitrary_findings import CHUNK, START, sighting
from tests.web.served import client_of, form_token


def escalate(finding: Finding, typed: str, by: By) -> Finding:
    return note(changed(finding, by, priority="high"), typed, by)


ESCALATE = Decision(
    "escalate",
    "command",
    "Ask for a fix soon.",
    escalate,
    sentence=lambda _before, after: f"priority {after.priority}",
    value=Value("text", "whom it stops", input="lines"),
    key="e",
    title="ask for a fix soon",
    button="Escalate",
    fits=lambda finding: finding.priority != "high",
)

ROWS = (*DECISIONS, ESCALATE)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    opened = Database.open(f"sqlite:///{tmp_path / 'a.db'}")
    opened.record(sighting(), START)
    return opened


def check(database: Database, who: str) -> None:
    finding = database.get(CHUNK.key)
    assert (finding.priority, [(one.who, one.text) for one in finding.notes]) == ("high", [(who, "our users")])
    database.close()


def test_it_is_a_command(database: Database) -> None:
    group = click.Group("findings", {command.name or "": command for command in commands(ROWS)})
    words = ["escalate", CHUNK.key, "our users", "--by", "ada", "--db", str(database.url)]
    ended = CliRunner().invoke(group, words, catch_exceptions=False)
    assert (ended.exit_code, "priority high" in ended.stderr) == (0, True)
    assert "Ask for a fix soon." in CliRunner().invoke(group, ["--help"]).output
    check(database, "ada")


def test_it_is_a_key(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(triage.KEYS, "e", ESCALATE)
    words = ["--by", "ada", "--db", str(database.url)]
    ended = CliRunner().invoke(triage.command, words, input="e our users\n", catch_exceptions=False)
    assert "e escalate" in ended.stderr
    check(database, "ada")


def test_it_is_a_form(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(decision_forms.ACTIONS, "escalate", actions_of(ROWS)["escalate"])
    client = client_of(database)
    page = client.get(f"/findings/{CHUNK.key}").text
    assert "<summary>ask for a fix soon</summary>" in page
    sent = {"form_token": form_token(client), "by": "bo", "text": "our users"}
    assert client.post(f"/findings/{CHUNK.key}/escalate", data=sent).status_code == 303
    assert "Escalate" not in client.get(f"/findings/{CHUNK.key}").text
    check(database, "bo")
