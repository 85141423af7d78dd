"""What is no alarm, and which place is named, for programs that campaigns judged or blamed wrongly. Real torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import torch

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import EXPLICIT, ProgramSubject, Run, Stage
from ddefuzz.findings.model import slim
from ddefuzz.instrument.events import Answer, Place
from ddefuzz.oracles.capture import stack_to
from ddefuzz.oracles.program import judge_program

HEADER = "# ddefuzz program v1\n# inputs: x = "
EXPANDS = f"""{HEADER}normal, grad
def program(x: Float32[Tensor, "u0=3"]):
    t0 = x.unsqueeze(0).expand(x.shape[0] - 1, -1)
    return torch.autograd.grad(t0.sum(), [x], allow_unused=True)
"""
SQUEEZES = f"""{HEADER}trues(7)
def program(x: Bool[Tensor, "8"]):
    t0 = x.nonzero().squeeze(1)
    t1 = torch.squeeze(t0, -1) * 1.0
    return torch.full((t1.shape[0],), 0.5)
"""
SIZES_OF_A_REFUSED_RESULT = f"""{HEADER}normal
def program(x: Float32[Tensor, "u0=5 2 2"]):
    t0 = torch.ones((x.shape[0], 2, 5, 6))
    t1 = torch.nn.functional.interpolate(t0, size=(t0.shape[0] % 4, 4), mode='bilinear')
    t2 = t0.amax(1).sum(0).sum(0)
    return torch.take(t2, torch.arange(torch.sym_max(t1.shape[0], 1)))
"""


SPLITS_BY_THE_SIZES_OF_A_SQUEEZE = f"""{HEADER}normal
def program(x: Float32[Tensor, "u0 u0 2"]):
    t0 = torch.squeeze(x, 0)
    return torch.split(x, [t0.shape[0], x.shape[0] - t0.shape[1]])
"""
"""With the true value of the guard in `squeeze`, dynamo's capture asserts `u0 >= 2`, which contradicts it."""


RUNS_WITH_ONE_ROW = f"""{HEADER}normal; y = normal; z = normal
def program(x: Float32[Tensor, "u0=3 u1=4"], y: Float32[Tensor, "u2=3 1"], z: Float32[Tensor, "u3=4"]):
    return torch._decomp.decompositions._fused_rms_norm_backward(x, x, [4], y, z, [True, True])
"""
"""`random-2` gives `y` one row, and `x` nine. The capture makes both sizes one symbol."""


IN_SQUEEZE = (
    "missing-assertion at torch/_refs/__init__.py:squeeze [tuple((d for d in dims if guard_or_false(a.shape[d] == 1)))]"
)


def failures(text: str, stage: Stage, oracle: str) -> list[str]:
    (judged,) = judge_program(text, (stage,), (EXPLICIT,), observe, oracles=(oracle,), compare=False)
    assert judged.observation.calls
    return [str(one.signature) for one in judged.failures]


@pytest.mark.parametrize("oracle", ["assertions", "agreement"])
def test_expand_keeps_a_size_for_a_literal_only_and_may_copy(oracle: str) -> None:
    assert failures(EXPANDS, "export", oracle) == []


@pytest.mark.slow
def test_symbols_that_became_one_keep_the_sizes_of_their_own_dims() -> None:
    (call,) = observe(Run(ProgramSubject(RUNS_WITH_ONE_ROW), "export-strict", calls=("random-2",))).calls
    assert {(one, size) for one, size in call.symbols if one in {"u0", "u2"}} == {("u0", 9), ("u2", 1)}
    assert failures(RUNS_WITH_ONE_ROW, "export-strict", "assertions") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "stage", "named"),
    [
        (
            SQUEEZES,
            "aot",
            IN_SQUEEZE,
        ),
        (
            SPLITS_BY_THE_SIZES_OF_A_SQUEEZE,
            "export-strict",
            IN_SQUEEZE,
        ),
        (SIZES_OF_A_REFUSED_RESULT, "aot", "missing-assertion at torch.nn.functional.interpolate [RuntimeError]"),
    ],
    ids=["squeeze", "sizes of a squeeze", "interpolate"],
)
def test_what_eager_refuses_later_is_blamed_on_what_differs_first(text: str, stage: Stage, named: str) -> None:
    assert failures(text, stage, "assertions") == [named]


GRADIENT_OF_A_DTENSOR = f"""{HEADER}normal, shard0, grad; w = normal, replicate
def program(x: Float32[Tensor, "u0=8 4"], w: Float32[Tensor, "4 3"]):
    return x @ w
"""
"""AOTAutograd keeps the traced sizes of the result, and compares those of its gradient with them."""


@pytest.mark.slow
def test_a_data_dependent_error_of_a_call_is_blamed_on_the_code_that_asked() -> None:
    asking = "torch/_functorch/_aot_autograd/runtime_wrappers.py:maybe_coerce [expected_meta == runtime_meta]"
    assert failures(GRADIENT_OF_A_DTENSOR, "aot", "assertions") == [f"over-strict at {asking}"]


@dataclass(frozen=True)
class Inverted:
    """A program, the stage that shows the fault, and the line of torch whose guards are answered True."""

    text: str
    stage: Stage
    file: str
    code: str

    def line(self) -> int:
        lines = (Path(torch.__file__).parents[1] / self.file).read_text().splitlines()
        (line,) = (number for number, line in enumerate(lines, 1) if self.code in line)
        return line


INVERTED = {
    "evaluated in two calls of a function": Inverted(
        f"""{HEADER}trues(6); y = normal
def program(x: Bool[Tensor, "3 4"], y: Float32[Tensor, "1 2 4 4"]):
    t0 = torch.amax(torch.nonzero(x).float(), (1,))
    return torch.nn.functional.grid_sample(y, torch.zeros((1, t0.shape[0] // 2, 3, 2)), align_corners=False)
""",
        "aot",
        "torch/_refs/__init__.py",
        "if guard_or_false(sym_and(x == 1, y == 1)):",
    ),
    "repeated by an assertion": Inverted(
        f"""{HEADER}normal
def program(x: Float32[Tensor, "u0=5"]):
    return torch.masked.log_softmax(x, 0, mask=None)
""",
        "export",
        "torch/_decomp/decompositions.py",
        "if guard_or_false(x.shape[canonical_dim] > 0):",
    ),
    "two guards in a line": Inverted(
        RUNS_WITH_ONE_ROW,
        "export",
        "torch/_decomp/decompositions.py",
        "if guard_or_false(M == 0) or guard_or_false(N == 0):",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", INVERTED.values(), ids=INVERTED)
def test_an_inverted_answer_is_named_by_its_line(fault: Inverted) -> None:
    answer = Answer(Place("Python", fault.file, fault.line()), True)
    semantics = msgspec.structs.replace(EXPLICIT, answers=(answer,))
    oracles = ("agreement", "assertions")
    (judged,) = judge_program(fault.text, (fault.stage,), (semantics,), observe, oracles=oracles, compare=False)
    assert {one.frame.line if one.frame else None for one in judged.failures} == {fault.line()}


@pytest.mark.slow
def test_the_page_has_the_frames_that_lead_to_the_blamed_guard() -> None:
    (judged,) = judge_program(SQUEEZES, ("aot",), (EXPLICIT,), observe, oracles=("assertions",), compare=False)
    (found,) = judged.failures
    stack = stack_to(slim(found.failure), found.signature.site)
    assert stack.site is not None
    assert (stack.site, stack.site.file, stack.site.function) == (
        stack.frames[-1],
        "torch/_refs/__init__.py",
        "squeeze",
    )
    assert [guard.path for guard in judged.observation.guards if guard.path] == []
