"""Catalogue: ops that return parts of a tensor along a dim: slices, splits, shifts, windows and triangles."""

from __future__ import annotations

from ddefuzz.ops.spec import FLAG, At, DimOf, DimsOf, Number, OpSpec, Size, SplitOf, Tensor, choice, op

X = Tensor(1, kind="any")
X2 = Tensor(2, kind="any")
FLOAT = Tensor(1)
D = DimOf("x")
COUNT = Number(1, 4)
UP_TO_DIM = Size(0, At("x", "d"))
ROWS = Size(0, At("x", 0))
COLUMNS = Size(0, At("x", -1))

SLICING: tuple[OpSpec, ...] = (
    op("x[a:b]", x=X, a=ROWS, b=ROWS),
    op("x[a:]", x=X, a=ROWS),
    op("x[:a]", x=X, a=ROWS),
    op("x[-a:]", x=X, a=ROWS),
    op("x[:-a]", x=X, a=ROWS),
    op("x[a:-1]", x=X, a=ROWS),
    op("x[1:]", x=X),
    op("x[:-1]", x=X),
    op("x[::k]", x=X, k=Number(2, 3)),
    op("x[a::k]", x=X, a=ROWS, k=Number(2, 3)),
    op("x[a:b:k]", x=X, a=ROWS, b=ROWS, k=Number(1, 3)),
    op("x[..., a:b]", x=X, a=COLUMNS, b=COLUMNS),
    op("x[..., :a]", x=X, a=COLUMNS),
    op("x[:, a:]", x=X2, a=Size(0, At("x", 1))),
    op("x[:, 1::2]", x=X2),
    op("x[a]", x=X2, a=Size(0, At("x", 0, -1))),
    op("x[-1]", x=X2),
    op("x[..., 0]", x=X2),
    op("x[:, None]", x=X),
    op("x[None, ..., None]", x=Tensor(1, 2, kind="any")),
    op("torch.narrow(x, d, a, x.shape[d] - a)", x=X, d=D, a=UP_TO_DIM),
    op("x.narrow(d, 0, n)", x=X, d=D, n=UP_TO_DIM),
    op("torch.narrow_copy(x, d, 0, n)", x=X, d=D, n=UP_TO_DIM, stops=True),
    op("torch.select(x, d, i)", x=X2, d=D, i=Size(0, At("x", "d", -1))),
    op("x.select(d, -1)", x=X2, d=D),
    op("torch.select_copy(x, d, 0)", x=X2, d=D, stops=True),
    op("torch.slice_copy(x, d, 0, n)", x=X, d=D, n=UP_TO_DIM, stops=True),
    op("torch.split(x, k, d)", x=X, d=D, k=COUNT, stops=True),
    op("x.split(n, d)", x=X, d=D, n=Size(1, At("x", "d")), stops=True),
    op("torch.split(x, s, d)", x=X, d=D, s=SplitOf("x", "d")),
    op("torch.split_with_sizes(x, s, d)", x=X, d=D, s=SplitOf("x", "d")),
    op("torch.split_with_sizes_copy(x, s, d)", x=X, d=D, s=SplitOf("x", "d")),
    op("torch.unsafe_split(x, k, d)", x=X, d=D, k=COUNT, stops=True),
    op("torch.chunk(x, k, d)", x=X, d=D, k=COUNT, stops=True),
    op("x.unsafe_chunk(k, d)", x=X, d=D, k=COUNT, stops=True),
    op("torch.tensor_split(x, k, d)", x=X, d=D, k=COUNT, stops=True),
    op("torch.tensor_split(x, s, d)", x=X, d=D, s=SplitOf("x", "d", bounds=True)),
    op("torch.unbind(x, d)", x=X, d=D, stops=True),
    op("x.unbind(d)", x=X, d=D, stops=True),
    op("torch.hsplit(x, k)", x=X2, k=Number(1, 2)),
    op("torch.vsplit(x, k)", x=X2, k=Number(1, 2)),
    op("torch.dsplit(x, k)", x=Tensor(3, kind="any"), k=Number(1, 2)),
    op("torch.roll(x, k, d)", x=X, d=D, k=Number(-2, 3), stops=True),
    op("torch.roll(x, n)", x=X, n=Size(0, At("x", 0)), stops=True),
    op("torch.roll(x, n, d)", x=X, d=D, n=UP_TO_DIM, stops=True),
    op("torch.flip(x, d)", x=X, d=DimsOf("x")),
    op("torch.fliplr(x)", x=X2),
    op("torch.flipud(x)", x=X),
    op("torch.rot90(x, k, (0, 1))", x=X2, k=Number(0, 3)),
    op("torch.diff(x, dim=d)", x=FLOAT, d=D, stops=True),
    op("torch.diff(x, n=k, dim=d)", x=FLOAT, d=D, k=Number(1, 2), stops=True),
    op("torch.diff(x, dim=0, prepend=y)", x=FLOAT, y=Tensor(like="x"), stops=True),
    op("x.unfold(d, n, k)", x=X, d=D, n=Size(1, At("x", "d")), k=Number(1, 2), stops=True),
    op("torch.topk(x, n, d)", x=FLOAT, d=D, n=UP_TO_DIM),
    op("x.topk(n, dim=d, largest=b, sorted=b)", x=FLOAT, d=D, n=UP_TO_DIM, b=FLAG),
    op("torch.kthvalue(x, n, d)", x=FLOAT, d=D, n=Size(1, At("x", "d"))),
    op("torch.tril(x, k)", x=X2, k=Number(-1, 1)),
    op("torch.triu(x, n)", x=X2, n=Size(0, 3)),
    op("torch.diagonal(x, k, 0, 1)", x=X2, k=Number(-1, 1)),
    op("torch.diagonal_copy(x)", x=X2),
    op("torch.diag(x)", x=Tensor(1, 2, kind="any", max_numel=32)),
    op("torch.diagflat(x)", x=Tensor(1, 2, kind="any", max_numel=32)),
    op("torch.diag_embed(x)", x=Tensor(1, 2, kind="any", max_numel=64)),
    op("torch.slice_scatter(x, x[:n] * 0, 0, 0, n)", x=FLOAT, n=ROWS),
    op("torch.select_scatter(x, y[0], 0, 0)", x=Tensor(2), y=Tensor(like="x")),
    op("torch.diagonal_scatter(x, torch.diagonal(x) + 1)", x=Tensor(2)),
    op("torch.clone(x).__setitem__(0, x.sum(-1, keepdim=True)[1])", n=Size(1, 6), x=Tensor(shape=(2, 3, "n"))),
    op("torch.trace(x)", x=Tensor(2, 2)),
    op("torch.constant_pad_nd(x, (n, k))", x=FLOAT, n=Size(0, 4), k=Number(-1, 2)),
    op("torch.gradient(x, dim=d)", x=FLOAT, d=D, stops=True),
    op("x.t()", x=Tensor(1, 2, kind="any")),
    op("torch.channel_shuffle(x, k)", x=Tensor(3, 4), k=choice(1, 2), stops=True),
)
