"""Digests of captured programs: equal if and only if the captures compute the same."""

from __future__ import annotations

import pytest

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import CHEAP_TO_CALL, ProgramSubject, Run, Stage

HEADER = "# ddefuzz program v1\n# inputs: x = normal\n"
PROGRAM = f'{HEADER}def program(x: Float32[Tensor, "u0=3 4"]):\n    return x + torch.tensor([[1.0, 2.0, 3.0, 4.0]])\n'


def digest(text: str, stage: Stage) -> str:
    return observe(Run(ProgramSubject(text), stage, calls=("example",))).digest


@pytest.mark.parametrize("stage", CHEAP_TO_CALL)
def test_two_captures_of_one_program_have_one_digest(stage: Stage) -> None:
    assert digest(PROGRAM, stage) == digest(PROGRAM, stage) != ""


@pytest.mark.parametrize("stage", CHEAP_TO_CALL)
@pytest.mark.parametrize(("old", "new"), [("4.0", "5.0"), (" + ", " - ")], ids=["constant", "op"])
def test_another_constant_or_op_is_another_program(stage: Stage, old: str, new: str) -> None:
    assert digest(PROGRAM.replace(old, new), stage) != digest(PROGRAM, stage)


def test_a_run_without_calls_has_no_digest() -> None:
    assert observe(Run(ProgramSubject(PROGRAM), "export")).digest == ""
