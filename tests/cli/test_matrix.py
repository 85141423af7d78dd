"""`ddefuzz matrix` and `bisect`, with interpreters that only answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddefuzz.cli import bisect, matrix
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.textform import read_finding, write_findings

ROOT = Path(__file__).parents[2]
DIFF, ROLL = "dde-08f7b02bbb", "dde-8ea756b1c0"

INTERPRETER = """\
#!{python}
import json, pathlib, sys
if sys.argv[1] == "-c":
    print({torch!r})
elif sys.argv[1] == "-P":
    sys.exit(1)
else:
    verdict = {verdicts!r}.get(pathlib.Path(sys.argv[1]).stem, "passes")
    said = {{"torch": {torch!r}, "stage": "export", "verdict": verdict, "expected": {{}}, "seen": None}}
    print(json.dumps(said))
"""


def interpreter(folder: Path, torch: str, **verdicts: str) -> str:
    """An interpreter that says these verdicts of the scripts, `passes` of all others, and has no ddefuzz."""
    path = folder / f"python-{torch}"
    named = {DIFF: verdicts.get("diff", "shows"), ROLL: verdicts.get("roll", "shows")}
    path.write_text(INTERPRETER.format(python=sys.executable, torch=torch, verdicts=named))
    path.chmod(0o755)
    return str(path)


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
    assert "2 lines: 1 fixed, 1 regressed" in text
    assert max(map(len, text.splitlines())) <= 100


def test_runs_are_counted(tmp_path: Path, findings: Path) -> None:
    ended = run(str(findings), "--python", interpreter(tmp_path, "2.13.0"), "--runs", "2", "--id", DIFF, "-j", "1")
    assert ended.exit_code == 0
    document = run(
        *(str(findings), "--python", interpreter(tmp_path, "2.13.0"), "--runs", "2", "--id", DIFF, "-j", "1"),
        *("--format", "jsonl"),
    )
    (line,) = map(json.loads, document.stdout.splitlines())
    assert line["cells"] == {"2.13.0": {"status": "fails", "shows": 2, "runs": 2, "reason": ""}}


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


def test_an_interpreter_without_torch_is_said(tmp_path: Path, findings: Path) -> None:
    with pytest.raises(InputError, match="--python /no/python: No such file"):
        run(str(findings), "--python", "/no/python")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verdicts", "before", "after"),
    [
        (["shows", "shows", "shows", "passes", "passes"], "2.3.0", "2.4.0"),
        (["shows", "passes", "passes", "passes", "passes"], "2.1.0", "2.2.0"),
        (["passes", "passes", "passes", "passes", "shows"], "2.4.0", "2.5.0"),
        (["shows"] * 5, None, None),
    ],
)
def test_bisect_finds_the_two_versions(
    tmp_path: Path, findings: Path, verdicts: list[str], before: str | None, after: str | None
) -> None:
    url = f"sqlite:///{tmp_path}/ddefuzz.db"
    with Database.open(url) as database:
        database.put([read_finding(findings / DIFF)])
    words = [DIFF, "--db", url, "--format", "json"]
    for number, verdict in enumerate(verdicts, 1):
        words += ["--python", interpreter(tmp_path, f"2.{number}.0", diff=verdict)]
    ended = CliRunner().invoke(bisect.command, words, catch_exceptions=False)
    (document,) = json.loads(ended.stdout)
    assert (document["before"], document["after"]) == (before, after)
    assert len(document["runs"]) <= 4
