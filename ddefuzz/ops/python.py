"""Catalogue: Python's own functions on sizes, lists and rows: what a model computes beside its tensors."""

from __future__ import annotations

from ddefuzz.ops.spec import At, OpSpec, Size, Tensor, body, choice, op

SOME = Tensor(1, 3, max_numel=64)
N = Size(1, 6)

NUMBERS: tuple[OpSpec, ...] = (
    op("divmod(n, k)", n=Size(0, 12), k=choice(2, 3, 8)),
    op("divmod(n, m)", n=Size(0, 12), m=N),
    op("round(n / k)", n=Size(0, 12), k=choice(2, 3)),
    op("math.floor(n / k)", n=Size(0, 12), k=choice(2, 3)),
    op("math.ceil(n / m)", n=Size(0, 12), m=N),
    op("math.trunc(n * 0.5)", n=Size(0, 12)),
    op("int(math.sqrt(n))", n=Size(0, 20), stops=True),
    op("math.prod(x.shape)", x=SOME),
    op("sorted([n, m])[0]", n=Size(0, 12), m=N, stops=True),
    op("list(x.shape)[d]", x=SOME, d=choice(0, -1)),
    op("sum(list(x.shape))", x=SOME),
    op("max(list(map(lambda a: a * 2, x.shape)))", x=SOME),
)  # fmt: skip

LISTS: tuple[OpSpec, ...] = (
    op("[x, x * 2, x + 1].pop(n)", x=SOME, n=Size(0, 2), stops=True),
    op("collections.deque([x, x * 2, x + 1], maxlen=n)[0]", x=SOME, n=Size(1, 3), stops=True),
    op("sum(map(lambda i: x[i].sum(), range(n)))", x=SOME, n=Size(1, At("x", 0)), stops=True),
    op("torch.stack(list(map(lambda a: f, x)))", x=SOME, f=body(a="x[0]"), stops=True),
    op("torch.cat(list(map(lambda a: f, torch.split(x, n))))", x=SOME, n=N, f=body(a="x", like="x"), stops=True),
    op("x.view([1] * (x.ndim - 1) + [x.shape[0], -1])", x=SOME),
)  # fmt: skip
