"""Catalogue: ops on tensors of different shapes: expansion, products, concatenation."""

from __future__ import annotations

from ddefuzz.ops.spec import At, DimOf, ExpandOf, Number, OpSpec, Size, Tensor, choice, op

X = Tensor()
X1 = Tensor(1)
ANY = Tensor(1, kind="any")
D = DimOf("x")
Y = Tensor(broadcast="x")
SMALL = Tensor(1, 1, max_numel=32)

BROADCAST: tuple[OpSpec, ...] = (
    op("x.expand(s)", x=X, s=ExpandOf("x")),
    op("torch.broadcast_to(x, s)", x=X, s=ExpandOf("x")),
    op("torch.expand_copy(x, s)", x=X, s=ExpandOf("x")),
    op("x.expand_as(y)", y=X1, x=Tensor(broadcast="y")),
    op("x.unsqueeze(0).expand(n, -1)", x=Tensor(1, 1), n=Size(1, 8)),
    op("torch.cat((x, y))", x=Tensor(shape=(3, 4)), y=Tensor(shape=(0,))),
    op("x.unsqueeze(0).expand(k, -1)", x=SMALL, k=Number(1, 3)),
    op("torch.broadcast_tensors(x, y)", x=X1, y=Y),
    op("x + y", x=X, y=Y),
    op("x - y", x=X, y=Y),
    op("x * y", x=X, y=Y),
    op("x / y", x=X, y=Y),
    op("x > y", x=X, y=Y),
    op("x == y", x=X, y=Y),
    op("x[:, None] + y", x=SMALL, y=SMALL),
    op("x.unsqueeze(-1) * y", x=SMALL, y=SMALL),
    op("x + torch.ones(1)", x=X),
    op("x * torch.ones(x.shape[-1])", x=X1),
    op("x.clone().add_(y)", x=X1, y=Tensor(broadcast="x")),
    op("x.clone().copy_(y)", x=X1, y=Tensor(broadcast="x")),
    op("x.clone().mul_(2)", x=X1),
    op("torch.add(x, y, alpha=2)", x=X, y=Y),
    op("torch.maximum(x, y)", x=X, y=Y),
    op("torch.fmin(x, y)", x=X, y=Y),
    op("torch.fmod(x, y)", x=X, y=Y),
    op("torch.atan2(x, y)", x=X, y=Y),
    op("torch.hypot(x, y)", x=X, y=Y),
    op("torch.copysign(x, y)", x=X, y=Y),
    op("torch.logaddexp(x, y)", x=X, y=Y),
    op("torch.xlogy(x, y)", x=X, y=Y),
    op("torch.lerp(x, y, 0.5)", x=X, y=Y),
    op("torch.lerp(x, y, z)", x=X, y=Y, z=Tensor(like="x")),
    op("torch.addcmul(x, y, z, value=0.5)", x=X, y=Y, z=Y),
    op("torch.addcdiv(x, y, z)", x=X, y=Y, z=Y),
    op("torch.allclose(x, y)", x=X1, y=Tensor(like="x"), stops=True),
    op("torch.equal(x, y)", x=X1, y=Tensor(like="x"), stops=True),
    op("torch.dist(x, y)", x=X1, y=Tensor(like="x")),
    op("torch.outer(x, y)", x=SMALL, y=SMALL),
    op("torch.kron(x, y)", x=Tensor(1, 2, max_numel=32), y=Tensor(1, 2, max_numel=16), stops=True),
    op("torch.cat((x, y), d)", x=ANY, d=D, y=Tensor(kind="any", like="x")),
    op("torch.cat((x, y))", x=Tensor(1, 1), y=Tensor(1, 1)),
    op("torch.cat((x, y))", x=Tensor(2, 2), y=Tensor(shape=(2, At("x", 1)))),
    op("torch.cat((x, x[:1], y))", x=X1, y=Tensor(like="x")),
    op("torch.concat((x, torch.zeros(2)))", x=Tensor(1, 1)),
    op("torch.stack((x, y), d)", x=X, d=DimOf("x", extra=1), y=Tensor(like="x")),
    op("torch.hstack((x, y))", x=X1, y=Tensor(like="x")),
    op("torch.vstack((x, y))", x=X1, y=Tensor(like="x")),
    op("torch.dstack((x, y))", x=X1, y=Tensor(like="x")),
    op("torch.column_stack((x, y))", x=X1, y=Tensor(like="x")),
    op("torch.row_stack((x, y))", x=X1, y=Tensor(like="x")),
    op("torch.linalg.cross(x, y)", n=Size(0, 8), x=Tensor(shape=("n", 3)), y=Tensor(like="x")),
    op("torch.tensordot(x, y, 1)", x=X1, y=Tensor(shape=(At("x", -1), 2)), stops=True),
    op("torch.tensordot(x, y, ((0,), (0,)))", x=X1, y=Tensor(shape=(At("x", 0), 2))),
    op("torch.nn.functional.pad(x, (1, k))", x=X1, k=Number(0, 2)),
    op("torch.isclose(x, y)", x=X, y=Y),
    op("x >= y.T", n=Size(0, 8), x=Tensor(shape=("n", 3)), y=Tensor(shape=(3, "n"))),
    op("torch.clamp(x, min=y)", x=X, y=Y),
    op("torch.clamp(x, -1.0, k)", x=X, k=choice(0.5, 1.0)),
)
