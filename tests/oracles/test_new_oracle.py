"""A new oracle is one file and one row: this one reports programs that are captured again when they are called.

The rest of ddefuzz judges, locates, stores, shows and replays its failures without being changed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddefuzz.campaign.corpus import finding_cases, kept_cases
from ddefuzz.campaign.replay import compare, trial_of
from ddefuzz.classify.chain import Located
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Site
from ddefuzz.cli.findings import command
from ddefuzz.execute.calls import Call, Ended
from ddefuzz.execute.protocol import EXPLICIT, Observation, Run, Runner
from ddefuzz.findings.database import Database
from ddefuzz.findings.sighted import sighting
from ddefuzz.findings.textform import read_findings, write_findings
from ddefuzz.oracles import table
from ddefuzz.oracles.oracle import KindRow, Oracle
from ddefuzz.oracles.program import Suspect, Tried, judge_program, kept, shows, suspect_of
from ddefuzz.oracles.seen import Seen
from ddefuzz.oracles.table import ORACLES, classified

TEXT = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    return torch.relu(x)
"""
NOW = datetime(2025, 1, 31, 12, tzinfo=UTC)


def judge(seen: Seen) -> tuple[Failure, ...]:
    again = [call for call in seen.observation.calls if call.recompiled]
    return tuple(Failure("captured-again", seen.observation, f"at size {one.size}", one.size) for one in again[:1])


def locate(failure: Failure, seen: Seen, runner: Runner) -> Located:
    return Located(Site("op", None, "torch.relu"), None, f"size {failure.size}")


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
    calls = tuple(Call(size, Ended(), Ended(), "same", recompiled=size == "2") for size in run.calls)
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
        failures = classified(Seen(TEXT, seen), runner, trial.oracles)
        assert compare(case, Tried(seen, failures)).status == "as expected"
        assert compare(case, Tried(seen)).status == "gone"
