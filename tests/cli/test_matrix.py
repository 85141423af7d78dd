"""`ddefuzz matrix` and `bisect`, with interpreters that only answer."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from ddefuzz.classify.cause import Classification
from ddefuzz.cli import matrix
from ddefuzz.cli.findings import show
from ddefuzz.errors import InputError, NothingRanError, UnsupportedError
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By, undo
from ddefuzz.findings.model import Sighting
from ddefuzz.findings.textform import read_finding, write_findings
from ddefuzz.show.blocks import Invocation
from ddefuzz.show.terminal import terminal
from ddefuzz.versions import run as versions_run
from ddefuzz.versions.model import Cell, Interpreter, Line
from ddefuzz.versions.page import matrix_view
from tests.versions.interpreters import DIFF, ROLL, interpreter, ran

ROOT = Path(__file__).parents[2]


@pytest.fixture
def findings(tmp_path: Path) -> Path:
    write_findings([read_finding(ROOT / "findings" / name) for name in (DIFF, ROLL)], tmp_path / "findings")
    return tmp_path / "findings"


def run(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(matrix.command, words, catch_exceptions=False)


@pytest.mark.slow
def test_a_finding_is_fixed_and_another_regresses(tmp_path: Path, findings: Path) -> None:
    old = interpreter(tmp_path, "2.13.0", diff="shows", roll="passes")
    new = interpreter(tmp_path, "2.15.0", diff="passes", roll="shows")
    words = (str(findings), "--python", f"new={new}", "--python", old, "-j", "1")
    ended = run(*words, "--format", "json")
    document = json.loads(ended.stdout)
    assert ended.exit_code == 1
    assert [one["name"] for one in document["interpreters"]] == ["2.13.0", "new"]
    lines = {line["id"]: line for line in document["lines"]}
    assert (lines[DIFF]["change"], lines[DIFF]["fixed_in"]) == ("fixed", ["new"])
    assert (lines[ROLL]["change"], lines[ROLL]["regressed_in"]) == ("regressed", ["new"])
    text = run(*words).stdout
    assert "2.13.0 (torch 2.13.0): 1 fails, 1 passes" in text
    said, _, after = text.partition("Next:\n")
    assert "2 lines: 1 fixed, 1 regressed" in said
    assert max(map(len, said.splitlines())) <= 100
    assert after.strip().endswith(f"findings set {DIFF} fixed --why matrix --in 2.15.0")


def test_only_what_does_not_show_runs_again_in_new_processes(tmp_path: Path, findings: Path) -> None:
    python = interpreter(tmp_path, "2.13.0", diff="passes")
    ended = run(str(findings), "--python", python, "--runs", "3", "-j", "1", "--format", "jsonl")
    assert ended.exit_code == 0
    assert [json.loads(line)["cells"]["2.13.0"] for line in ended.stdout.splitlines()] == [
        {"status": "passes", "shows": 0, "runs": 3, "reason": ""},
        {"status": "fails", "shows": 1, "runs": 1, "reason": ""},
    ]
    assert ran(python) == [DIFF, ROLL, *[f"{DIFF} cold"] * 3]


@pytest.mark.slow
def test_kept_results_are_not_run_again(tmp_path: Path, findings: Path) -> None:
    old, new = interpreter(tmp_path, "2.13.0"), interpreter(tmp_path, "2.15.0", diff="passes")
    db = ("--db", f"sqlite:///{tmp_path}/kept.db", "-j", "1")
    first = run(str(findings), "--python", old, *db)
    assert first.exit_code == 0
    both = run(str(findings), "--python", old, "--python", new, *db, "--format", "jsonl")
    assert [json.loads(line)["change"] for line in both.stdout.splitlines()] == ["fixed", "fails"]
    assert "2.13.0: 2 results kept, 0 findings to run" in both.stderr
    with Database.open(db[1]) as database:
        database.put([read_finding(findings / DIFF)])
    shown = CliRunner(env={"COLUMNS": "100"}).invoke(show, [DIFF, *db[:2]], catch_exceptions=False).stdout
    assert "2.13.0 fails, 2.15.0 passes" in shown
    assert (ran(old), ran(new)) == ([DIFF, ROLL], [DIFF, ROLL, f"{DIFF} cold"])
    run(str(findings), "--python", old, *db, "--fresh", "--id", ROLL)
    assert ran(old) == [DIFF, ROLL, ROLL]
    finding = read_finding(findings / ROLL)
    write_findings([msgspec.structs.replace(finding, minimal=None)], findings)
    run(str(findings / ROLL), "--python", old, *db)
    assert ran(old) == [DIFF, ROLL, ROLL, ROLL]  # another program has no result yet


CASES = """\
#!{python}
import sys
if sys.argv[1] == "-c":
    print("2.13.0")
elif sys.argv[2] == "-m":
    {replay}
"""


def test_kept_results_of_cases_are_those_of_the_same_files(tmp_path: Path) -> None:
    python, (calls, case) = tmp_path / "python", (tmp_path / "calls", tmp_path / "cases" / "a.py")
    line = {"case": "a.py", "status": "gone", "expected": "export dde", "seen": "export ok"}
    replay = f"open({str(calls)!r}, 'a').write('x'); print({json.dumps(line)!r})"
    python.write_text(CASES.format(python=sys.executable, replay=replay))
    python.chmod(0o755)
    case.parent.mkdir()
    case.write_text("1")
    words = (str(case.parent), "--python", str(python), "--db", f"sqlite:///{tmp_path}/kept.db", "--format", "jsonl")
    for text, ran_so_far in (("1", "x"), ("1", "x"), ("2", "xx")):
        case.write_text(text)
        (row,) = map(json.loads, run(*words).stdout.splitlines())
        assert (row["id"], row["cells"]["2.13.0"]["status"]) == ("a.py", "passes")
        assert calls.read_text() == ran_so_far


@pytest.mark.parametrize(
    ("replay", "error", "message"),
    [
        (
            "print('hello')",
            UnsupportedError,
            "printed 'hello': found JSON is malformed: .*, expected the result of a case",
        ),
        (
            "sys.stdout.buffer.write(b'\\xff')",
            UnsupportedError,
            "printed '.': found JSON is malformed: .*, expected the result of a case",
        ),
        ("sys.exit('no space')", UnsupportedError, "ended with no space"),
        ("sys.stderr.write('no such file'); sys.exit(2)", InputError, "ended with no such file"),
        ("import time; time.sleep(60)", UnsupportedError, "still runs, expected it to end within 1 s"),
    ],
)
def test_what_an_interpreters_replay_does_wrong_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replay: str, error: type[Exception], message: str
) -> None:
    monkeypatch.setattr(versions_run, "REPLAY_SECONDS", 1.0)
    python = tmp_path / "python"
    python.write_text(CASES.format(python=sys.executable, replay=replay))
    python.chmod(0o755)
    (tmp_path / "cases").mkdir()
    with pytest.raises(error, match=message):
        run(str(tmp_path / "cases"), "--python", str(python))


def test_cases_run_as_scripts_where_there_is_no_ddefuzz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, cases = interpreter(tmp_path, "2.6.0", roll="passes"), tmp_path / "cases"
    cases.mkdir()
    program = 'def program(x: Float32[Tensor, "u0"]):\n    return torch.relu(x)\n'
    lines = (
        "# ddefuzz program v1",
        "# inputs: x = normal",
        "# expect: export/explicit ok",
        "# expect: fake/explicit ok",
    )
    (cases / "relu.py").write_text("\n".join([*lines, program]))
    called = "# expect: export/explicit missing-assertion at at::native::relu"
    (cases / "called.py").write_text("\n".join([*lines[:2], called, program]))
    monkeypatch.chdir(tmp_path)
    words = ("cases", "--python", f"./{Path(python).name}", "-j", "1", "--format", "jsonl")
    cells = {row["id"]: row["cells"]["2.6.0"] for row in map(json.loads, run(*words).stdout.splitlines())}
    assert {name: cell["status"] for name, cell in cells.items()} == {
        "cases/called.py@export/explicit": "not judged",
        "cases/relu.py@export/explicit": "passes",
        "cases/relu.py@fake/explicit": "passes",
    }
    assert "only ddefuzz calls captures" in cells["cases/called.py@export/explicit"]["reason"]
    assert ran(python) == ["cases_relu.py_export_explicit", "cases_relu.py_fake_explicit"]


def test_the_commands_for_what_is_fixed_are_counted() -> None:
    interpreters = (Interpreter("old", "python", "2.13.0"), Interpreter("new", "python", "2.15.0"))
    cells = {"old": Cell("fails", 1), "new": Cell("passes")}
    lines = [Line(f"dde-{at}", "a title", cells, f"dde-{at}") for at in range(7)]
    page = terminal(matrix_view(lines, interpreters, Invocation().command), 80)
    after = page.partition("Next:\n")[2].splitlines()
    assert after[0].endswith("findings set dde-0 fixed --why matrix --in 2.15.0")
    assert (len(after), after[-1].strip()) == (6, "# and so on for the 2 other findings whose change is fixed")


def test_a_long_table_has_what_changed_and_all_rows_if_asked() -> None:
    interpreters = (Interpreter("old", "python", "2.13.0"), Interpreter("new", "python", "2.15.0"))
    passes, fails = Cell("passes"), Cell("fails", 1)
    lines = [Line(f"dde-{at:02}", "a title", {"old": fails, "new": fails}, f"dde-{at:02}") for at in range(30)]
    lines += [Line("dde-98", "fixed", {"old": fails, "new": passes}, "dde-98")]
    lines += [Line("dde-99", "back", {"old": passes, "new": fails}, "dde-99")]
    page = terminal(matrix_view(lines, interpreters, Invocation().command), 80)
    assert re.findall("^dde-..", page, re.MULTILINE) == ["dde-99", "dde-98"]
    assert "30 rows the same in all versions: --all shows them" in page
    whole = terminal(matrix_view(lines, interpreters, Invocation().command, every=True), 80)
    assert re.findall("^dde-..", whole, re.MULTILINE)[:3] == ["dde-99", "dde-98", "dde-00"]
    short = terminal(matrix_view(lines[:3], interpreters, Invocation().command), 80)
    assert re.findall("^dde-..", short, re.MULTILINE) == ["dde-00", "dde-01", "dde-02"]


def test_one_finding_may_be_a_path(tmp_path: Path, findings: Path) -> None:
    ended = run(str(findings / DIFF), "--python", interpreter(tmp_path, "2.13.0"), "--format", "jsonl")
    assert [json.loads(line)["id"] for line in ended.stdout.splitlines()] == [DIFF]


def test_an_id_of_no_finding_is_said(tmp_path: Path, findings: Path) -> None:
    with pytest.raises(InputError, match=r"--id: found 'none', expected the beginning of one of 2 ids"):
        run(str(findings), "--python", interpreter(tmp_path, "2.13.0"), "--id", "none")


def test_two_interpreters_need_two_names(tmp_path: Path, findings: Path) -> None:
    one = interpreter(tmp_path, "2.13.0")
    with pytest.raises(InputError, match=r"found two named '2\.13\.0'"):
        run(str(findings), "--python", one, "--python", one)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("/no/python", "--python /no/python: No such file"),
        ("", "--python: found no path, expected one of a Python interpreter that has torch"),
        ("a=", "--python: found no path"),
        ("a=/bin/true", "--python /bin/true: found '', expected a version of torch"),
    ],
)
def test_an_interpreter_without_torch_is_said(findings: Path, typed: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        run(str(findings), "--python", typed)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_an_interruption_stops_runs_again(tmp_path: Path, findings: Path, number: signal.Signals) -> None:
    """The first finding has its result, the second one is running."""
    text = Path(interpreter(tmp_path, "2.13.0")).read_text()
    slow, started = tmp_path / "slow", tmp_path / "started"
    sleeps = f"(pathlib.Path({str(started)!r}).touch(), __import__('time').sleep(600))"
    answer = "        print(json.dumps("
    slow.write_text(text.replace(answer, f"        if {ROLL!r} in path: {sleeps}\n{answer}"))
    slow.chmod(0o755)
    words = ["--db", f"sqlite:///{tmp_path}/kept.db", "-j", "1", "--format", "jsonl"]
    command = [sys.executable, "-m", "ddefuzz", "matrix", str(findings), "--python", str(slow), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not started.exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait() == 128 + number
    ended = run(str(findings), "--python", str(tmp_path / "python-2.13.0"), *words)
    assert "2.13.0: 1 result kept, 1 finding to run" in ended.stderr
    assert [json.loads(line)["cells"]["2.13.0"]["status"] for line in ended.stdout.splitlines()] == ["fails", "fails"]


@pytest.mark.slow
def test_a_finding_that_is_gone_closes_and_opens_again(tmp_path: Path, findings: Path) -> None:
    url = f"sqlite:///{tmp_path}/kept.db"
    with Database.open(url) as database:
        database.put([read_finding(findings / name) for name in (DIFF, ROLL)])
        finding = database.get(DIFF)
    said = []
    for torch, verdict in {"2.13.0": "shows", "2.14.1": "passes", "2.15.0": "passes"}.items():
        python = interpreter(tmp_path, torch, diff=verdict)
        said.append(run("--db", url, "--python", python, "--close", "-j", "1").stderr)
    assert ["closed" in one for one in said] == [False, False, True]
    assert f"closed: {DIFF} passes in 2.14.1, 2.15.0; `findings undo {DIFF}` takes it back" in said[-1]
    assert finding.failure is not None
    with Database.open(url) as database:
        gone = database.get(DIFF)
        assert (gone.state, gone.fixed_in, database.get(ROLL).state) == ("fixed", ("2.14.1", "2.15.0"), "triaged")
        assert (gone.history[-1].who, gone.history[-1].why) == ("ddefuzz matrix", "passes in 2.14.1, 2.15.0")
        classified = Classification(finding.failure, finding.signature, finding.cause, "")
        for torch, name in {"2.13.0": DIFF, "2.16.0": f"{DIFF}-2"}.items():
            again = Sighting(classified=classified, verdict="fails", ops=(), torch=torch, program=finding.minimal)
            assert database.record(again, datetime.now(UTC)).finding_id == name
    # The return is a finding of its own: the first one stays closed. Without it, it is opened again.
    python = interpreter(tmp_path, "2.17.0", diff="shows")
    assert "reopened" not in run("--db", url, "--python", python, "--close", "-j", "1").stderr
    with Database.open(url) as database:
        database.put([], gone=[f"{DIFF}-2"])
    line = f"reopened: {DIFF} fails in 2.17.0; `findings undo {DIFF}` takes it back"
    assert line in run("--db", url, "--python", python, "--close", "-j", "1").stderr
    with Database.open(url) as database:
        assert (database.get(DIFF).state, database.get(DIFF).fixed_in) == ("triaged", ())
        database.decide(DIFF, partial(undo, by=By("a person", datetime.now(UTC))))
        database.record(again, datetime.now(UTC))
    shown = CliRunner().invoke(show, [f"{DIFF}-2", "--db", url], catch_exceptions=False).stdout
    assert f"{DIFF} was fixed, and the failure occurred again" in " ".join(shown.split())


def test_closing_needs_a_database(tmp_path: Path, findings: Path) -> None:
    with pytest.raises(InputError, match="--close: found no --db, expected the database whose findings are closed"):
        run(str(findings), "--python", interpreter(tmp_path, "2.13.0"), "--close")


@pytest.mark.slow
def test_bisect_runs_the_script_under_some_of_the_versions(tmp_path: Path, findings: Path) -> None:
    url = f"sqlite:///{tmp_path}/ddefuzz.db"
    with Database.open(url) as database:
        database.put([read_finding(findings / DIFF)])
    words = [DIFF, "--db", url, "--format", "json"]
    for number, verdict in enumerate(["shows", "shows", "shows", "passes", "passes"], 1):
        words += ["--python", interpreter(tmp_path, f"2.{number}.0", diff=verdict)]
    ended = CliRunner().invoke(matrix.bisect, words, catch_exceptions=False)
    (document,) = json.loads(ended.stdout)
    assert (document["before"], document["after"]) == ("2.3.0", "2.4.0")
    assert list(document["runs"]) == ["2.1.0", "2.3.0", "2.4.0", "2.5.0"]


def test_an_interpreter_that_does_not_answer_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions_run, "PROBE_SECONDS", 0.5)
    python = tmp_path / "python"
    asked = "import sys, time\nif sys.argv[1] == '-c':\n    print('2.13.0')\nelse:\n    time.sleep(60)\n"
    python.write_text(f"#!{sys.executable}\n{asked}")
    python.chmod(0o755)
    with pytest.raises(UnsupportedError, match="found none that answers, expected a Python"):
        run(str(tmp_path), "--python", str(python))


@pytest.mark.slow
def test_an_interpreter_that_breaks_hides_no_other(tmp_path: Path, findings: Path) -> None:
    good, bad = interpreter(tmp_path, "2.6.0"), tmp_path / "python-bad"
    bad.write_text(CASES.format(python=sys.executable, replay="sys.exit('no space')"))
    bad.chmod(0o755)
    (tmp_path / "cases").mkdir()
    shutil.copy(ROOT / "corpora" / "smoke" / "chunk.py", tmp_path / "cases")
    words = ("matrix", str(tmp_path / "cases"), "--python", str(bad), "--python", good, "-j", "1", "--format", "jsonl")
    ended = subprocess.run([sys.executable, "-m", "ddefuzz", *words], capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {row["cells"]["2.6.0"]["status"] for row in rows} == {"passes"}
    assert {row["cells"]["2.13.0"]["status"] for row in rows} == {"not judged"}
    assert ended.returncode == 4
    assert "ended with no space" in ended.stderr


def test_a_folder_without_cases_is_said(tmp_path: Path, findings: Path) -> None:
    (tmp_path / "cases").mkdir()
    with pytest.raises(NothingRanError, match="found no case, expected some"):
        run(str(tmp_path / "cases"), "--python", interpreter(tmp_path, "2.6.0"))
