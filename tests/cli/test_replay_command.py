"""`ddefuzz replay`: it does not execute modules of a given folder, and its page escapes control characters."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from ddefuzz.campaign.page import replay_view
from ddefuzz.campaign.replay import Expectation, KeptCase, ReplayResult
from ddefuzz.checking.report import CaptureResult, Report
from ddefuzz.cli.main import main
from ddefuzz.cli.replay import command
from ddefuzz.errors import DatabaseError, InputError, NothingRanError
from ddefuzz.execute.protocol import EXPLICIT, Observation, ProgramSubject
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, id_of
from ddefuzz.findings.textform import write_findings
from ddefuzz.oracles.program import Trial, TriedRun, tried_of
from ddefuzz.show.blocks import Invocation
from ddefuzz.show.terminal import terminal
from tests.findings.arbitrary_findings import OTHER_PROGRAM, PROGRAM, ROLL, failure_of
from tests.in_process import InProcess

ESCAPE = "\x1b[2J"

KNOWN = Finding(
    id=id_of(ROLL.key, 1),
    signature=ROLL,
    cause="avoidable",
    failure=failure_of(ROLL),
    original=OTHER_PROGRAM,
    minimal=OTHER_PROGRAM,
)

PASSING = PROGRAM.replace("torch.chunk(x, 2)", "torch.sin(x)")


def test_a_list_in_a_given_folder_is_reported_and_not_executed(tmp_path: Path) -> None:
    (tmp_path / "trusted.toml").write_text('[[module]]\npath = "cases.py"\nexpected = "expected.json"\n')
    (tmp_path / "expected.json").write_text('{"one": {"export": {"outcome": "ok"}}}')
    (tmp_path / "cases.py").write_text("raise SystemExit")
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert isinstance(result.exception, NothingRanError)
    assert result.stderr == f"not executed without --trust: the user module {tmp_path / 'cases.py'}\n"


def test_pages_show_control_characters_and_do_not_obey_them() -> None:
    case = KeptCase(f"a{ESCAPE}.py", ProgramSubject(""), Expectation("export", kind="dde", site=f"at{ESCAPE}"))
    page = terminal(replay_view((ReplayResult(case, "fails otherwise", f"seen{ESCAPE}", ESCAPE),), Invocation()), 80)
    captured = CaptureResult(f"a{ESCAPE}", "export", "fail", 0.0, 0.0, reason=f"because{ESCAPE}")
    document = Report("target", "2.13.0", False, (captured,))
    for text in (page, document.text(80), document.text(160)):
        assert "\x1b" not in text
        assert r"\x1b[2J" in text


def test_the_sites_that_cases_reach_are_added_to_a_database(tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(
        "# ddefuzz program v1\n"
        "# expect: export/explicit ok\n"
        "# inputs: x = normal\n"
        'def program(x: Float32[Tensor, "u0 4"]):\n'
        "    return torch.cat((x, x))\n"
    )
    url = f"sqlite:///{tmp_path / 'sites.db'}"
    result = CliRunner().invoke(command, [str(tmp_path), "--sites", url, "-j", "1"])
    assert result.exit_code == 0, result.output
    with Database.open(url, create=False) as database:
        (torch,) = database.torch_versions()
        sites = database.sites(torch)
    assert sites
    assert {site.stage for site in sites} == {"export"}
    assert all("torch.cat" in site.example for site in sites)


def in_database(tmp_path: Path, *findings: Finding) -> str:
    url = f"sqlite:///{tmp_path / 'known.db'}"
    with Database.open(url) as database:
        database.put(findings)
    return url


def test_the_findings_of_a_database_are_replayed_and_counted(tmp_path: Path) -> None:
    url = in_database(tmp_path, KNOWN, msgspec.structs.replace(KNOWN, id=id_of(ROLL.key, 2), minimal=PASSING))
    result = CliRunner().invoke(command, ["--db", url, "-j", "1"])
    assert result.exit_code == 0, result.output
    *_, cases, findings, _, following, fixed = result.stdout.splitlines()
    assert cases == "4 cases: 3 as expected, 1 gone"
    assert findings == "2 findings: 1 as expected, 1 gone"
    assert following == "Next, if the pinned torch fixed it:"
    assert fixed.endswith(f"ddefuzz findings set {id_of(ROLL.key, 2)} fixed --db {url}")


def test_the_findings_of_a_database_and_of_files_are_replayed_together(tmp_path: Path) -> None:
    url = in_database(tmp_path, KNOWN)
    write_findings([KNOWN], tmp_path / "text")
    result = CliRunner().invoke(command, ["--db", url, str(tmp_path / "text"), "-j", "1", "--format", "jsonl"])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["case"] for row in rows] == [
        f"{tmp_path}/text/{KNOWN.id}/minimal.py",
        f"{tmp_path}/text/{KNOWN.id}/original.py",
        f"{KNOWN.id}/minimal.py",
        f"{KNOWN.id}/original.py",
    ]
    assert {row["finding"] for row in rows} == {KNOWN.id}
    assert result.stderr.splitlines()[-2:] == ["4 cases: 4 as expected", "1 finding: 1 as expected"]


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--db", f"sqlite:///{tmp_path / 'none.db'}"])
    assert isinstance(result.exception, DatabaseError | InputError)
    assert not (tmp_path / "none.db").exists()


def test_a_mismatch_of_a_database_is_shown_by_its_finding() -> None:
    case = KeptCase(
        "dde-0/minimal.py", ProgramSubject(""), Expectation("export", kind="dde"), "dde-0", "sqlite:///a.db"
    )
    page = terminal(replay_view((ReplayResult(case, "fails otherwise", "seen"),), Invocation()), 80)
    assert page.endswith("1 finding: 1 fails otherwise\n\nNext:\n  ddefuzz findings show dde-0 --db sqlite:///a.db\n")


def test_nothing_to_replay_names_what_is_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        NothingRanError, match=f"found no folder corpora or findings in {re.escape(str(tmp_path))}, exp"
    ):
        CliRunner().invoke(command, [], catch_exceptions=False)


def test_a_case_that_cannot_be_used_does_not_end_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("# ddefuzz program v1\n(\n")
    (tmp_path / "b.py").write_text(PROGRAM.replace("\n", "\n# expect: export/explicit ok\n", 1))
    (tmp_path / "c.py").write_text(PASSING.replace("\n", "\n# expect: export/explicit ok\n", 1))

    def run(trial: Trial) -> TriedRun:
        assert isinstance(trial.run.subject, ProgramSubject)
        if "chunk" in trial.run.subject.text:
            raise InputError("found no way to build it")
        return tried_of(Observation("export", EXPLICIT, "ok"))

    monkeypatch.setattr("ddefuzz.campaign.replay.judge_run", run)
    monkeypatch.setattr("ddefuzz.campaign.replay.Pool", InProcess)
    monkeypatch.setattr("sys.argv", ["ddefuzz", "replay", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert "2 cases: 1 as expected, 1 not judged" in shown.out
    first, second = shown.err.splitlines()[-2:]
    assert first.startswith(f"ddefuzz: left out (1 of 2): {tmp_path}/a.py:")
    assert second == f"ddefuzz: left out (2 of 2): {tmp_path}/b.py@export/explicit: found no way to build it"
