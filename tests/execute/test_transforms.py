"""A call that leaves transforms of torch.func on does not end a run: arguments of the next call are made without."""

from __future__ import annotations

import pytest

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import EXPLICIT, ProgramSubject, Run
from ddefuzz.instrument import torch_api

FAILS_WITHIN_VMAP = """# ddefuzz program v1
# inputs: x = normal; sizes = sizes(4, 3, 5); y = normal
def program(x: Float32[Tensor, "2 3 4"], sizes: Int64[Tensor, "3"], y: Float32[Tensor, "3 1 4 2"]):
    a = torch.repeat_interleave(x, sizes, dim=1)
    b = torch.func.grad(lambda p: torch.vmap(torch.matmul)(torch.ones((3, (p.shape[1] + 1) // 2, 2, 4)), y).sum())(a)
    return b
"""


@pytest.mark.slow
def test_a_call_that_fails_within_a_transform_is_left() -> None:
    run = Run(ProgramSubject(FAILS_WITHIN_VMAP), "export", EXPLICIT, calls=("example", "0", "1"))
    calls = observe(run).calls
    assert [call.size for call in calls] == ["example", "0", "1"]
    assert all(call.captured.error for call in calls)
    assert torch_api.bound(torch_api.FUNCTORCH_DEPTH)() == 0
