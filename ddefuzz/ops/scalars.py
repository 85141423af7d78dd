"""Catalogue: ints and floats that are read from tensors, and tensors without dims where torch takes a number."""

from __future__ import annotations

from ddefuzz.ops.spec import At, Data, OpSpec, Size, Tensor, op

X = Tensor(1, 3)
X2 = Tensor(2, 2)
N = Size(1, 8)
S = Tensor(shape=())
"""A float in a tensor without dims."""
K = Data("sizes", ())
"""An int in a tensor without dims."""

SCALARS: tuple[OpSpec, ...] = (
    op("x * s.item()", x=X, s=S),
    op("x + s.item() / 2", x=X, s=S),
    op("x ** s.item()", x=X, s=S),
    op("s.item() ** x", x=X, s=S),
    op("x / n", x=X, n=N),
    op("n - x", x=X, n=N),
    op("x > s.item()", x=X, s=S),
    op("torch.full_like(x, s.item())", x=X, s=S),
    op("torch.full((2, n), s.item())", n=N, s=S),
    op("torch.where(x > 0, x, s.item())", x=X, s=S),
    op("x.clamp(min=s.item())", x=X, s=S),
    op("x.clamp(0, k)", x=X, k=K),
    op("torch.add(x, x, alpha=k)", x=X, k=K),
    op("torch.add(x, x, alpha=n)", x=X, n=N),
    op("torch.addcmul(x, x, x, value=s)", x=X, s=S),
    op("torch.addcdiv(x, x, x + 9, value=s.item())", x=X, s=S),
    op("torch.addmm(x, x, x.mT @ x, beta=s, alpha=s)", x=X2, s=S, stops=True),
    op("torch.baddbmm(y, y, x, beta=s.item())", x=Tensor(shape=(2, 3, 3)), n=N, y=Tensor(shape=(2, "n", 3)), s=S),
    op("torch.lerp(x, x + 1, s.item())", x=X, s=S),
    op("torch.pow(n, x)", x=X, n=N),
    op("x.masked_fill(x > 0, s)", x=X, s=S),
    op("x.clone().fill_(s.item())", x=X, s=S),
    op("torch.nn.functional.leaky_relu(x, s.item())", x=X, s=S),
    op("torch.nn.functional.elu(x, s)", x=X, s=S),
    op("torch.nn.functional.layer_norm(x, (x.shape[-1],), eps=s.abs().item())", x=X, s=S),
    op("torch.nn.functional.pad(x, (0, k))", x=X, k=K),
    op("torch.nn.functional.pad(x, (0, n), value=s.item())", x=X, n=N, s=S),
    op("torch.linspace(0, s.item(), 5)", s=S),
    op("torch.linspace(0, 1, k)", k=K),
    op("torch.arange(k)", k=K),
    op("torch.arange(0, n, s.abs().item() + 1)", n=N, s=S),
    op("torch.zeros(k, 2)", k=K),
    op("x.expand(k, -1)", x=Tensor(shape=(1, 4)), k=K),
    op("x.repeat(k, 2)", x=Tensor(1, 2), k=K),
    op("torch.roll(x, k)", x=X, k=K),
    op("x.narrow(0, k, x.shape[0] - k)", x=X, k=K),
    op("torch.searchsorted(x.sort()[0], n)", x=Tensor(1, 1), n=N),
    op("torch.bucketize(n, x.sort()[0])", x=Tensor(1, 1), n=N),
    op("torch.isin(x, n)", x=X, n=N),
    op("torch.eq(x, n)", x=X, n=N),
    op("torch.sum(x) / x.shape[0]", x=X),
    op("x * (n / x.numel())", x=X, n=N),
    op("x.shape[0] ** 0.5 * x", x=X),
    op("x[:int(n * 0.5)]", x=X, n=Size(0, At("x", 0))),
    op("x[:math.ceil(n / 2)]", x=X, n=Size(0, At("x", 0))),
    op("torch.tensor([s.item(), 1.0])", s=S),
    op("torch._check(s.item() < 99.0)", s=S),
    op("torch._check(s.abs().item() + 1 > 0.5)", s=S),
    op("torch._check(k.item() != 99)", k=K),
)  # fmt: skip
