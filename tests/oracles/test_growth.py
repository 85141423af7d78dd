"""Questions about sizes that grow faster than the program: what is judged, who is named, and a planted fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddefuzz.campaign.plan import CALLED, Plan, parse_budget
from ddefuzz.classify.failure import Failure
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import EXPLICIT, Observation, measured
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.growth import BLOCKS, ORACLE, Growth, Growths, counts_of, judge, script
from ddefuzz.oracles.program import judge_program, kept, observe, shows, suspect_of
from ddefuzz.oracles.table import NAMES
from tests.oracles.planted_growth import quadratic

TEXT = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "6"]):
    kept = x[x > -9.0]
    return (kept.sum(), torch.stack((kept, kept)))
"""
"""Each block makes a new unbacked size."""

CHAIN = """\
# ddefuzz program v1
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "6"], y: Float32[Tensor, "6"]):
    kept = y[y > -9.0]
    return torch.cat((x, kept))
"""
"""The result of a block is the first input of the next: its size is a sum of one more symbol."""

VIEW = """\
# ddefuzz program v1
# inputs: x = normal; sizes = sizes(3, 4)
def program(x: Float32[Tensor, "6 4"], sizes: Int64[Tensor, "2"]):
    return x.view(sizes[0].item(), -1)
"""


def observation(*growths: Growth) -> Observation:
    return Observation("grow", EXPLICIT, "ok", measured=measured(Growths(growths)))


REFS = "torch/_refs/__init__.py"
SHAPES = "torch/fx/experimental/symbolic_shapes.py"
LINEAR = Growth("evaluate_expr", 40, 160, ((REFS, "cat"), ("torch/_ops.py", "__call__")), "Eq(u, 0)")
STEEP = Growth("evaluate_expr", 40, 560, ((REFS, "roll"), ("torch/_ops.py", "__call__")), "u >= 0")
INSIDE = Growth("_find", 40, 600, ((REFS, "cat"), (SHAPES, "replace")), "")


def test_the_first_steep_count_is_reported_and_the_steep_ones_are_kept() -> None:
    seen = observation(STEEP, Growth("simplify", 1, 40, (), "u"), INSIDE)
    (judged,) = judge_program(TEXT, ("grow",), (EXPLICIT,), lambda run: seen, oracles=("growth",))
    (found,) = judged.failures
    assert str(found.signature) == "slow-export at torch/_refs/__init__.py:roll [evaluate_expr u >= 0]"
    assert found.failure.evidence == "it calls evaluate_expr 40 times for 4 blocks and 560 times for 16: n^1.9"
    assert counts_of(found.failure.observation) == (STEEP, INSIDE), "40 calls of simplify are too few to say anything"
    suspect = suspect_of(TEXT, found.signature, kept(found.failure))
    assert (suspect.stage, suspect.calls) == ("grow", ())
    assert shows(suspect, TEXT, lambda run: seen) is not None
    assert shows(suspect, TEXT, lambda run: observation(LINEAR)) is None


def test_growth_inside_of_shape_reasoning_is_named_there() -> None:
    """One evaluation looks up every symbol of a sum: the callers of evaluate_expr are not to blame."""
    (judged,) = judge_program(
        TEXT, ("grow",), (EXPLICIT,), lambda run: observation(LINEAR, INSIDE), oracles=("growth",)
    )
    assert str(judged.failures[0].signature) == f"slow-export at {SHAPES}:replace [_find]"


def test_linear_growth_and_few_calls_are_no_alarms() -> None:
    assert LINEAR.exponent == pytest.approx(1.0)
    assert judge(OracleInput(TEXT, observation(LINEAR, Growth("replace", 2, 59, (), "u")))) == ()
    late = Growth("replace", 3, 600, (), "u")
    assert judge(OracleInput(TEXT, observation(late))) == (), "a cache that is full in many blocks"
    assert judge(OracleInput(TEXT, Observation("grow", EXPLICIT, "not-judged"))) == ()


def test_a_script_counts_the_first_steep_method() -> None:
    (failure,) = judge(OracleInput(TEXT, observation(LINEAR, INSIDE)))
    expected = {"method": "_find", "caller": "replace", "calls": "40 and 600"}
    assert script(TEXT, "grow", failure).expected == expected


def test_one_case_in_350_of_a_campaign_is_repeated() -> None:
    plan = Plan("capture", 0, parse_budget("2000x"), 1, ("export", "compile"), (EXPLICIT,), in_turn=True, oracles=NAMES)
    grown = [index for index in range(3500) if plan.stages_of(index) == ("grow",)]
    assert len(grown) == 9  # the tenth is one of a block for inductor
    assert all(index % CALLED == 0 for index in grown)
    for other in (replace(plan, stages=("compile",)), replace(plan, oracles=("capture", "recompilation"))):
        assert not any(other.stages_of(index) == ("grow",) for index in range(3500))


def test_each_called_case_is_repeated_if_no_other_oracle_is_chosen() -> None:
    plan = Plan("default", 0, parse_budget("9x"), 1, ("export",), (EXPLICIT,), oracles=("capture", "growth"))
    assert [index for index in range(3 * CALLED) if plan.stages_of(index) == ("grow",)] == [0, CALLED, 2 * CALLED]


@pytest.mark.slow
@pytest.mark.long
def test_a_quadratic_pass_in_the_hook_is_named() -> None:
    with quadratic():
        (judged,) = judge_program(TEXT, ("grow",), (EXPLICIT,), observe, oracles=NAMES)
    (found,) = judged.failures
    assert found.signature.kind == "slow-export"
    assert (found.signature.site.function, found.rule) == ("planted", "growth")
    assert found.signature.anchor == "_maybe_evaluate_static"
    assert found.failure.evidence.startswith("it calls _maybe_evaluate_static ")


@pytest.mark.slow
def test_without_the_fault_there_is_no_alarm() -> None:
    (judged,) = judge_program(TEXT, ("grow",), (EXPLICIT,), observe, oracles=NAMES)
    assert judged.observation.outcome == "ok"
    assert {one.of for one in counts_of(judged.observation)} >= {"evaluate_expr", "_maybe_evaluate_static"}
    assert judged.failures == ()
    assert ORACLE.is_for("grow")
    assert BLOCKS[1] > BLOCKS[0]


@pytest.mark.slow
def test_a_size_that_is_a_sum_of_all_symbols_makes_an_export_slow() -> None:
    """`ShapeEnv.replace` (torch/fx/experimental/symbolic_shapes.py) looks up each symbol of an expression."""
    (judged,) = judge_program(CHAIN, ("grow",), (EXPLICIT,), observe, oracles=NAMES)
    (found,) = judged.failures
    assert str(found.signature) == f"slow-export at {SHAPES}:replace [_find]"
    assert counts_of(found.failure.observation)[0].exponent > 1.5


@pytest.mark.slow
def test_views_with_a_size_to_infer_make_an_export_slow() -> None:
    """`ShapeEnv._maybe_evaluate_static` simplifies each known equation with a division at each evaluation."""
    (judged,) = judge_program(VIEW, ("grow",), (EXPLICIT,), observe, oracles=NAMES)
    (found,) = judged.failures
    assert str(found.signature) == f"slow-export at {SHAPES}:resimplify_floor_div [simplify]"


def test_a_stored_failure_without_counts_is_said() -> None:
    empty = Failure("slow-export", observation(), "it calls replace 1 time")
    with pytest.raises(InputError, match="found a measurement without counts"):
        script(TEXT, "grow", empty)
