"""Rows of the catalogue that are there for guard sites of C++: each reaches them in a sweep.

Sites are counted by file: their lines move from one version of torch to the next.
"""

from __future__ import annotations

from collections import Counter

import pytest

from ddefuzz.ops.catalogue import GROUPS, OPS
from ddefuzz.ops.gradients import SUMMED
from ddefuzz.ops.references import BACKEND
from ddefuzz.sweep.tasks import Caps, SweepTask, run_sweep
from tests.parameters import one_in

MATMUL = "aten/src/ATen/native/LinearAlgebra.cpp"

REACHED = {
    SUMMED: {"c10/core/SymbolicShapeMeta.cpp": 5},
    "torch.autograd.grad(torch.autograd.grad(torch.conv2d(x, w).sum(), [x], create_graph=True)[0].sum(), [w])[0]": {
        "aten/src/ATen/native/Convolution.cpp": 1
    },
    "torch.vmap(torch.matmul)(torch.relu(x), y)": {MATMUL: 2},
    "torch.vmap(torch.matmul)(x, y)": {MATMUL: 2},
    "torch.vmap(torch.matmul)(x, x[:, :1])": {MATMUL: 4},
    "torch.vmap(torch.cat)((x, y))": {"aten/src/ATen/WrapDimUtils.h": 1},
    "torch.unflatten(x, 0, (i[0].item(), -1))": {"aten/src/ATen/InferSize.h": 1},
    "torch.clone(x).__setitem__(0, x.sum(-1, keepdim=True)[1])": {
        "aten/src/ATen/TensorIndexing.h": 1,
        "aten/src/ATen/ExpandUtils.h": 1,
    },
    "torch.sparse_coo_tensor(i, i[0], (4, 4), check_invariants=False).to_dense()": {
        "aten/src/ATen/SparseTensorImpl.cpp": 1
    },
    "(x, torch._debug_has_internal_overlap(x[:, ::2]))[0]": {
        "aten/src/ATen/MemoryOverlap.cpp": 1,
        "c10/core/TensorImpl.h": 1,
    },
    BACKEND: {"aten/src/ATen/native/Convolution.cpp": 11},
}
"""By template the files, and at least so many sites in each."""

FOR_ARGUMENTS = {
    "(x.mul(2).backward(torch.ones_like(x), retain_graph=True), x.grad)[1]",
    "torch.autograd.grad(x * x, x, torch.ones_like(x), create_graph=True)[0]",
}
"""Rows that are there because no other gives these arguments another value than the default."""


@pytest.mark.slow
@pytest.mark.parametrize("template", one_in(3, REACHED))
def test_a_row_reaches_the_sites_that_it_is_for(template: str) -> None:
    assert template in {str(spec) for spec in OPS}
    swept = run_sweep(SweepTask(template, "catalogue", 0, Caps(confirmed=0))).swept
    found = Counter(site.rpartition(":")[0] for site in swept.sites)
    expected = REACHED[template]
    assert {file: min(found[file], count) for file, count in expected.items()} == expected


def test_every_row_is_needed() -> None:
    assert {str(spec) for group in ("gradients", "mapped") for spec in GROUPS[group]} <= set(REACHED) | FOR_ARGUMENTS
