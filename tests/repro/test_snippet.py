"""Tests of the snippet of a finding: few lines, one capture, nothing of ddefuzz."""

from __future__ import annotations

import msgspec
import pytest

from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Stage
from ddefuzz.findings.model import Finding
from ddefuzz.repro.finding import finding_snippet
from tests.findings.arbitrary_findings import CHUNK, failure_of

TIED = """\
# ddefuzz program v1
# inputs: x = normal; y = ones
def program(x: Float32[Tensor, "u0=3 u1=4 u0=3"], y: Int64[Tensor, "u0=3"]):
    total = x.sum(0) + y
    return torch.chunk(total, 2)
"""

FINDING = Finding(
    id=f"{CHUNK.key}",
    signature=CHUNK,
    cause="avoidable",
    failure=failure_of(CHUNK),
    original=TIED,
)

EXPORT = """\
import torch

class Program(torch.nn.Module):
    def forward(self, x, y, keep_u0, keep_u1):
        u0 = keep_u0.nonzero().squeeze(1)
        x = x.index_select(0, u0)
        x = x.index_select(2, u0)
        y = y.index_select(0, u0)
        x = x.index_select(1, keep_u1.nonzero().squeeze(1))
        total = x.sum(0) + y
        return torch.chunk(total, 2)

inputs = (torch.randn((3, 4, 3)), torch.ones((3,), dtype=torch.int64), torch.ones(3, dtype=torch.bool), torch.ones(4, dtype=torch.bool))
torch.export.export(Program(), inputs, strict=False)
"""  # noqa: E501

COMPILE = """\
import torch
from torch._dynamo.decorators import mark_unbacked

def program(x, y):
    for size in (x.shape[2], y.shape[0]): torch._check(x.shape[0] == size)
    total = x.sum(0) + y
    return torch.chunk(total, 2)

inputs = (torch.randn((3, 4, 3)), torch.ones((3,), dtype=torch.int64))
mark_unbacked(inputs[0], [0, 1, 2])
mark_unbacked(inputs[1], 0)
torch._dynamo.config.capture_scalar_outputs = True
torch._dynamo.config.capture_dynamic_output_shape_ops = True
torch.compile(program, backend="aot_eager", fullgraph=True)(*inputs)
"""


@pytest.mark.parametrize(("stage", "snippet"), [("export", EXPORT), ("aot", COMPILE)])
def test_the_lines(stage: Stage, snippet: str) -> None:
    assert finding_snippet(FINDING, stage) == snippet


def test_a_finding_without_a_snippet_is_an_input_error() -> None:
    steps = "".join(f"    t{number} = x + {number}\n" for number in range(12))
    long = TIED.replace("    total = ", f"{steps}    total = ")
    with pytest.raises(InputError, match=r"its snippet has 24 lines, expected at most 15: use --repro$"):
        finding_snippet(msgspec.structs.replace(FINDING, original=long))
    with pytest.raises(InputError, match="found the stage fake, expected one of export, "):
        finding_snippet(FINDING, "fake")
