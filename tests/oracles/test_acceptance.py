"""What captured programs may do otherwise than eager, on hand-made calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ddefuzz.execute.comparison import of_tensors
from ddefuzz.execute.protocol import EXPLICIT, Call, CallEnd, Difference, Observation, What
from ddefuzz.oracles import acceptance, agreement
from ddefuzz.oracles.blame import OracleInput

ROOT = Path(__file__).parents[2]
RETURNED, REFUSED = CallEnd(), CallEnd("RuntimeError: no")
PROGRAM = """# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=3"]):
{steps}
    return {returns}
"""


def seen(steps: str, returns: str, *calls: Call, stage: str = "export") -> OracleInput:
    lines = "\n".join(f"    {step}" for step in steps.split("; "))
    text = PROGRAM.format(steps=lines, returns=returns)
    return OracleInput(text, Observation(stage, EXPLICIT, "ok", calls=calls))


def differing(*places: str, what: What = "values") -> Call:
    return Call("2", RETURNED, RETURNED, "differs", tuple(Difference(what, place, "how") for place in places))


@pytest.mark.parametrize(
    ("steps", "returns", "place", "reported"),
    [
        # What does not depend on the random numbers is compared.
        ("a = torch.nn.functional.dropout(x, 0.0); b = torch.relu(x)", "[a, b]", "result[0]", False),
        ("a = torch.nn.functional.dropout(x, 0.0); b = torch.relu(x)", "[a, b]", "result[1]", True),
        ("a = torch.nn.functional.dropout(x, 0.0); b = torch.relu(x)", "b", "result", True),
        ("a = torch.randn_like(x); b = torch.relu(a); c = torch.neg(x)", "[b, [c]]", "result[0]", False),
        ("a = torch.randn_like(x); b = torch.relu(a); c = torch.neg(x)", "[b, [c]]", "result[1][0]", True),
        ("a = torch.neg(x)", "[torch.randn_like(a), a]", "result[0]", False),
        ("a = torch.neg(x)", "[torch.randn_like(a), a]", "result[1]", True),
        # Written into a tensor, they may be in each value.
        ("a = torch.neg(x); a.normal_()", "[x, a]", "result[0]", False),
        ("a = torch.empty_like(x); b = torch.add(x, a, out=x)", "[x]", "result[0]", False),
        # A value that is no part of the result may depend on them.
        ("a = torch.randn_like(x); b = torch.relu(x)", "b", "input x", False),
    ],
)
def test_only_what_depends_on_an_unspecified_result_is_excused(
    steps: str, returns: str, place: str, reported: bool
) -> None:
    judged = seen(steps, returns, differing(place))
    assert bool(agreement.judge(judged)) is reported
    names = {"random numbers", "uninitialized memory"}
    assert bool(acceptance.classes(judged) & names) is not reported


def test_ties_are_inductors() -> None:
    assert agreement.judge(seen("a = torch.argsort(x)", "a", differing("result"), stage="inductor")) == ()
    assert agreement.judge(seen("a = torch.argsort(x)", "a", differing("result"))) != ()
    assert agreement.judge(seen("a = torch.argsort(x)", "[a, x]", differing("result[1]"), stage="inductor")) != ()


def test_the_evidence_is_of_a_value_that_is_determined() -> None:
    (failure,) = agreement.judge(
        seen("a = torch.randn_like(x); b = torch.neg(x)", "[a, b]", differing("result[0]", "result[1]"))
    )
    assert failure.evidence == "at size 2: values of result[1]: how"


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (
            Call("2", RETURNED, RETURNED, "same", accepted=(Difference("alias", "result", "x only in eager"),)),
            {"a copy for a view"},
        ),
        (
            Call("2", RETURNED, RETURNED, "same", accepted=(Difference("alias", "result", "x only when captured"),)),
            {"a view for a copy"},
        ),
        (
            Call("2", RETURNED, RETURNED, "same", accepted=(Difference("strides", "result", "how"),)),
            {"strides of a copy"},
        ),
        (Call("2", RETURNED, RETURNED, "incomparable", why="eager differs from eager"), {"not compared"}),
        (Call("2", RETURNED, RETURNED, "same"), set()),
        (Call("2", REFUSED, REFUSED), set()),
        (
            Call("2", RETURNED, CallEnd("RuntimeError: no", "Eq(u0, u1)"), symbols=(("u0", 1), ("u1", 3))),
            {"a size of 1 does not broadcast"},
        ),
        (
            Call("2", CallEnd("RuntimeError: one appears to not have been used in the graph"), RETURNED),
            {"autograd's tape"},
        ),
        (Call("2", REFUSED, RETURNED), set()),
    ],
)
def test_classes_of_accepted_differences(call: Call, names: set[str]) -> None:
    assert acceptance.classes(seen("a = torch.neg(x)", "a", call)) == names


MARKED, GRADIENT = "requires a gradient, eager's requires no gradient", "Tensor, eager has NoneType"


@pytest.mark.parametrize(
    ("step", "how", "is_accepted"),
    [
        ("a = torch.cond(x[0] > 0, lambda p: p + 1, lambda p: p - 1, (x,))", (MARKED, GRADIENT), True),
        ("a = torch.cond(x[0] > 0, lambda p: p + 1, lambda p: p - 1, (x,))", (MARKED, "1 of 2 elements"), False),
        (
            "a = torch.cond(x[0] > 0, lambda p: p + 1, lambda p: p - 1, (x,))",
            ("requires no gradient, eager's …",),
            False,
        ),
        ("a = torch.neg(x)", (MARKED, GRADIENT), False),
    ],
)
def test_control_flow_may_mark_its_results(step: str, how: tuple[str, ...], is_accepted: bool) -> None:
    call = Call("2", RETURNED, RETURNED, "differs", tuple(Difference("requires_grad", "result", text) for text in how))
    judged = seen(step, "a", call)
    assert (agreement.judge(judged) == ()) is is_accepted
    assert ("control flow marks its results" in acceptance.classes(judged)) is is_accepted


def test_the_words_about_gradients_are_those_of_the_comparison() -> None:
    (one,) = of_tensors(torch.ones(2), torch.ones(2, requires_grad=True))
    assert one.how == MARKED


def test_the_classes_are_documented() -> None:
    page = (ROOT / "docs" / "oracles.md").read_text(encoding="utf-8")
    rows = (*acceptance.OF_RESULTS, *acceptance.OF_REFUSALS, *acceptance.OF_ERRORS)
    assert [row.name for row in rows if row.name not in page] == []
