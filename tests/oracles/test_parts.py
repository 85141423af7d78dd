"""The search for the part of inductor to blame, in a plain function that stands for it and of which a part is wrong."""

from __future__ import annotations

import pytest

from ddefuzz.classify.signature import Signature, Site
from ddefuzz.execute.parts import GROUPS
from ddefuzz.execute.protocol import EXPLICIT, Call, CallEnd, Difference, Observation, Part, Run
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.parts import NAMES, part_to_blame

TEXT = """# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=3"]):
    return torch.neg(x)
"""
RETURNED = CallEnd()
WRONG = Call("2", RETURNED, RETURNED, "differs", (Difference("values", "result", "how"),), symbols=(("u0", 2),))
RIGHT = Call("2", RETURNED, RETURNED, "same")
FILES = {
    "lowerings": "torch/_inductor/lowering.py",
    "known answers": "torch/_inductor/ir.py",
    "passes": "torch/_inductor/fx_passes/post_grad.py",
}
PARTS = tuple(
    Part(group, file, f"f{at}", "False" if at < 4 else "True") for group, file in FILES.items() for at in range(6)
)


class Inductor:
    """A plain function in place of torch: `guilty` parts make a program wrong, without `needed` none is captured."""

    def __init__(self, guilty: tuple[Part, ...], needed: str = "") -> None:
        self.guilty, self.needed, self.compiled = guilty, needed, 0

    def __call__(self, run: Run) -> Observation:
        self.compiled += 1
        assert run.symbols == WRONG.symbols
        seen = tuple(one for one in PARTS if any(text.startswith(one.group) for text in run.out))
        left = [one for one in self.guilty if not {one.group, str(one)} & set(run.out)]
        calls = () if self.needed in run.out else (WRONG if left else RIGHT,)
        return Observation("inductor", EXPLICIT, "ok", calls=calls, parts=seen)

    def blamed(self, stage: str = "inductor", expected: Signature | None = None) -> str | None:
        subject = OracleInput(TEXT, Observation(stage, EXPLICIT, "ok", calls=(WRONG,)), expected=expected)
        found = part_to_blame(subject, WRONG, lambda _, call: call.agreement == "differs", self)
        return None if found is None else f"{found.site} [{found.anchor}]"


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("needed", ["", "lowerings", "vectors"])
def test_the_part_that_is_wrong_is_named(part: Part, needed: str) -> None:
    inductor = Inductor((part,), needed)
    prefix = "answered" if part.group == "known answers" else part.group
    expected = None if part.group == needed else f"{part.file}:{part.function} [{prefix} {part.name}]"
    assert inductor.blamed() == expected
    assert inductor.compiled <= (16 if needed else 9)


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_a_part_that_is_expected_is_tried_first(part: Part) -> None:
    said = Inductor((part,)).blamed()
    prefix = "answered" if part.group == "known answers" else part.group
    expected = Signature("wrong-result", Site("Python", part.file, part.function), f"{prefix} {part.name}")
    inductor = Inductor((part,))
    assert (inductor.blamed(expected=expected), inductor.compiled) == (said, 2)
    other = next(one for one in PARTS if one != part)
    assert Inductor((other,)).blamed(expected=expected) == Inductor((other,)).blamed()


@pytest.mark.parametrize("group", [group for group in GROUPS if group.name not in FILES], ids=lambda group: group.name)
def test_a_group_without_parts_is_named(group: object) -> None:
    assert isinstance(group, type(GROUPS[0]))
    whole = group.whole
    place = f"{whole.file}:{whole.function}" if whole.file and whole.function else whole.file or whole.function
    assert Inductor((whole,)).blamed() == f"{place} [{group.name}]"


def test_a_group_of_which_no_part_alone_is_wrong_is_named() -> None:
    unknown = Part("passes", "", "not met")
    assert Inductor((unknown,)).blamed() == "torch/_inductor/fx_passes/ [passes]"


def test_of_two_faults_the_last_group_is_named() -> None:
    """The result is right only without both. Nothing says which of them to mend first."""
    assert Inductor((PARTS[0], PARTS[-1])).blamed() == "torch/_inductor/lowering.py:f0 [lowerings False]"


@pytest.mark.parametrize("call", [Call("2", RETURNED, CallEnd("RuntimeError: no")), Call("2", RETURNED, RETURNED)])
def test_a_call_that_is_not_compared_is_not_right(call: Call) -> None:
    subject = OracleInput(TEXT, Observation("inductor", EXPLICIT, "ok", calls=(WRONG,)))

    def runner(run: Run) -> Observation:
        return Observation("inductor", EXPLICIT, "ok", calls=(call,))

    assert part_to_blame(subject, WRONG, lambda _, one: one.agreement == "differs", runner) is None


def test_what_is_wrong_without_any_part_has_none() -> None:
    outside = Part("elsewhere", "", "")
    inductor = Inductor((outside,))
    assert (inductor.blamed(), inductor.compiled) == (None, 1)


def test_only_what_is_compiled_has_parts() -> None:
    inductor = Inductor(PARTS)
    assert (inductor.blamed("aot"), inductor.compiled) == (None, 0)


def test_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)
