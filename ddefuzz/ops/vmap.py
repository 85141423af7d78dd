"""Catalogue: functions mapped by vmap: batching rules, and C++ kernels that capture otherwise decomposes."""

from __future__ import annotations

from ddefuzz.ops.spec import OpSpec, Size, Tensor, op

N = Size(1, 6)

MAPPED: tuple[OpSpec, ...] = (
    op("torch.vmap(torch.matmul)(torch.relu(x), y)", n=N, x=Tensor(shape=(3, "n", "n", 4)), y=Tensor(shape=(3, 4, 2)),
       stops=True),
    op("torch.vmap(torch.matmul)(x, y)", n=N, x=Tensor(shape=(3, "n", 2, 4)), y=Tensor(shape=(3, 1, 4, 2))),
    op("torch.vmap(torch.matmul)(x, x[:, :1])", n=N, x=Tensor(shape=(3, "n", 2, 2))),
    op("torch.vmap(torch.cat)((x, y))", n=N, x=Tensor(shape=(3, "n")), y=Tensor(shape=(3, 4)), stops=True),
)  # fmt: skip
