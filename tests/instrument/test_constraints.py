"""Tests of the constraint hooks on real torch: what a capture assumes of unbacked symbols, and who made it."""

from __future__ import annotations

import pytest
import torch

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, Stage
from ddefuzz.instrument.events import Constraint, Place
from ddefuzz.instrument.guards import watch
from ddefuzz.program.sizes import CallSize

HEADER = "# ddefuzz program v1\n"
OWN_BROADCAST = f"""{HEADER}# inputs: x = normal
def program(x: Float32[Tensor, "u0=3 4"]):
    return x[:1] + x
"""
SPECIALIZED = f"""{HEADER}# inputs: mask = trues(3); x = normal
def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "3"]):
    return mask.nonzero().squeeze(1) + torch.ones(3)
"""


def seen(text: str, stage: Stage, *calls: CallSize) -> Observation:
    return observe(Run(ProgramSubject(text), stage, calls=calls))


def innermost(constraint: Constraint) -> str:
    return next(
        frame.file for frame in reversed(constraint.python) if not frame.file.startswith("torch/fx/experimental")
    )


@pytest.mark.parametrize("stage", ["export", "aot"])
def test_a_failed_assertion_has_the_code_that_made_it(stage: Stage) -> None:
    (made,) = seen(OWN_BROADCAST, stage, "example").constraints
    assert (made.kind, made.method, made.place.file) == ("assertion", "expect_true", "torch/_subclasses/fake_impls.py")
    assert made.text == seen(OWN_BROADCAST, stage, "example").calls[0].captured.expression
    assert made.place.language == "Python"
    assert innermost(made) == "torch/__init__.py"


def test_constraints_that_every_call_satisfies_are_left_out() -> None:
    assert seen(OWN_BROADCAST, "export", "1").constraints == ()
    assert seen(OWN_BROADCAST, "export").constraints == ()


def test_a_replacement_by_a_number_has_the_code_that_made_it() -> None:
    found = seen(SPECIALIZED, "export", "1").constraints
    assert ("replacement", "u0 = 3") in [(one.kind, one.text) for one in found]
    assert all(isinstance(one.place, Place) and one.python for one in found)


def test_a_hook_keeps_no_tensor_of_an_export_alive() -> None:
    """A cycle through a hook's frame keeps the fake tensors of an export. A later export takes them for constants."""

    class Ones(torch.nn.Module):
        def forward(self, n: torch.Tensor) -> torch.Tensor:
            return torch.ones(n.item()).sum()  # type: ignore[arg-type]

    for _ in range(8):
        with watch():
            torch.export.export(Ones(), (torch.tensor(5),), strict=False)


def test_dynamo_traces_a_function_that_calls_check_with() -> None:
    """dynamo knows `torch._check_with` by its identity, so no hook may stand in its place."""

    def checked(x: torch.Tensor) -> torch.Tensor:
        torch._check_with(IndexError, x.dim() > 0, lambda: "no dims")
        return x + 1

    for size in (2, 3):  # dynamo fills its table of functions when it traces first
        torch.compiler.reset()
        with watch():
            compiled = torch.compile(checked, backend="eager", fullgraph=True)
            assert torch.equal(compiled(torch.zeros(size)), torch.ones(size))
