"""The relations oracle: each planted fault is found by its relation, named, minimized and shown by its script."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import torch

from ddefuzz.campaign.case import smallest
from ddefuzz.campaign.plan import CALLED, Plan, parse_budget
from ddefuzz.campaign.tasks import MinimizeTask
from ddefuzz.execute.protocol import CAPTURE_STAGES, EXPLICIT, Observation, ProgramSubject, Run, Stage
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.program import observe, shows, suspect_of
from ddefuzz.oracles.relations import (
    ORACLE,
    RELATIONS,
    Assertions,
    RelationDifference,
    Results,
    Verdicts,
    kind_of,
    relation_of,
    script,
    snippet,
)
from ddefuzz.oracles.table import NAMES, classified
from ddefuzz.repro.script import emitted
from tests.oracles.planted_relations import (
    CHECKED,
    FAULTS,
    ORDERED,
    ROUND,
    ROWS,
    asks,
    inductor_asks_for_hints,
    name_of_size,
)
from tests.parameters import one_in

HEADER = "# ddefuzz program v1\n# inputs: "
NOT_ROW_WISE = ROWS.replace("torch.relu(x)", "x.cumsum(0)")
RANDOM = ROWS.replace("torch.relu(x)", "torch.nn.functional.dropout(x)")
TWO_GUARDS = f"""{HEADER}x = normal; y = normal
def program(x: Float32[Tensor, "u0=4 4"], y: Float32[Tensor, "u1=6 4"]):
    t0 = x.view(2, -1) if x.shape[0] == 4 else x
    t1 = torch.relu(y)
    return (t0, t1)
"""


def difference(text: str, stage: Stage) -> RelationDifference | None:
    return observe(Run(ProgramSubject(text), stage)).measurement(RelationDifference)


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.stage)
def test_a_row_says_what_is_equal(relation: Any) -> None:
    assert relation.verdict in get_args(Verdicts)
    assert relation.result in get_args(Results)
    assert relation.assertions in get_args(Assertions)
    assert set(relation.captures) <= set(CAPTURE_STAGES)
    assert relation_of(relation.stage) is relation
    assert kind_of(relation) in ORACLE.kinds


PROGRAMS = {"round": ROUND, "checked": CHECKED, "ordered": ORDERED, "rows": ROWS}
PAIRS = [(stage, name) for one, stage in enumerate(FAULTS) for two, name in enumerate(PROGRAMS) if (one + two) % 2]
"""Each relation with half of the programs, in turn."""


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "name"), PAIRS)
def test_without_a_fault_nothing_differs(stage: Stage, name: str) -> None:
    assert difference(PROGRAMS[name], stage) is None


@pytest.mark.slow
@pytest.mark.parametrize("stage", one_in(3, FAULTS))
def test_a_planted_fault_is_found_named_minimized_and_shown(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text, plant = FAULTS[stage]
    plant(monkeypatch)
    seen = observe(Run(ProgramSubject(text), stage))
    (found,) = classified(OracleInput(text, seen), observe, ("relations",))
    assert found.signature.kind == f"differs-{stage}"
    suspect = suspect_of(text, found.signature, found.failure)
    best = smallest(MinimizeTask(suspect, (), 4), observe, lambda *_: None)
    shown = shows(suspect, best.program, observe)
    assert shown is not None
    assert best.program.count("\n") <= text.count("\n")

    code = emitted(script(best.program, stage, shown), stage, "a title")
    assert verdict_of(code, tmp_path) == "shows"
    lines = snippet(best.program, stage, shown)
    assert len(lines.splitlines()) <= 60
    monkeypatch.undo()
    assert verdict_of(code, tmp_path) == "passes"
    # Without the fault, the last call is out of the bounds.
    with pytest.raises(AssertionError) if stage == "under-bounds" else contextlib.nullcontext():
        exec(compile(lines, "<snippet>", "exec"), {})


@pytest.mark.slow
def test_an_answer_of_inductor_that_depends_on_a_hint_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert difference(ROUND, "under-hints") is None
    inductor_asks_for_hints(monkeypatch)
    found_difference = difference(ROUND, "under-hints")
    assert found_difference is not None
    assert (found_difference.capture, found_difference.aspect) == ("inductor", "verdict")
    assert found_difference.how.startswith(
        "in inductor, it is captured; with hints from 1, it fails: internal-error at "
    )


def verdict_of(code: str, folder: Path) -> str:
    """What a script says in this process, in which the fault is."""
    path = folder / "script.py"
    path.write_text(code)
    names: dict[str, Any] = {"__name__": "script"}
    module = type(sys)("script")
    module.__dict__.update(names)
    out = io.StringIO()
    exec(compile(code, str(path), "exec"), module.__dict__)
    sys.modules["script"] = module
    try:
        with contextlib.redirect_stdout(out):
            module.__dict__["main"]()
    finally:
        del sys.modules["script"]
        torch._dynamo.reset()
    verdict: str = json.loads(out.getvalue())["verdict"]
    return verdict


@pytest.mark.parametrize(
    ("text", "stage", "reason"),
    [
        (
            NOT_ROW_WISE,
            "under-row-order",
            "it does not mean the same in eager if the rows of a row-wise program change places",
        ),
        (ROWS, "under-reordering", "found no place where independent statements change places"),
        (ROWS, "under-input-order", "found no place where the inputs are in the reverse order"),
        (ORDERED, "under-hints", "found no place where its dims get hints"),
        (RANDOM, "under-identities", "found no place where tensors are replaced by equal ones"),
    ],
)
def test_what_does_not_mean_the_same_is_not_compared(text: str, stage: Stage, reason: str) -> None:
    seen = observe(Run(ProgramSubject(text), stage))
    assert seen.measured is None
    assert seen.reason == reason


@pytest.mark.slow
def test_a_branch_on_a_size_needs_no_same_verdict() -> None:
    """Unbacked, it fails; with static sizes it is captured. That is no difference, and names change nothing."""
    for stage in ("under-static", "under-backed", "under-renaming"):
        assert difference(TWO_GUARDS, stage) is None, stage


@pytest.mark.parametrize("stage", ["under-static", "under-backed"])
def test_the_layout_of_a_masked_input_is_no_difference(stage: Stage) -> None:
    """Export makes dims unbacked by `index_select`, whose result is contiguous."""
    text = ROWS.replace("x = normal", "x = normal, transposed").replace("return t0", "return (t0, x.stride())")
    assert difference(text, stage) is None


def test_the_place_is_that_of_the_capture_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    asks(name_of_size)(monkeypatch)
    (found,) = classified(
        OracleInput(ROUND, observe(Run(ProgramSubject(ROUND), "under-input-order"))), observe, ("relations",)
    )
    measured = found.failure.observation.measurement(RelationDifference)
    assert measured is not None
    assert (measured.aspect, measured.capture) == ("verdict", "aot")
    assert (found.signature.site, found.signature.anchor) == (measured.site, measured.anchor)
    assert measured.how.startswith("in aot, it is captured; with inputs in reverse order, it fails: internal-error at ")


@pytest.mark.slow
def test_both_programs_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    text, plant = FAULTS["under-dead-code"]
    plant(monkeypatch)
    seen = observe(Run(ProgramSubject(text), "under-dead-code"))
    (failure,) = ORACLE.judge(OracleInput(text, seen))
    shown = dict(ORACLE.facts(failure))
    assert shown["compared"] == "assertions of aot"
    assert "dead_y = y == y" in shown["its program"]


def test_user_code_has_no_variants() -> None:
    seen = Observation("under-renaming", Run(ProgramSubject(ROWS), "under-renaming").semantics, "ok")
    assert ORACLE.judge(OracleInput("", seen)) == ()
    assert msgspec.structs.asdict(seen)["measured"] is None


def test_one_case_in_140_of_a_campaign_is_compared_with_a_variant() -> None:
    plan = Plan("default", 0, parse_budget("2000x"), 1, ("export", "aot"), (EXPLICIT,), in_turn=True, oracles=NAMES)
    stages = [plan.stages_of(index)[-1] for index in range(0, 140 * len(RELATIONS))]
    assert [stage for stage in stages if stage in FAULTS] == list(FAULTS)
    alone = replace(plan, oracles=("capture", "relations"))
    assert [alone.stages_of(CALLED * number) for number in range(len(RELATIONS))] == [(stage,) for stage in FAULTS]
    marked = replace(plan, stages=("export",), oracles=("relations",))
    assert not any(marked.stages_of(index) == ("under-hints",) for index in range(3500))
