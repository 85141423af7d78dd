"""`ddefuzz replay --scripts`: the verdicts of stand-alone scripts under different interpreters."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature
from ddefuzz.cli.replay import command
from ddefuzz.errors import InputError, NothingRanError, UnsupportedError
from ddefuzz.execute.protocol import EXPLICIT, Call, CallEnd, Observation
from ddefuzz.findings.model import Finding, id_of
from ddefuzz.findings.textform import write_findings
from ddefuzz.repro.run import run_scripts
from tests.findings.arbitrary_findings import CHUNK, PROGRAM, ROLL, failure_of

SAYS = {"torch": "3.0.0", "stage": "export", "expected": {"function": "roll"}, "seen": {"function": "cat"}}


def finding_of(signature: Signature) -> Finding:
    return Finding(
        id=id_of(signature.key, 1),
        signature=signature,
        cause="avoidable",
        failure=failure_of(signature),
        original=PROGRAM,
    )


FINDINGS = (finding_of(ROLL), finding_of(CHUNK))


def interpreter(tmp_path: Path, body: str) -> str:
    """An interpreter that says it has torch 3.0.0, and does something of its own with a script, `sys.argv[1]`."""
    path = tmp_path / "python"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, signal, sys, time\n"
        "if sys.argv[1] == '-c':\n    print('3.0.0')\n    sys.exit()\n"
        f"says = {SAYS!r}\n{body}\n"
    )
    path.chmod(0o755)
    return str(path)


def scripts(tmp_path: Path, *words: str) -> Result:
    write_findings(FINDINGS, tmp_path / "findings")
    return CliRunner().invoke(command, [str(tmp_path / "findings"), "--scripts", *words])


def test_rows_and_counts_of_two_scripts(tmp_path: Path) -> None:
    body = f"print(json.dumps({{**says, 'verdict': 'shows' if {ROLL.key!r} in sys.argv[1] else 'fails otherwise'}}))"
    result = scripts(tmp_path, "--python", interpreter(tmp_path, body), "--format", "jsonl")
    assert result.exit_code == 1
    rows = {row["finding"]: row for row in map(json.loads, result.stdout.splitlines())}
    assert {name: row["status"] for name, row in rows.items()} == {
        FINDINGS[0].id: "shows",
        FINDINGS[1].id: "fails otherwise",
    }
    assert rows[FINDINGS[1].id]["schema"] == "ddefuzz.scripts/1"
    assert rows[FINDINGS[1].id]["seen"] == {"function": "cat"}
    assert "2 scripts: 1 shows, 1 fails otherwise" in result.stderr.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("verdict", "code"), [("shows", 0), ("passes", 0), ("not judged", 0), ("fails otherwise", 1)])
def test_only_what_fails_otherwise_fails(verdict: str, code: int, tmp_path: Path) -> None:
    body = f"print(json.dumps({{**says, 'verdict': {verdict!r}}}))"
    result = scripts(tmp_path, "--python", interpreter(tmp_path, body))
    assert result.exit_code == code
    assert result.stdout.splitlines()[-1 if code == 0 else -4] == f"2 scripts: 2 {verdict}"
    assert ("expected function roll; seen function cat" in result.stdout) == (verdict != "shows")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "kind", "status", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "dde", "fails otherwise", "died of SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crash", "shows", "died of SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crash-in-call", "fails otherwise", "died of SIGSEGV"),
        ("time.sleep(60)", "dde", "fails otherwise", "no verdict within 1 s"),
        ("time.sleep(60)", "timeout", "shows", "no verdict within 1 s"),
        ("sys.exit('ModuleNotFoundError: no numpy')", "dde", "not judged", "ModuleNotFoundError: no numpy"),
        ("print('{}')", "dde", "not judged", "exit code 0"),
    ],
)
def test_a_script_without_a_verdict(body: str, kind: str, status: str, reason: str, tmp_path: Path) -> None:
    called = Observation("export", EXPLICIT, "crash", calls=(Call("0", CallEnd(), CallEnd("SIGSEGV")),))
    failure = Failure(kind, called, "", "0") if "call" in kind else FINDINGS[0].failure
    finding = msgspec.structs.replace(
        FINDINGS[0], signature=msgspec.structs.replace(FINDINGS[0].signature, kind=kind), failure=failure
    )
    (result,) = run_scripts([finding], interpreter(tmp_path, body), 1, lambda _: None, seconds=1.0)
    assert (result.status, result.reason) == (status, reason)


def test_a_finding_without_a_program_is_not_judged() -> None:
    (result,) = run_scripts([msgspec.structs.replace(FINDINGS[0], original=None)], sys.executable, 1, lambda _: None)
    assert result.status == "not judged"
    assert result.reason.endswith("found no program, because the finding is from a user's own code")


def test_an_interpreter_that_cannot_be_used(tmp_path: Path) -> None:
    missing = scripts(tmp_path, "--python", str(tmp_path / "nothing"))
    assert isinstance(missing.exception, InputError)
    assert str(missing.exception) == (
        f"--python {tmp_path / 'nothing'}: No such file or directory, expected a Python interpreter that has torch"
    )
    without = tmp_path / "without"
    without.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n")
    without.chmod(0o755)
    result = scripts(tmp_path, "--python", str(without))
    assert isinstance(result.exception, UnsupportedError)
    assert str(result.exception).startswith(
        f"--python {without}: ModuleNotFoundError: No module named 'torch', expected"
    )


def test_what_does_not_go_together(tmp_path: Path) -> None:
    assert scripts(tmp_path, "--sites", "sqlite:///x.db").exit_code == 2
    assert CliRunner().invoke(command, [str(tmp_path), "--python", "python"]).exit_code == 2
    (tmp_path / "empty").mkdir()
    assert isinstance(CliRunner().invoke(command, [str(tmp_path / "empty"), "--scripts"]).exception, NothingRanError)
    nowhere = CliRunner().invoke(command, [str(tmp_path / "nowhere"), "--scripts"])
    assert isinstance(nowhere.exception, InputError)
