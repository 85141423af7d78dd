"""What `ddefuzz cost` says of hand-made measurements."""

from __future__ import annotations

import msgspec
import pytest

from ddefuzz.artifacts.model import Cause
from ddefuzz.cost.measure import candidates
from ddefuzz.cost.model import Code, Cost, Evaluation, ExportCost, Look, Question, QuestionEffect, Timing
from ddefuzz.cost.report import chain_text, costs_view
from ddefuzz.cost.sampling import Fit, FunctionGrowth
from ddefuzz.show.markdown import markdown

GUARD = Question("guard", "torch/_decomp/decompositions.py", 1325, "amax", "u0 > 0", "False", "True")
HINT = Question("hint", "torch/_inductor/codegen/cpp.py", 2453, "size_hint", "64*u0", "524288", "131072")
SLOW = Code(generated=2, library=0, fallback=0, passes=6, vector_lines=12, guards=1, assertions=1)
FAST = Code(generated=1, library=0, fallback=0, passes=4, vector_lines=10, guards=1, assertions=0)
FAILURE = Cause("dde", "torch/_inductor/kernel/bmm.py:f", "", "avoidable", "needs u0 == 1", "Could not guard on u0")


def cost(*, answered: float = 10.0, unanswered: float = 20.0, backed: float = 10.0) -> Cost:
    decided = QuestionEffect((GUARD,), FAST, (answered,) * 3, (unanswered,) * 3, (backed,) * 3)
    return Cost(
        "softmax",
        "2.13.0",
        (Look("backed", "ok", code=FAST), Look("unbacked", "ok", code=SLOW, questions=(GUARD, HINT))),
        (
            Timing("backed", 1.0, 0.8, {"dynamo": 0.1}, {"example": (10.0, 10.0)}),
            Timing("unbacked", 1.5, 0.9, {"dynamo": 0.2}, {"example": (20.0, 15.0)}),
            Timing("eager", rounds={"example": (5.0, 5.0)}),
        ),
        (decided,),
        asked=2,
        tried=2,
    )


def test_the_page_has_code_times_and_the_question_that_decides() -> None:
    text = markdown(costs_view([cost()]))
    assert "| unbacked | 2 | 0 | 0 | 6 | 12 | 1 | 1 |" in text
    assert "| example | 5.0 | 10.0 | 17.5 |" in text
    assert "1.75 (1.62 to 1.88)" in text
    assert "`u0 > 0 at torch/_decomp/decompositions.py:1325 amax` | guard | False | True | 1 | 4 | 10 |" in text
    assert "100%" in text
    assert "| unbacked | 1.50 | 0.90 | 0.20 |" in text


@pytest.mark.parametrize(
    ("answered", "unanswered", "backed", "recovered"),
    [(10.0, 20.0, 10.0, 1.0), (15.0, 20.0, 10.0, 0.5), (20.0, 20.0, 10.0, 0.0), (9.0, 10.0, 9.9, None)],
)
def test_what_an_answer_brings_back(answered: float, unanswered: float, backed: float, recovered: float | None) -> None:
    (decided,) = cost(answered=answered, unanswered=unanswered, backed=backed).decided
    assert decided.recovered == recovered


def test_an_answer_that_was_not_timed_is_shown_without_a_ratio() -> None:
    (decided,) = cost().decided
    untimed = msgspec.structs.replace(decided, answered=())
    assert (untimed.ratios, untimed.recovered) == ((), None)
    shown = markdown(costs_view([msgspec.structs.replace(cost(), decided=(untimed,))]))
    assert "| guard | False | True | 1 | 4 | 10 | \\- | \\- |" in shown


def test_an_error_at_one_size_leaves_the_others() -> None:
    half = Timing("bounds", 1.0, 0.5, rounds={"example": (5.0,)}, errors={"half": "RuntimeError: u0 >= 2"})
    text = markdown(costs_view([msgspec.structs.replace(cost(), timings=(*cost().timings, half))]))
    assert "bounds, size half: RuntimeError: u0 >= 2" in text


def test_a_program_that_compiles_and_cannot_be_called_is_said() -> None:
    strides = "AssertionError: expected size 16==16, stride 1==16 at dim=1"
    failing = Timing("unbacked", 1.0, 0.5, errors={"example": strides})
    text = markdown(costs_view([msgspec.structs.replace(cost(), timings=(failing,)), cost()]))
    assert f"cannot be called: {strides}" in text


def test_a_question_that_backed_sizes_do_not_decide_either_is_no_candidate() -> None:
    unbacked = Look("unbacked", "ok", code=SLOW, questions=(GUARD, HINT, HINT))
    assert list(candidates(unbacked, Look("backed", "ok", code=FAST))) == [GUARD, HINT]
    assert list(candidates(unbacked, Look("backed", "ok", code=FAST, questions=(HINT,)))) == [GUARD]


def test_the_slowest_program_is_first_and_what_fails_is_said() -> None:
    failing = Cost("bmm", "2.13.0", (Look("unbacked", "fail", "Could not guard on u0", FAILURE),))
    text = markdown(costs_view([failing, cost()]))
    rows = [line for line in text.splitlines() if line.startswith(("| `softmax`", "| `bmm`"))]
    assert [row.split(" | ")[0] for row in rows] == ["| `softmax`", "| `bmm`"]
    assert "does not compile: torch/\\_inductor/kernel/bmm.py:f" in text or "does not compile: torch/_inductor" in text


def test_a_program_that_compiles_only_with_bounds_is_measured_with_bounds() -> None:
    failing = Look("unbacked", "fail", "Could not guard on u0", FAILURE)
    looks = (Look("backed", "ok", code=FAST), failing, Look("bounds", "ok", code=SLOW))
    timings = (
        Timing("backed", 1.0, 0.8, rounds={"example": (10.0, 10.0)}),
        Timing("bounds", 1.0, 0.5, rounds={"example": (20.0, 20.0)}),
        Timing("eager", rounds={"example": (40.0, 40.0)}),
    )
    measured = msgspec.structs.replace(cost(), looks=looks, timings=timings, program="def program(): ...\n")
    assert measured.measured == "bounds"
    text = markdown(costs_view([measured, cost()]))
    assert "| size | bounds / backed | bounds / static | bounds / eager |" in text
    assert "| `softmax` | 2.00 (2.00 to 2.00) | \\- | 2 / 1 | 6 / 4" in text
    assert "the numbers are those with bounds; u0" in text
    assert "Questions that decide with bounds" in text
    assert "def program(): ..." in text


def test_the_page_of_an_export_has_expressions_and_functions_with_their_callers() -> None:
    steep = FunctionGrowth(
        "torch/fx/a.py:simplify", 1.2, 0.4, Fit(1.7, (1.6, 1.8)), ("torch/fx/a.py:f", "torch/fx/a.py:g")
    )
    measured = ExportCost(
        seconds=0.5,
        calls={"evaluate_expr": 1200, "repeated": 800},
        expressions=(Evaluation("Eq(u, 1)", 900, 700),),
        sites=(Evaluation("torch/_refs/__init__.py:cat", 60),),
        blocks=((2, 0.1), (4, 0.3), (8, 0.9)),
        fit=Fit(1.6, (1.5, 1.7)),
        growing=(steep,),
    )
    text = markdown(costs_view([Cost("model", "2.13.0", export=measured)]))
    assert "| `Eq(u, 1)` | 900 | 700 |" in text
    assert "| 8 | 0.90 |" in text
    assert "grows as n^1.60 (1.50 to 1.70). After the last doubling it is 3.0 times as long" in text
    assert "callers, outermost first: torch/fx/a.py:f > g" in text.replace("&gt;", ">").replace("\\", "")


def test_a_chain_names_a_file_once() -> None:
    assert chain_text(("a.py:f", "a.py:g", "b.py:h", "a.py:f")) == "a.py:f > g > b.py:h > a.py:f"
