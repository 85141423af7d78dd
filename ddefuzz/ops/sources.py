"""Catalogue: ops whose output size depends on data, so that capture gives it an unbacked symbol."""

from __future__ import annotations

from ddefuzz.ops.spec import Data, OpSpec, Tensor, op

MASK = Data("mask", (8,))
MASK_2D = Data("mask", (3, 4))
ROWS = Tensor(shape=(8, 4))
TABLE = Tensor(shape=(3, 4))
SIZES = Data("sizes", (3,))
DISTINCT = Data("distinct", (8,))

SOURCES: tuple[OpSpec, ...] = (
    op("torch.nonzero(m)", m=MASK),
    op("torch.nonzero(m)", m=MASK_2D),
    op("torch.nonzero(m, as_tuple=True)", m=MASK),
    op("torch.nonzero(m, as_tuple=True)", m=MASK_2D),
    op("m.nonzero().squeeze(1)", m=MASK),
    op("torch.argwhere(m)", m=MASK_2D),
    op("torch.where(m)", m=MASK_2D),
    op("x[m]", x=ROWS, m=MASK),
    op("x[m]", x=TABLE, m=MASK_2D),
    op("x[:, m]", x=Tensor(shape=(2, 8, 4)), m=MASK),
    op("torch.masked_select(x, m)", x=TABLE, m=MASK_2D),
    op("x.index_select(0, m.nonzero().squeeze(1))", x=ROWS, m=MASK),
    op("x.index_select(1, m.nonzero().squeeze(1))", x=Tensor(shape=(2, 8, 4, 3)), m=MASK),
    op("m.sum().item()", m=MASK),
    op("s[0].item()", s=SIZES),
    op("s.max().item()", s=SIZES),
    op("int(s[1])", s=SIZES, stops=True),
    op("s.tolist()", s=SIZES),
    op("torch.unique(s)", s=DISTINCT),
    op("torch.unique(s, return_inverse=True, return_counts=True)", s=DISTINCT),
    op("torch.unique(s, dim=0)", s=DISTINCT),
    op("torch.unique_consecutive(s)", s=DISTINCT),
    op("torch.unique_consecutive(s, return_inverse=True, return_counts=True)", s=DISTINCT),
    op("torch.repeat_interleave(x, s, dim=0)", x=TABLE, s=SIZES),
    op("torch.repeat_interleave(x, s, dim=1)", x=Tensor(shape=(2, 3, 4)), s=SIZES),
    op("torch.repeat_interleave(s)", s=SIZES),
    op("torch.bincount(s)", s=SIZES),
    op("torch.nn.functional.one_hot(s)", s=SIZES, stops=True),
)
