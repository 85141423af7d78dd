"""Digests of captured programs: equal if and only if the captures compute the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import CHEAP_TO_CALL, RETRACES, CallableSubject, ProgramSubject, Run, Stage

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


CONSTANTS = """\
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor
FAKE = FakeTensorMode(allow_non_fake_inputs=True).from_tensor(torch.ones(3))
TWO = TwoTensor(torch.ones(3), torch.ones(3))
def gradient(x):
    return torch.func.grad(lambda y: (y.sin() * torch.tensor([1.0, 2.0, 3.0])).sum())(x)
def fake(x):
    return x + FAKE
class OfTwo(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(TWO)
    def forward(self, x):
        return x + self.weight
def two():
    return OfTwo(), (torch.randn(3),)
gradient_args = fake_args = (torch.randn(3),)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", [stage for stage in CHEAP_TO_CALL if stage not in RETRACES])
@pytest.mark.parametrize("name", ["gradient", "fake", "two"])
def test_a_constant_that_cannot_be_read_is_like_no_other(tmp_path: Path, name: str, stage: Stage) -> None:
    path = tmp_path / f"constants_{name}.py"
    path.write_text(CONSTANTS)
    run = Run(CallableSubject(str(path), name=name), stage, calls=("example",))
    if (name, stage) == ("fake", "export"):
        assert observe(run).outcome == "fail"  # torch refuses such a constant
        return
    seen, again = observe(run), observe(run)
    assert (seen.outcome, again.outcome) == ("ok", "ok")
    if (name, stage) == ("gradient", "export"):
        assert seen.digest != again.digest
    if name == "fake":
        assert [call.agreement for call in seen.calls] == ["incomparable"]
