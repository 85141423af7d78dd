"""Inductor's code for unbacked sizes beside that for backed sizes: what is judged and named, and a planted fault."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from ddefuzz.campaign.plan import CALLED, Plan, parse_budget
from ddefuzz.execute.protocol import EXPLICIT, Observation, Run, measured
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, sighting
from ddefuzz.instrument.events import Guard, Place
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.kernels import Kernels
from ddefuzz.oracles.lowering import KernelPair, judge
from ddefuzz.oracles.program import judge_program, kept, observe, shows, suspect_of
from ddefuzz.oracles.table import NAMES
from ddefuzz.repro.finding import finding_script, issue
from tests.oracles.planted_lowering import falling_back

TEXT = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=64 64"]):
    return torch.relu(x)
"""

ONE = Kernels({"cpp_fused_relu": 1}, {}, {}, 2)
EAGER = Kernels({}, {}, {"torch.ops.aten.relu.default": 1}, 0)
TWO = Kernels({"cpp_fused_relu": 1, "cpp_fused_sum": 1}, {}, {}, 2)
SCALAR = Kernels({"cpp_fused_relu": 1}, {}, {}, 0)
LOOPS = Kernels({"cpp_fused_relu": 1}, {}, {}, 2, passes=3)

DECIDES = Guard(Place("Python", "torch/_inductor/ir.py", 7), "guard_or_false", "Eq(u0, 1)", False, "same", "f")
OTHER = Guard(Place("Python", "torch/_refs/__init__.py", 9), "guard_or_false", "Eq(u0, 0)", False, "same", "g")

NOW = datetime(2025, 1, 31, 12, tzinfo=UTC)


def observation(unbacked: Kernels, backed: Kernels | None = ONE, *guards: Guard) -> Observation:
    return Observation("lower", EXPLICIT, "ok", guards=guards, measured=measured(KernelPair(unbacked, backed)))


def decided(run: Run) -> Observation:
    """A program whose code is as for backed sizes once `DECIDES` has its other answer."""
    answers = {(one.place, one.value) for one in run.semantics.answers}
    if (DECIDES.place, True) in answers:
        return observation(ONE, None, OTHER)
    return observation(EAGER, None if answers else ONE, OTHER, DECIDES)


@pytest.mark.parametrize(
    ("unbacked", "kind", "evidence"),
    [
        (EAGER, "falls-back", "calls torch.ops.aten.relu.default, not with backed sizes"),
        (TWO, "more-kernels", "2 calls of kernels, 1 with backed sizes: cpp_fused_sum"),
        (LOOPS, "more-passes", "3 loops over memory, 0 with backed sizes"),
        (SCALAR, "not-vectorized", "no vectors, 2 lines with vectors with backed sizes"),
    ],
)
def test_worse_code_is_reported_by_its_first_kind(unbacked: Kernels, kind: str, evidence: str) -> None:
    (found,) = judge(OracleInput(TEXT, observation(unbacked)))
    assert (found.kind, found.evidence) == (kind, evidence)
    assert judge(OracleInput(TEXT, observation(ONE, unbacked))) == ()
    assert judge(OracleInput(TEXT, Observation("lower", EXPLICIT, "not-judged"))) == ()


def test_the_guard_whose_other_answer_mends_it_is_named() -> None:
    (judged,) = judge_program(TEXT, ("lower",), (EXPLICIT,), decided, oracles=("lowering",))
    (found,) = judged.failures
    assert str(found.signature) == "falls-back at torch/_inductor/ir.py:f [guard_or_false Eq]"
    suspect = suspect_of(TEXT, found.signature, kept(found.failure))
    assert shows(suspect, TEXT, decided) is not None
    assert shows(suspect, TEXT, lambda run: observation(ONE)) is None


def test_without_such_a_guard_the_kernel_is_named() -> None:
    (judged,) = judge_program(TEXT, ("lower",), (EXPLICIT,), lambda run: observation(EAGER), oracles=("lowering",))
    (found,) = judged.failures
    assert str(found.signature) == "falls-back at torch.ops.aten.relu.default [falls-back]"


def test_an_observation_can_be_stored() -> None:
    seen = observation(EAGER)
    assert msgspec.json.decode(msgspec.json.encode(seen), type=Observation) == seen


def test_one_case_in_350_of_a_campaign_is_lowered_twice() -> None:
    plan = Plan("default", 0, parse_budget("2000x"), 1, ("export", "compile"), (EXPLICIT,), in_turn=True, oracles=NAMES)
    lowered = [index for index in range(3500) if plan.stages_of(index) == ("lower",)]
    assert len(lowered) == 8  # two more are in blocks for inductor
    assert all(index % CALLED == 0 for index in lowered)
    for other in (replace(plan, stages=("export",)), replace(plan, oracles=("capture", "growth"))):
        assert not any(other.stages_of(index) == ("lower",) for index in range(3500))


def finding() -> Finding:
    (judged,) = judge_program(TEXT, ("lower",), (EXPLICIT,), decided, oracles=("lowering",))
    (failure,) = judged.failures
    with Database.open("sqlite://") as database:
        database.record(sighting(failure, TEXT, judged.verdict, "2.13.0"), NOW)
        (recorded,) = database.findings()
    return recorded


def test_the_issue_and_the_script_name_the_kernels() -> None:
    one = finding()
    text = issue(one)
    assert "Inductor's code for unbacked sizes calls an eager op" in text
    assert "maybe_mark_dynamic in place of mark_unbacked" in text
    script = finding_script(one)
    ast.parse(script)
    assert "def kernels_in(" in script
    assert 'EXPECTED = {"kind": "falls-back", "kernels": "1"}' in script


@pytest.mark.slow
def test_a_lowering_that_falls_back_for_unbacked_sizes_is_named() -> None:
    with falling_back():
        (judged,) = judge_program(TEXT, ("lower",), (EXPLICIT,), observe, oracles=NAMES)
    (found,) = judged.failures
    assert (found.signature.kind, found.signature.site.function) == ("falls-back", "planted")
    assert judge_program(TEXT, ("lower",), (EXPLICIT,), observe, oracles=NAMES)[0].failures == ()


@pytest.mark.slow
@pytest.mark.long
def test_the_script_shows_the_planted_lowering(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    plant = "from tests.oracles.planted_lowering import falling_back\nPLANTED = falling_back()\nPLANTED.__enter__()\n"
    path = tmp_path / "script.py"
    path.write_text(finding_script(finding()).replace("import torch\n", f"import torch\n{plant}", 1))
    environment = {**os.environ, "PYTHONPATH": str(root)}
    ran = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=600, env=environment
    )
    assert json.loads(ran.stdout)["verdict"] == "shows", ran.stderr
