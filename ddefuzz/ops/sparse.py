"""Catalogue: sparse tensors, made of dense ones. What a row gives is a dense tensor again.

Those of compressed rows and columns are missing: torch warns that they are beta.
"""

from __future__ import annotations

from ddefuzz.ops.spec import OpSpec, Size, Tensor, op

X = Tensor(2, 2, max_numel=64)
N = Size(1, 6)
ROWS = Tensor(shape=("n", 4))
COLUMNS = Tensor(shape=(4, 3))

SPARSE: tuple[OpSpec, ...] = (
    op("x.to_sparse().to_dense()", x=Tensor(1, 3, max_numel=64), stops=True),
    op("x.to_sparse(1).to_dense()", x=X, stops=True),
    op("x.to_sparse().coalesce().indices()", x=X, stops=True),
    op("x.to_sparse().coalesce().values()", x=X, stops=True),
    op("(x.to_sparse() * 2).to_dense()", x=X, stops=True),
    op("(x.to_sparse() + x.to_sparse()).to_dense()", x=X, stops=True),
    op("x.to_sparse().t().to_dense()", x=X, stops=True),
    op("x.to_sparse().sum()", x=X, stops=True),
    op("torch.sparse.sum(x.to_sparse(), 0).to_dense()", x=X, stops=True),
    op("torch.sparse.softmax(x.to_sparse(), 1).to_dense()", x=X, stops=True),
    op("torch.sparse.mm(x.to_sparse(), y)", n=N, x=ROWS, y=COLUMNS, stops=True),
    op("x.to_sparse() @ y", n=N, x=ROWS, y=COLUMNS, stops=True),
    op("torch.sparse.addmm(torch.zeros(n, 3), x.to_sparse(), y)", n=N, x=ROWS, y=COLUMNS, stops=True),
    op("x.sparse_mask(x.relu().to_sparse()).to_dense()", x=X, stops=True),
)  # fmt: skip
