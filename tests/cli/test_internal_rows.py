"""An exception of ddefuzz itself in one case is a row in every command and format, and the other results are there."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from ddefuzz import internal
from ddefuzz.checking.study import ModelResult, Plain
from ddefuzz.cli.main import cli
from ddefuzz.errors import EXIT_INTERNAL
from ddefuzz.execute.protocol import CallableSubject, Observation, ProgramSubject, Run
from ddefuzz.findings.database import Database
from ddefuzz.oracles import table
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.repro.run import ScriptResult
from ddefuzz.show.table import NAMES as FORMATS
from tests.findings.arbitrary_findings import ROLL, failure_of
from tests.in_process import InProcess
from tests.parameters import one_in

CASES = (
    "import torch\n\ndef call(x):\n    return x + 1\n\n"
    'CASES = [{"id": name, "fn": call, "args": lambda: (torch.ones(3),)} for name in "abc"]\n'
)

HEADER = "# ddefuzz program v1\n# inputs: x = normal\n"

POOLS = (
    "ddefuzz.checking.check.Pool",
    "ddefuzz.checking.study.Pool",
    "ddefuzz.cli.answers.Pool",
    "ddefuzz.campaign.replay.Pool",
    "ddefuzz.execute.engine.LocalWorkers",
    "ddefuzz.cli.minimize.LocalWorkers",
    "ddefuzz.sweep.recompile.Pool",
)


class OursError(Exception):
    """Raised where ddefuzz would have a bug."""


def program(function: str) -> str:
    return f'{HEADER}def program(x: Float32[Tensor, "u0=3"]):\n    return torch.{function}(x)\n'


def named(run: Run) -> str:
    """The case of a capture: `a`, `b` or `c`."""
    if run.stage == "eager":
        return ""
    match run.subject:
        case CallableSubject(case=case, name=name):
            return case or name or ""
        case ProgramSubject(text):
            return {"torch.sin": "a", "torch.cos": "b", "torch.tan": "c"}[
                text.partition("return ")[2].partition("(")[0]
            ]
        case _:
            raise AssertionError(run)


def by_hand(run: Run) -> Observation:
    """Every capture fails in torch, as if it were `torch.roll`."""
    if run.stage == "eager":
        return Observation(run.stage, run.semantics, "ok")
    return msgspec.structs.replace(failure_of(ROLL).observation, stage=run.stage)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Workers in this process, which observe by hand."""
    for name in POOLS:
        monkeypatch.setattr(name, InProcess)
    monkeypatch.setattr("ddefuzz.execute.observe.observe", by_hand)
    yield monkeypatch
    internal.take()


def only_b(seen: Callable[..., str], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which raises for the case `b` alone."""

    def replaced(*args: Any, **kwargs: Any) -> Any:
        if seen(*args) == "b":
            raise OursError("planted")
        return function(*args, **kwargs)

    return replaced


def replace(runs: pytest.MonkeyPatch, path: str, change: Callable[[Any], Any]) -> None:
    """Put a changed function in the place of one."""
    module, _, name = path.rpartition(".")
    runs.setattr(path, change(getattr(import_module(module), name)))


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def check_report(done: Result) -> str:
    """The path of the report that the row names."""
    assert done.exit_code == EXIT_INTERNAL, done.output
    (error, *_) = internal.noted()
    assert error.error == "OursError: planted"
    report = Path(error.report).read_text()
    assert "Traceback" in report
    assert "OursError: planted" in report
    return error.report


# check


@pytest.fixture
def cases(tmp_path: Path) -> str:
    path = tmp_path / "cases.py"
    path.write_text(CASES)
    return str(path)


def in_a_stage(runs: pytest.MonkeyPatch) -> None:
    runs.setattr("ddefuzz.execute.observe.observe", only_b(named, by_hand))


def in_an_oracle(runs: pytest.MonkeyPatch) -> None:
    def judge(seen: OracleInput) -> tuple[()]:
        if seen.observation.output == "b":
            raise OursError("planted")
        return ()

    def tagged(run: Run) -> Observation:
        return Observation(run.stage, run.semantics, "ok", output=named(run))

    changed = tuple(one._replace(judge=judge) if one.name == "agreement" else one for one in table.ORACLES)
    runs.setattr(table, "ORACLES", changed)
    runs.setattr("ddefuzz.execute.observe.observe", tagged)


def in_the_driver(runs: pytest.MonkeyPatch) -> None:
    from ddefuzz.checking.explain import with_experiments  # noqa: PLC0415

    failing = only_b(lambda subject, *_: str(subject.case), with_experiments)
    runs.setattr("ddefuzz.checking.check.with_experiments", failing)


@pytest.mark.parametrize("plant", [in_a_stage, in_an_oracle, in_the_driver])
def test_check(plant: Callable[[pytest.MonkeyPatch], None], runs: pytest.MonkeyPatch, cases: str) -> None:
    plain = json.loads(invoke("check", cases, "--stage", "export", "--no-advice", "--format", "json").stdout)
    internal.take()
    plant(runs)
    done = invoke("check", cases, "--stage", "export", "--no-advice", "--format", "json")
    report = check_report(done)
    found = json.loads(done.stdout)
    assert {one["report"] for one in found["errors"]} == {report}
    assert {one["where"].partition(":")[0] for one in found["errors"]} == {"b"}
    if plant is in_an_oracle:
        assert [one["outcome"] for one in found["captures"]] == ["captured"] * 3
        assert "the oracle agreement" in found["errors"][0]["where"]
        return
    for what in ("captures", "problems"):
        of_others = [[one for one in side[what] if one["case"] != "b"] for side in (plain, found)]
        assert of_others[0] == of_others[1] != []
    of_b = [one for one in found["captures"] if one["case"] == "b"]
    if plant is in_a_stage:
        assert [one["outcome"] for one in of_b] == ["not-judged"]
        assert report in of_b[0]["reason"]
    else:
        assert [one["outcome"] for one in of_b] == ["fail"]


def test_every_format_of_check_has_the_row(runs: pytest.MonkeyPatch, cases: str, tmp_path: Path) -> None:
    in_a_stage(runs)
    outputs = [word for name in FORMATS for word in ("--output", f"{name}={tmp_path / name}")]
    done = invoke("check", cases, "--stage", "export", "--no-advice", *outputs)
    report = check_report(done)
    assert "b: export: not judged: internal error, a bug of ddefuzz: OursError: planted" in done.stdout
    assert report in done.stdout
    written = {name: (tmp_path / name).read_text() for name in FORMATS}
    for name, text in written.items():
        assert Path(report).name in text.replace("\\", ""), name
    suite = ET.fromstring(written["junit"]).find("testsuite")
    assert suite is not None
    assert [case.get("name") for case in suite.iter("testcase") if case.find("error") is not None] == ["b: export"]
    assert suite.get("errors") == "1"
    (run,) = json.loads(written["sarif"])["runs"]
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert report in notification["message"]["text"]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert "::error title=internal-error b%3A export" in written["github"]
    assert [row["outcome"] for row in csv.DictReader(io.StringIO(written["csv"]))].count("error") == 1
    last = json.loads(written["jsonl"].splitlines()[-1])
    assert (last["schema"], last["status"], last["where"]) == ("ddefuzz.error/1", "not judged", "b: export")


# replay


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "cases"
    folder.mkdir()
    for name, function in (("a", "sin"), ("b", "cos"), ("c", "tan")):
        text = program(function).replace("\n", "\n# expect: export/explicit ok\n", 1)
        (folder / f"{name}.py").write_text(text)
    return folder


def in_compare(runs: pytest.MonkeyPatch) -> None:
    from ddefuzz.campaign import replay  # noqa: PLC0415

    runs.setattr(replay, "compare", only_b(lambda case, _: Path(case.id.partition(".py")[0]).name, replay.compare))


@pytest.mark.parametrize("plant", [in_a_stage, in_compare])
def test_replay(plant: Callable[[pytest.MonkeyPatch], None], runs: pytest.MonkeyPatch, folder: Path) -> None:
    plant(runs)
    done = invoke("replay", str(folder), "--jobs", "1", "--format", "json")
    report = check_report(done)
    found = json.loads(done.stdout)
    status = {Path(one["case"].partition(".py")[0]).name: one["status"] for one in found["cases"]}
    assert status == {"a": "fails", "b": "not judged", "c": "fails"}
    assert report in next(one["evidence"] for one in found["cases"] if one["status"] == "not judged")
    assert {one["report"] for one in found["errors"]} == {report}


def test_a_script_that_cannot_be_written(runs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ddefuzz.repro import run as repro_run  # noqa: PLC0415

    def result_of(written: Any, *_: object) -> ScriptResult:
        return ScriptResult(written.name, "passes")

    runs.setattr(repro_run, "_result_of", only_b(lambda written, *_: written.name, result_of))
    names = [repro_run.ScriptSource(name, "dde", lambda: "") for name in "abc"]
    done = repro_run.run_scripts(names, "python", 1, lambda _: None)
    assert [one.status for one in done] == ["passes", "not judged", "passes"]
    (error,) = internal.noted()
    assert done[1].reason == error.reason
    assert error.where == "b"


# run


def in_a_run_of_the_campaign(runs: pytest.MonkeyPatch) -> None:
    replace(runs, "ddefuzz.campaign.case.observe", partial(call_only, 2))


def in_the_drawing(runs: pytest.MonkeyPatch) -> None:
    replace(runs, "ddefuzz.campaign.case.program_of", partial(call_only, 2))


def in_the_recording(runs: pytest.MonkeyPatch) -> None:
    runs.setattr(Database, "record", call_only(2, Database.record))


def in_the_minimizer(runs: pytest.MonkeyPatch) -> None:
    replace(runs, "ddefuzz.campaign.case.minimize", partial(call_only, 1))


def call_only(number: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, of which one call raises."""
    calls: list[None] = []

    def replaced(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        if len(calls) == number:
            raise OursError("planted")
        return function(*args, **kwargs)

    return replaced


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant", one_in(4, (in_a_run_of_the_campaign, in_the_drawing, in_the_recording, in_the_minimizer))
)
def test_run(plant: Callable[[pytest.MonkeyPatch], None], runs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(runs)
    url = f"sqlite:///{tmp_path}/ddefuzz.db"
    words = ["--seed", "3", "--max-examples", "40", "--jobs", "1", "--uniform", "--no-screen", "--stage", "export"]
    done = invoke("run", *words, "--db", url, "--format", "json")
    report = check_report(done)
    found = json.loads(done.stdout)
    assert found["cases"] == 40
    assert [one["report"] for one in found["errors"]] == [report]
    assert found["findings"]
    with Database.open(url) as database:
        stored = {one.id for one in database.findings()}
        assert database.unfinished() == ()
    assert {one["finding"] for one in found["findings"]} <= stored


# sweep, study, recompiles


@pytest.mark.slow
def test_sweep(runs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replace(runs, "ddefuzz.sweep.worker.chosen", partial(only_b, lambda task, _: "b" if task.op == "cos" else ""))
    runs.setattr("ddefuzz.sweep.worker.observe", lambda run: Observation(run.stage, run.semantics, "ok"))
    words = ["--ops", "sin", "--ops", "cos", "--ops", "tan", "--jobs", "1", "--db", f"sqlite:///{tmp_path}/s.db"]
    done = invoke("sweep", *words, "--format", "json", "--output", f"html={tmp_path / 'page.html'}")
    report = check_report(done)
    found = json.loads(done.stdout)
    rows = {row["op"]: row["explicit"] for row in found["rows"]}
    assert {rows["sin"], rows["tan"]} == {"ok"}
    assert [one["report"] for one in found["errors"]] == [report]
    assert report in (tmp_path / "page.html").read_text()


def test_study(runs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def studied(_: object, one: Any, __: object) -> Any:
        return ModelResult(one.group, one.target.case, one.settings, "ok", Plain(), Plain())

    runs.setattr("ddefuzz.checking.study.study_model", only_b(lambda _, one, __: str(one.target.case), studied))
    models = tmp_path / "models"
    models.mkdir()
    (models / "all.py").write_text("".join(f"{name}_args = ()\n" for name in "abc"))
    done = invoke("study", "--models", str(models), "--group", "own", "--format", "json")
    report = check_report(done)
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["models"]] == ["a", "c"]
    assert [(one["where"], one["report"]) for one in found["errors"]] == [("b", report)]
    text = invoke("study", "--models", str(models), "--group", "own").stdout
    assert text.splitlines()[-1].startswith("b: not judged: internal error")


# real workers: the fork server imports the script as well

PLANTED = """\
import sys
import ddefuzz.campaign.case as case
import ddefuzz.execute.observe as observing
from ddefuzz.cli.main import main
observe, draw = observing.observe, case.program_of
def observed(run):
    if getattr(run.subject, "case", None) == "b" and run.stage == "export":
        raise ValueError("planted")
    return observe(run)
def drawn(profile, seed, index, *more):
    if index == 2:
        raise ValueError("planted")
    return draw(profile, seed, index, *more)
observing.observe, case.program_of = observed, drawn
if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["check", "run"])
def test_real_workers(name: str, cases: str, tmp_path: Path) -> None:
    script = tmp_path / "planted.py"
    script.write_text(PLANTED)
    url = f"sqlite:///{tmp_path}/ddefuzz.db"
    words = {
        "check": [cases, "--stage", "export", "--jobs", "2"],
        "run": ["--db", url, "--seed", "1", "--max-examples", "6", "--jobs", "2", "--uniform", "--no-minimize"],
    }[name]
    done = subprocess.run(
        [sys.executable, str(script), name, *words, "--format", "json"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == EXIT_INTERNAL, done.stderr
    found = json.loads(done.stdout)
    (error,) = found["errors"]
    assert (error["where"], error["error"]) == ({"check": "b: export", "run": "case 2"}[name], "ValueError: planted")
    report = Path(error["report"])
    assert report.parent == tmp_path  # not in the folder that ends with the command
    assert "planted.py" in report.read_text()
    if name == "check":
        assert {one["case"]: one["outcome"] for one in found["captures"]} == {"a": "ok", "b": "not-judged", "c": "ok"}
    else:
        assert found["cases"] == 6
