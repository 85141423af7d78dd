"""Needless compilations: what is judged, whom it names, what a finding keeps, and what its script and snippet do."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from ddefuzz.campaign.plan import CALLED, Plan, parse_budget
from ddefuzz.campaign.replay import compare, finding_cases, kept_cases, trial_of
from ddefuzz.classify.signature import Site
from ddefuzz.execute.protocol import EXPLICIT, Call, CallEnd, Observation, ProgramSubject, Run, Stage, measured
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, sighting
from ddefuzz.findings.textform import write_findings
from ddefuzz.instrument.events import Constraint, Place
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.program import judge_program, judge_run, kept, observe, shows, suspect_of
from ddefuzz.oracles.recompilation import MODE_OF, ORACLE, CallSequence, judge, keep
from ddefuzz.oracles.table import NAMES, ORACLES
from ddefuzz.program.sizes import REPEATED_SIZES
from ddefuzz.repro.finding import finding_script, finding_snippet

INNER = """\
# ddefuzz program v1
# inputs: x = normal; y = normal; out = zeros
def program(x: Float32[Tensor, "u0 4"], y: Float32[Tensor, "4"], out: Float32[Tensor, "u0"]):
    t0 = torch.inner(x, y, out=out)
    return t0
"""
"""`at::native::inner_out` reads a size as an int."""

ABS = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0 4"]):
    return torch.abs(x)
"""

SHARDED = """\
# ddefuzz program v1
# inputs: x = normal; y = normal, shard0
def program(x: Float32[Tensor, "u0 4"], y: Float32[Tensor, "8 4"]):
    return (torch.abs(x), y.full_tensor())
"""
"""A part of a DTensor is its mesh, which is no tensor."""

NOW = datetime(2025, 1, 31, 12, tzinfo=UTC)


def found(text: str, stage: Stage) -> Finding:
    """The finding of a program, as a campaign stores it."""
    (judged,) = judge_program(text, (stage,), (EXPLICIT,), observe, oracles=NAMES)
    (failure,) = judged.failures
    seen = sighting(failure, text, judged.verdict, "2.13.0")
    with Database.open("sqlite://") as database:
        name = database.record(seen, NOW).finding_id
        database.set_minimal(name, text, steps=1, attempts=1)
        database.set_confirmed(name, 1, 1, kept(failure.failure))
        return database.findings()[0]


@pytest.mark.slow
@pytest.mark.parametrize("stage", MODE_OF)
def test_a_dtensor_is_an_argument_like_others(stage: Stage) -> None:
    (judged,) = judge_program(SHARDED, (stage,), (EXPLICIT,), observe, oracles=NAMES)
    assert (judged.verdict, judged.failures) == ("ok", ())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("stage", "sizes"), [("recompile", "5, 7, 9"), ("recompile-dynamic", "5, 7")])
def test_a_size_that_becomes_a_number_is_named(stage: Stage, sizes: str, tmp_path: Path) -> None:
    finding = found(INNER, stage)
    assert (finding.site, finding.anchor) == (Site("C++", None, "at::native::inner_out"), "Eq(x0, n)")
    assert finding.cause == "int-required"
    assert finding.data_dependent
    number = len(sizes.split(", "))
    assert finding.title.startswith(
        "torch.inner with out=: at::native::inner_out makes torch.compile compile again: Eq(s"
    )
    assert finding.title.endswith(f": compiles {number} times at sizes {sizes}; {number - 1} would do")

    assert finding.evidence is not None
    suspect = suspect_of(INNER, finding.signature, finding.evidence)
    assert ", ".join(suspect.calls) == sizes
    assert shows(suspect, INNER, observe) is not None
    assert shows(suspect, ABS, observe) is None

    write_findings([finding], tmp_path / "findings")
    for case in (*finding_cases([finding], "sqlite://"), *kept_cases([tmp_path / "findings"])):
        assert compare(case, judge_run(trial_of(case))).status == "as expected"

    script = tmp_path / "script.py"
    script.write_text(finding_script(finding))
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (ran.returncode, json.loads(ran.stdout)["seen"]) == (1, {"compilations": str(number)})
    script.write_text(finding_script(finding).replace(", out=out)", ")"))
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (ran.returncode, json.loads(ran.stdout)["verdict"]) == (0, "passes")

    snippet = finding_snippet(finding)
    assert len(snippet.splitlines()) <= 15
    with pytest.raises(AssertionError, match=f"^{number}$"):
        exec(compile(snippet, "<program>", "exec"), {})


SLICES = """\
# ddefuzz program v1
# inputs: x = normal; y = normal; z = normal
def program(x: Float32[Tensor, "u0=5"], y: Float32[Tensor, "8"], z: Float32[Tensor, "110"]):
    t0 = z[:x.shape[0] * x.shape[0]]
    t1 = y[:x.shape[0]]
    return (t0, t1)
"""
"""The size is beyond 8 from the third call on. Its square is beyond 110 in the fourth alone."""


@pytest.mark.slow
def test_later_calls_do_not_change_the_guard_that_is_named() -> None:
    (judged,) = judge_program(SLICES, ("recompile",), (EXPLICIT,), observe, oracles=NAMES)
    (failure,) = judged.failures
    fewer = kept(failure.failure)
    assert [call.size for call in fewer.observation.calls] == ["5", "7", "9"]
    assert shows(suspect_of(SLICES, failure.signature, fewer), SLICES, observe) is not None


def test_a_healthy_program_is_compiled_as_often_as_needed() -> None:
    seen = observe(Run(ProgramSubject(ABS), "recompile", calls=REPEATED_SIZES))
    assert seen.measurement(CallSequence) == CallSequence((0, 1), 2, ((0, 1, 2, 3),))
    assert [call.recompiled for call in seen.calls] == [True, True, False, False]
    assert judge(OracleInput(ABS, seen)) == ()


def test_eager_that_raises_is_not_judged() -> None:
    refuses = ABS.replace("torch.abs(x)", "x.view(5, 4)")
    seen = observe(Run(ProgramSubject(refuses), "recompile", calls=REPEATED_SIZES))
    assert seen.outcome == "not-judged"
    assert seen.reason.startswith("eager: ")


def observation(compiled: tuple[int, ...], guard: Constraint | None) -> Observation:
    calls = tuple(Call(size, CallEnd(), CallEnd(), recompiled=at in compiled) for at, size in enumerate(REPEATED_SIZES))
    repeated = CallSequence(compiled, 1, ((0, 1, 2, 3),), "Eq(s0, 9)", guard)
    return Observation("recompile-dynamic", EXPLICIT, "ok", calls=calls, measured=measured(repeated))


GUARD = Constraint("guard", "Eq(s0, 9)", "guard_int", Place("Python", "torch/_refs/__init__.py", 3))


def test_the_fewest_first_calls_are_kept() -> None:
    (failure,) = judge(OracleInput("", observation((0, 2, 3), GUARD)))
    less = keep(failure)
    assert [call.size for call in less.observation.calls] == ["5", "7", "9"]
    fewer = less.observation.measurement(CallSequence)
    assert fewer is not None
    assert fewer.compiled == (0, 2)
    assert less.evidence == "Eq(s0, 9): compiles 2 times at sizes 5, 7, 9; 1 would do"
    assert keep(less) == less


def test_sizes_that_are_the_same_by_chance_and_unknown_reasons_are_no_alarms() -> None:
    assert judge(OracleInput("", observation((0, 2, 3), None))) == ()
    assert judge(OracleInput("", observation((0,), GUARD))) == ()


@pytest.mark.parametrize(
    ("guard", "is_so"),
    [
        ("Ne(Mod(s17, 4), 1)", True),
        ("Eq(PythonMod(s6 - ((s6//2)), 4), 1)", True),
        ("(((s27 - (((s27 + 1)//2)) + 1)//2)) < 2", True),
        ("2 <= s0//3", True),
        ("1 < s0 - 7", True),
        ("Eq(s0 - 7, 0)", True),
        ("Eq(Mod(s0, 4), 0)", False),
        ("Eq(s0 - 7, 2)", False),
        ("s0*s1 < 3", False),
        ("s94 <= 7", False),
        ("Eq(s0, s1 + 1)", False),
        ("Eq(s0, 7)", False),
    ],
)
def test_a_computed_size_that_becomes_0_or_1_is_no_alarm(guard: str, is_so: bool) -> None:
    seen = observation((0, 2, 3), GUARD)
    repeated = seen.measurement(CallSequence)
    assert repeated is not None
    seen = msgspec.structs.replace(seen, measured=measured(msgspec.structs.replace(repeated, guard=guard)))
    assert (judge(OracleInput("", seen)) == ()) == is_so


def test_other_oracles_do_not_judge_these_stages() -> None:
    assert [oracle.name for oracle in ORACLES if oracle.is_for("recompile")] == ["recompilation"]
    assert not ORACLE.is_for("compile")


def test_one_case_in_seventy_of_a_campaign_counts_compilations() -> None:
    plan = Plan("capture", 0, parse_budget("2000x"), 1, ("export", "compile"), (EXPLICIT,), in_turn=True, oracles=NAMES)
    counting = [index for index in range(1390) if set(plan.stages_of(index)) & set(MODE_OF)]
    assert len(counting) == 20
    assert all(index % CALLED == 0 for index in counting)
    assert {plan.stages_of(index) for index in counting} == {("recompile",), ("recompile-dynamic",)}
    without = replace(plan, stages=("export",)), replace(plan, oracles=("capture", "agreement"))
    assert not any(set(one.stages_of(index)) & set(MODE_OF) for one in without for index in range(1390))
