"""Catalogue: ops that select, write or look up elements by index tensors and masks."""

from __future__ import annotations

from ddefuzz.ops.spec import FLAG, At, DimOf, Indices, Number, OpSpec, Size, Tensor, choice, op

X = Tensor(1, kind="any")
X1 = Tensor(1, 1)
X2 = Tensor(2)
FLOAT = Tensor(1)
D = DimOf("x")
ROWS = Indices(At("x", 0))
AT_D = Indices(At("x", "d"))
ALIKE = Indices(At("x", "d"), like="x")
REDUCE = choice("sum", "prod", "mean", "amax", "amin")

SELECTION: tuple[OpSpec, ...] = (
    op("torch.index_select(x, d, i)", x=X, d=D, i=AT_D),
    op("x[i]", x=X, i=ROWS),
    op("x[i]", x=X, i=Indices(At("x", 0), 2, 2)),
    op("x[:, i]", x=Tensor(2, kind="any"), i=Indices(At("x", 1))),
    op("x[..., i]", x=X, i=Indices(At("x", -1))),
    op("x[i, j]", x=X2, i=ROWS, j=Indices(At("x", 1), like="i")),
    op("x[i, None, :]", x=X2, i=ROWS),
    op("x[i[:, None], torch.arange(x.shape[1])]", x=X2, i=ROWS),
    op("x[i, 0]", x=X2, i=ROWS),
    op("x[m]", x=X, m=Tensor(kind="bool", shape=(At("x", 0),))),
    op("x[m]", x=X, m=Tensor(kind="bool", like="x")),
    op("x[x > 0]", x=FLOAT),
    op("torch.masked_select(x, m)", x=FLOAT, m=Tensor(kind="bool", like="x")),
    op("torch.gather(x, d, i)", x=FLOAT, d=D, i=ALIKE),
    op("torch.gather(x, d, i, sparse_grad=True)", x=FLOAT, d=D, i=ALIKE),
    op("torch.gather(x, 0, i)", n=Size(1, 6), m=Size(0, 6), x=Tensor(shape=(5, "n")), i=Indices(5, shape=(2, "m"))),
    op("torch.take_along_dim(x, i, d)", x=FLOAT, d=D, i=ALIKE, stops=True),
    op("torch.take(x, i)", x=X1, i=ROWS),
    op("x.index_put((i,), y)", x=X1, i=ROWS, y=Tensor(shape=(At("i", 0),))),
    op("x.index_put((i,), torch.tensor(1.0), accumulate=b)", x=FLOAT, i=ROWS, b=FLAG),
    op("x.clone().index_put_((i,), torch.tensor(0.0))", x=FLOAT, i=ROWS),
    op("x.clone().index_put_((i,), torch.tensor(0.5), accumulate=True)", x=FLOAT, i=ROWS),
    op("x.masked_fill(m, 0.0)", x=FLOAT, m=Tensor(kind="bool", broadcast="x")),
    op("x.clone().masked_fill_(x > 0, n)", x=FLOAT, n=Number(0, 3)),
    op("torch.masked_fill(x, m, 1.0)", x=FLOAT, m=Tensor(kind="bool", like="x")),
    op("x.masked_scatter(m, y)", x=FLOAT, m=Tensor(kind="bool", like="x"), y=Tensor(like="x")),
    op("torch.scatter(x, d, i, 0.5)", x=FLOAT, d=D, i=ALIKE),
    op("torch.scatter(x, d, i, y)", x=FLOAT, d=D, i=ALIKE, y=Tensor(like="x")),
    op("x.clone().scatter_(d, i, 1.0)", x=FLOAT, d=D, i=ALIKE),
    op("torch.scatter_add(x, d, i, y)", x=FLOAT, d=D, i=ALIKE, y=Tensor(like="x")),
    op("torch.scatter_reduce(x, d, i, y, r)", x=FLOAT, d=D, i=ALIKE, y=Tensor(like="x"), r=REDUCE),
    op("torch.index_add(x, 0, i, y)", x=X1, i=ROWS, y=Tensor(shape=(At("i", 0),))),
    op("x.clone().index_add_(0, i, y)", x=Tensor(2, 2), i=ROWS, y=Tensor(shape=(At("i", 0), At("x", 1)))),
    op("torch.index_copy(x, 0, i, y)", x=X1, i=ROWS, y=Tensor(shape=(At("i", 0),))),
    op("torch.index_fill(x, d, i, 0.5)", x=FLOAT, d=D, i=AT_D),
    op("x.clone().index_fill_(d, i, 1)", x=FLOAT, d=D, i=AT_D),
    op("x.put(i, y)", x=X1, i=ROWS, y=Tensor(shape=(At("i", 0),))),
    op("x.put(i, y, accumulate=True)", x=X1, i=ROWS, y=Tensor(shape=(At("i", 0),))),
    op("torch.searchsorted(x, y)", x=Tensor(1, 1), y=Tensor(1)),
    op("torch.searchsorted(x, y, right=b)", x=X2, y=Tensor(like="x"), b=FLAG),
    op("torch.bucketize(y, x)", x=Tensor(1, 1), y=Tensor()),
    op("torch.isin(x, y)", x=Tensor(1), y=Tensor(1, max_numel=64)),
    op("torch.isin(x, y, assume_unique=b, invert=True)", x=Tensor(1), y=Tensor(1, max_numel=64), b=FLAG),
    op("torch.where(x > 0, x, y)", x=FLOAT, y=Tensor(broadcast="x")),
    op("torch.where(m, x, 0.0)", x=FLOAT, m=Tensor(kind="bool", broadcast="x")),
    op("torch.histc(x, k)", x=FLOAT, k=Number(1, 4)),
    op("torch.histogram(x, k)", x=FLOAT, k=Number(2, 5), stops=True),
    op("torch.histogram(x, k, range=(0.0, 1.0), density=True)", x=FLOAT, k=Number(2, 5), stops=True),
    op("torch.nonzero(x > 0)", x=FLOAT),
    op("torch.unique(i)", i=Tensor(1, kind="int", max_numel=64)),
    op("torch.count_nonzero(x)", x=X),
    op("torch.count_nonzero(x, dim=d)", x=X, d=D),
    op("torch.repeat_interleave(x, k, dim=d)", x=X, d=D, k=Number(1, 3)),
    op("torch.argsort(x, dim=d)", x=FLOAT, d=D),
    op("torch.nn.functional.embedding(i, w)", w=Tensor(2, 2), i=Indices(At("w", 0), 1, 2)),
    op("torch.nn.functional.embedding(i, w)", w=Tensor(shape=(5, 3)), i=Indices(5, 1, 2)),
    op("torch.nn.functional.embedding_bag(i, w)", w=Tensor(shape=(5, 3)), i=Indices(5, 2, 2)),
    op("torch.nn.functional.embedding_bag(i, w)", w=Tensor(shape=(5, 3)), n=Size(1, 6), i=Indices(5, shape=("n", 3))),
    op(
        "torch.nn.functional.embedding_bag(i, w, torch.zeros(n, dtype=torch.int64))",
        w=Tensor(shape=(5, 3)),
        i=Indices(5, 1, 1),
        n=Size(1, 6),
    ),
    op(
        "torch.nn.functional.embedding_bag(i, w, torch.zeros(1, dtype=torch.int64), mode=r)",
        w=Tensor(shape=(5, 3)),
        i=Indices(5, 1, 1),
        r=choice("sum", "mean", "max"),
    ),
)
