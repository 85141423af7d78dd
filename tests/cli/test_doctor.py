"""`ddefuzz doctor` accepts this torch and rejects an unsupported one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from click.testing import CliRunner

from ddefuzz.cli.doctor import SCHEMA, _view, command
from ddefuzz.errors import UnsupportedError
from ddefuzz.instrument.torch_api import Check
from ddefuzz.oracles.reference import REFERENCES
from ddefuzz.show.terminal import terminal


@pytest.mark.slow
def test_everything_holds_here() -> None:
    result = CliRunner().invoke(command, ["--format", "json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["schema"] == SCHEMA
    assert all(check["ok"] for check in told["checks"])
    names = " ".join(check["name"] for check in told["checks"])
    for part in (
        "ShapeEnv.evaluate_expr",
        "at::native::diff_helper",
        "is blamed in compile",
        "the crash of a worker",
        "hangs",
    ):
        assert part in names
    assert sum(check["name"].startswith("reference program, ") for check in told["checks"]) == len(REFERENCES)


def test_a_summary_has_what_fails_and_all_checks_if_asked() -> None:
    by_part = {
        "one": [Check("a", ok=True, detail="")],
        "two": [Check("b", ok=True, detail=""), Check("c", ok=False, detail="gone")],
    }
    short = terminal(_view(by_part, verbose=False), 80)
    assert [line.split() for line in short.splitlines() if line.startswith(("ok", "FAILS"))] == [
        ["ok", "one", "1", "check"],
        ["FAILS", "two", "2", "checks,", "1", "failed"],
        ["FAILS", "c", "gone"],
    ]
    assert "3 checks, 1 failed; -v shows each" in short
    assert terminal(_view(by_part, verbose=True), 80).count("ok") == 3


def test_an_unsupported_torch_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.6.0+cpu")
    result = CliRunner().invoke(command)
    assert isinstance(result.exception, UnsupportedError)
    assert (result.exception.exit_code, "\n" in str(result.exception)) == (4, False)


def test_its_help_does_not_import_torch() -> None:
    code = "import sys, ddefuzz.cli.doctor, ddefuzz.execute.pool; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
