"""Catalogue: subscripts with numbers from data in each place: ints and tensors without dims, alone and beside slices,
masks and index tensors.
"""

from __future__ import annotations

from ddefuzz.ops.spec import At, Indices, OpSpec, Size, Tensor, op

X = Tensor(1, 3, kind="any")
X2 = Tensor(2, 3, kind="any")
FLOAT2 = Tensor(2, 3)
ROW = Indices(At("x", 0), 0, 0)
COLUMN = Indices(At("x", 1), 0, 0)
N = Size(0, At("x", 0, -1))
M = Size(0, At("x", 1, -1))

SUBSCRIPTS: tuple[OpSpec, ...] = (
    op("x[t]", x=X, t=ROW),
    op("x[:, t]", x=X2, t=COLUMN),
    op("x[..., t]", x=X, t=Indices(At("x", -1), 0, 0)),
    op("x[None, t]", x=X, t=ROW),
    op("x[t, u]", x=X2, t=ROW, u=COLUMN),
    op("x[t, 1:]", x=X2, t=ROW),
    op("x[t, n]", x=X2, t=ROW, n=M),
    op("x[0, n]", x=X2, n=M),
    op("x[n, m]", x=X2, n=N, m=M),
    op("x[n, None]", x=X, n=N),
    op("x[n, 1:]", x=X2, n=N),
    op("x[:, n]", x=X2, n=M),
    op("x[..., n]", x=X, n=Size(0, At("x", -1, -1))),
    op("x[-n - 1]", x=X, n=N),
    op("x[i, n]", x=X2, i=Indices(At("x", 0)), n=M),
    op("x[n, i]", x=X2, n=N, i=Indices(At("x", 1))),
    op("x[i, t]", x=X2, i=Indices(At("x", 0)), t=COLUMN),
    op("x[[n, 0]]", x=X, n=N),
    op("x[:, [0, n]]", x=X2, n=M),
    op("x[x[:, 0] > 0, n]", x=FLOAT2, n=M),
    op("x[x[:, 0] > 0, t]", x=FLOAT2, t=COLUMN),
    op("x[t:]", x=X, t=ROW),
    op("x[:t]", x=X, t=ROW),
    op("x[t:t + 2]", x=X, t=ROW),
    op("x[:, t:]", x=X2, t=COLUMN),
    op("x[t:, n:]", x=X2, t=ROW, n=M),
    op("x[t:t + 2, u:u + 2]", x=X2, t=ROW, u=COLUMN),
    op("x[..., n:n + 1]", x=X, n=Size(0, At("x", -1, -1))),
    op("x.clone()[t].fill_(0)", x=X2, t=ROW),
    op("x.clone()[:, n].add_(1)", x=FLOAT2, n=M),
    op("x.clone().select(0, n).fill_(1)", x=X, n=N),
    op("x.index_put((t,), torch.tensor(0.5))", x=Tensor(1, 3), t=ROW),
    op("x.shape[n]", x=X2, n=Size(0, 1), stops=True),
    op("[x, x + 1][n]", x=Tensor(1, 3), n=Size(0, 1), stops=True),
    op("torch.unbind(x)[t]", x=Tensor(shape=(3, 2)), t=ROW, stops=True),
    op("torch.arange(9)[n]", n=Size(0, 8)),
)  # fmt: skip
