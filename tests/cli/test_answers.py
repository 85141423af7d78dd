"""`ddefuzz answers` with real captures in workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddefuzz.cli.answers import command

DROPOUT = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "2 u0"]):
    return torch.nn.functional.feature_alpha_dropout(x, training=True)
"""


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args)


@pytest.mark.slow
def test_a_file_is_answered_for(tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text(DROPOUT)
    result = run(str(path), "--format", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema"] == "ddefuzz.answers/1"
    (verdict,) = document["verdicts"]
    assert (verdict["verdict"], verdict["stage"]) == ("guard_or_false here", "export")
    assert [row["answer"] for row in document["rows"]] == ["False", "True", "assert"]
    first = document["rows"][0]
    assert first["captures"] and first["site"] == verdict["site"]
    assert "example" in first["agrees"] and not first["refuses"] and not first["differs"]

    page = run(str(path)).stdout
    assert "verdict: guard_or_false here" in page
    assert "Eq(2*u0, 0)" in page


@pytest.mark.parametrize("args", [(), ("one", "--all")])
def test_targets_or_all(args: tuple[str, ...]) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert "expected an ID or a FILE, or else --all" in result.output
