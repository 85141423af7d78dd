"""Catalogue: reads of sizes, arithmetic and comparisons on them, and branches of the user's own code."""

from __future__ import annotations

from ddefuzz.ops.spec import At, DimOf, Number, OpSpec, Size, Tensor, op

X = Tensor(1, kind="any")
N = Size(0)
K = Number(2, 4)

SIZES: tuple[OpSpec, ...] = (
    op("x.size(d)", x=X, d=DimOf("x")),
    op("x.shape[d]", x=X, d=DimOf("x")),
    op("x.numel()", x=X),
    op("torch.numel(x)", x=X),
    op("a + b", a=N, b=N),
    op("a - b", a=N, b=N),
    op("a * b", a=N, b=Size(1, 6)),
    op("a * k", a=N, k=K),
    op("a + k", a=N, k=K),
    op("a // k", a=N, k=K),
    op("(a + k - 1) // k", a=N, k=K),
    op("a % k", a=N, k=K),
    op("a // b", a=N, b=Size(1)),
    op("a % b", a=N, b=Size(1)),
    op("a * a", a=Size(0, 6)),
    op("abs(a - b)", a=N, b=N),
    op("torch.sym_min(a, b)", a=N, b=N),
    op("torch.sym_max(a, b)", a=N, b=N),
    op("torch.sym_max(a, 1)", a=N),
    op("torch.sym_sum([a, b, k])", a=N, b=N, k=K),
    op("torch._check(a >= 0)", a=N),
    op("torch._check(a <= 32)", a=N),
    op("torch._check(a <= b)", a=N, b=N),
    op("torch._check(a < b + k)", a=N, b=N, k=K),
    op("torch._check(a != 1)", a=N),
    op("torch._check(x.shape[0] == y.shape[0])", x=X, y=Tensor(like="x")),
    op("torch._check(a * k % k == 0)", a=N, k=K),
    op("torch.full((), a)", a=N),
    op("torch.tensor(a)", a=N, stops=True),
    op("torch.tensor([a, b])", a=N, b=N, stops=True),
    op("torch.scalar_tensor(a)", a=N),
)

BRANCHES: tuple[OpSpec, ...] = (
    op("x * 2 if a > k else x", x=Tensor(1), a=N, k=Number(2, 5)),
    op("x + 1 if a == b else x - 1", x=Tensor(1), a=N, b=N),
    op("a if a > k else k", a=N, k=Number(2, 5)),
    op("torch.relu(x) if x.numel() else x", x=Tensor(1)),
    op("min(a, b)", a=N, b=N),
    op("max(a, b)", a=N, b=N),
    op("len(x)", x=X),
    op("x * 2 if a > 1 and b < k else x", x=Tensor(1), a=N, b=N, k=Number(3, 6)),
    op("x * 2 if not a > k or a == b else x", x=Tensor(1), a=N, b=N, k=Number(2, 5)),
    op("x[:int(a)]", x=Tensor(1), a=Size(0, At("x", 0))),
    op("x * float(a)", x=Tensor(1), a=N),
    op("torch.relu(x) if bool(a) else x", x=Tensor(1), a=N),
    op("torch.zeros(sum((a, b)))", a=N, b=N),
)
"""Branches on data in the user's own code, which capture cannot decide. They are drawn rarely, and a failure has
the cause `user`.

Python's own `min` and `max` compare, and its `len` requires an int.
"""
