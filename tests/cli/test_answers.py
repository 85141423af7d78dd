"""`ddefuzz answers` with real captures in workers."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from ddefuzz.answers.model import GIVEN, Experiment, Row
from ddefuzz.classify.signature import Site
from ddefuzz.cli.answers import Target, answers_page, command
from ddefuzz.cli.output import Page

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
    assert "sizes: example: as in the inputs" in page
    assert page.splitlines()[-2] == "Next:"
    assert page.splitlines()[-1].endswith(f"ddefuzz check {path}")


def test_what_is_no_guard_has_nothing_to_answer() -> None:
    done = [
        (
            Target("dde-1", DROPOUT, "export", is_finding=True),
            Experiment(DROPOUT, "export", None, "", (), "not a guard"),
        )
    ]
    page = answers_page(done, Page(80))
    assert "verdict: not a guard: nothing to answer, because" in page
    assert "columns:" not in page
    assert page.endswith("Next:\n  ddefuzz findings show dde-1\n")


def test_answers_that_are_both_right_are_named() -> None:
    site = Site("C++", None, "at::native::chunk")
    rows = tuple(Row(site, given, captures=True, agrees=("0", "1")) for given in GIVEN)
    target = Target("dde-1", DROPOUT, "export", is_finding=True)
    both = answers_page(
        [(target, Experiment(DROPOUT, "export", site, "Eq(u0, 0)", rows, "guard_or_false here"))], Page(80)
    )
    assert "guard_or_false here (False and True both agree)" in both
    one = (rows[0], msgspec.structs.replace(rows[1], differs=("2",)), rows[2])
    alone = answers_page(
        [(target, Experiment(DROPOUT, "export", site, "Eq(u0, 0)", one, "guard_or_false here"))], Page(80)
    )
    assert "both agree" not in alone


@pytest.mark.parametrize("args", [(), ("one", "--all")])
def test_targets_or_all(args: tuple[str, ...]) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert "expected an ID or a FILE, or else --all" in result.output
