"""Catalogue: ops that give the same elements another shape."""

from __future__ import annotations

from ddefuzz.ops.spec import Data, DimOf, DimsOf, Number, OpSpec, ReshapeOf, Size, Tensor, choice, op
from ddefuzz.program.model import Constant

N = Size(1, 8)
X = Tensor(kind="any")
X1 = Tensor(1, kind="any")
X2 = Tensor(2, kind="any")
D = DimOf("x")

RESHAPE: tuple[OpSpec, ...] = (
    op("x.view(s)", x=X, s=ReshapeOf("x")),
    op("x.reshape(s)", x=X, s=ReshapeOf("x")),
    op("torch.reshape(x, s)", x=X, s=ReshapeOf("x")),
    op("torch.view_copy(x, s)", x=X, s=ReshapeOf("x")),
    op("x.view(-1)", x=X),
    op("x.reshape(-1, 1)", x=X),
    op("x.reshape(x.shape[0], -1)", x=X1),
    op("x.view(x.shape[0] * x.shape[1])", x=Tensor(2, 2, kind="any")),
    op("x.reshape(x.shape[0] * x.shape[1], -1)", x=X2),
    op("x.view(i[0].item(), -1)", x=Tensor(shape=(6, 4)), i=Data("sizes", (2,))),
    op("x.transpose(0, 1).view(x.shape[0] * x.shape[1], x.shape[2])", x=Tensor(shape=(3, 1, 4))),
    op("x.transpose(0, 1).view(x.shape[0] * x.shape[1])", x=Tensor(shape=(1, 4))),
    op("x.dim_order(ambiguity_check=True)", x=X2),
    op("x.view_as(y)", x=X1, y=Tensor(like="x")),
    op("x.reshape_as(y)", x=X1, y=Tensor(like="x")),
    op("x.reshape(y.shape)", x=X1, y=Tensor(like="x")),
    op("torch.flatten(x)", x=X),
    op("torch.flatten(x, 0, 1)", x=X2),
    op("x.flatten(-2)", x=X2),
    op("x.flatten(1)", x=X2),
    op("torch.ravel(x)", x=X),
    op("x.unflatten(d, s)", x=X1, d=D, s=ReshapeOf("x", "d")),
    op("torch.unflatten(x, d, s)", x=X1, d=D, s=ReshapeOf("x", "d")),
    op("torch.unflatten(x, d, (n, -1))", x=X1, d=D, n=Size(1, 4)),
    op("torch.unflatten(x, 0, (i[0].item(), -1))", x=Tensor(shape=(60,)), i=Data("sizes", (2,)), stops=True),
    op("torch.squeeze(x)", x=X),
    op("torch.squeeze(x, d)", x=X1, d=D),
    op("x.squeeze((0, -1))", x=X2),
    op("torch.squeeze_copy(x)", x=X, stops=True),
    op("torch.unsqueeze(x, d)", x=X, d=DimOf("x", extra=1)),
    op("torch.permute(x, d)", x=X, d=DimsOf("x", permute=True)),
    op("torch.permute_copy(x, d)", x=X, d=DimsOf("x", permute=True)),
    op("torch.movedim(x, d, e)", x=X1, d=D, e=DimOf("x")),
    op("torch.moveaxis(x, d, e)", x=X1, d=D, e=DimOf("x")),
    op("torch.swapaxes(x, d, e)", x=X1, d=D, e=DimOf("x")),
    op("torch.swapdims(x, d, e)", x=X1, d=D, e=DimOf("x")),
    op("torch.transpose(x, d, e)", x=X1, d=D, e=DimOf("x")),
    op("torch.transpose_copy(x, d, e)", x=X1, d=D, e=DimOf("x")),
    op("torch.t(x)", x=Tensor(1, 2, kind="any")),
    op("torch.adjoint(x)", x=X2),
    op("x.mT", x=X2),
    op("torch.tile(x, (k, 1))", x=X1, k=Number(1, 2)),
    op("x.repeat(1, n)", x=Tensor(1, 2, kind="any"), n=Size(0, 3)),
    op("x.repeat(n, 2)", x=Tensor(1, 2, kind="any"), n=Size(0, 4)),
    op("torch.atleast_1d(x)", x=X),
    op("torch.atleast_2d(x)", x=X),
    op("torch.atleast_3d(x)", x=X),
    op("torch.view_as_real(x)", x=Tensor(kind="complex")),
    op("torch.view_as_complex(x)", n=N, x=Tensor(shape=("n", 2))),
    op("x.view(t)", x=X1, t=choice(Constant("torch.int32"), Constant("torch.int16"), Constant("torch.float32"))),
    op("torch.pixel_shuffle(x, 2)", n=N, x=Tensor(shape=("n", 4, 2, 3))),
    op("torch.pixel_shuffle(x, 2)", n=N, x=Tensor(shape=(1, 4, "n", 3), others=((4, "n", 3),))),
    op("torch.pixel_shuffle(x.repeat(1, 4, 1, 1), 2)", n=N, x=Tensor(shape=(1, "n", 2, 3))),
    op("torch.pixel_unshuffle(x, 2)", n=N, x=Tensor(shape=("n", 1, 4, 2), others=((1, "n", 4, 2),))),
    op("torch.nn.functional.unfold(x, 2)", n=N, x=Tensor(shape=(1, 2, "n", 3)), stops=True),
    op("torch.nn.functional.fold(x, (3, 3), 2)", n=N, x=Tensor(shape=("n", 8, 4))),
)
