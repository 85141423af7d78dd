"""Catalogue: functions of functions. What the functions compute is drawn (`Body`); a row writes the rest.

`torch.compiler.nested_compile_region` is missing: it has to be called outside of what is captured.
"""

from __future__ import annotations

from ddefuzz.ops.spec import At, OpSpec, Size, Tensor, body, op

SOME = Tensor(1, 3, max_numel=64)
FLEX = "torch.nn.attention.flex_attention.flex_attention"
BLOCKS = "torch.nn.attention.flex_attention.create_block_mask"
ROWS = Tensor(shape=("u", 4))
QUERIES = Tensor(shape=(2, 2, "u", 4))

CONTROL: tuple[OpSpec, ...] = (
    op("torch.cond(x.sum() > 0, lambda a: f, lambda a: g, (x,))",
       x=SOME, f=body(a="x"), g=body(a="x", like="f")),
    op("torch.cond(x.sum() > 0, lambda a, b: f, lambda a, b: g, (x, y))",
       x=SOME, y=SOME, f=body(a="x", b="y"), g=body(a="x", b="y", like="f")),
    op("torch.cond(n > 2, lambda a: f, lambda a: g, (x,))",
       x=SOME, n=Size(0, 6), f=body(a="x"), g=body(a="x", like="f")),
    op("torch.cond(n > 2, lambda a: (torch._check(n < 9), f)[1], lambda a: g, (x,))",
       x=SOME, n=Size(0, 6), f=body(a="x"), g=body(a="x", like="f")),
    op("torch.cond(x.shape[0] > 2, lambda a: (torch._check(a.shape[0] < 99), f)[1], lambda a: g, (x,))",
       x=SOME, f=body(a="x"), g=body(a="x", like="f")),
    op("torch.cond(x.shape[0] > 0, lambda a: f, lambda a: (torch._check(a.shape[0] != 9), g)[1], (x[:2],))",
       x=SOME, f=body(a="x[:2]"), g=body(a="x[:2]", like="f")),
    op("torch.cond(x.sum() > 0, lambda: x.sin(), lambda: x.cos() + 1)", x=SOME),
    op("torch.cond(x[n].sum() > 0, lambda: x[n].sin(), lambda: x[n] + 1)", x=SOME, n=Size(0, At("x", 0, -1))),
    op("torch.cond(x.sum() > 0, lambda a: f, lambda a: g, (x[n],))",
       x=SOME, n=Size(0, At("x", 0, -1)), f=body(a="x[0]"), g=body(a="x[0]", like="f")),
    op("torch.while_loop(lambda i, a: i < x.shape[0], lambda i, a: (i + 1, a * 0.5), (0, x))", x=SOME),
    op("torch.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a + 1), (0, x))", x=SOME, n=Size(0, 4)),
    op("torch.cond(x.sum() > 0, lambda a: a[a > 0], lambda a: f, (x,))",
       x=Tensor(1, 1, max_numel=64), f=body(a="x", like="x")),
    op("torch.cond(x.sum() > 0, lambda a: a.nonzero(), lambda a: a.to(torch.int64).nonzero(), (x,))", x=SOME),
    op("torch.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, f), (torch.zeros((), dtype=torch.int64), x))",
       x=SOME, f=body(a="x", shape="x")),
    op("torch.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, f), (torch.zeros((), dtype=torch.int64), x))",
       x=SOME, n=Size(0, 4), f=body(a="x", shape="x")),
    op("torch.while_loop(lambda a, b: (a.sum() < 9) & (b.sum() < 4), lambda a, b: (f, b + 1), (x, torch.zeros(1)))",
       x=SOME, f=body(a="x", shape="x")),
    op("torch.utils.checkpoint.checkpoint(lambda a: f, x, use_reentrant=False)", x=SOME, f=body(a="x")),
    op("torch.utils.checkpoint.checkpoint(lambda a: f, x, use_reentrant=False, preserve_rng_state=False)",
       x=SOME, f=body(a="x")),
    op("torch.utils.checkpoint.checkpoint(lambda a, k: a[:k].sin(), x, n, use_reentrant=False)", x=SOME, n=Size(0, 6)),
)  # fmt: skip

SCANS: tuple[OpSpec, ...] = (
    op("torch._higher_order_ops.scan(lambda c, v: (f, g), x[0].clone(), x)",
       x=SOME, f=body(c="x[0]", v="x[0]", shape="x[0]"), g=body(c="x[0]", v="x[0]"), stops=True),
    op("torch._higher_order_ops.scan(lambda c, v: (f, g), y, x, reverse=True)",
       x=SOME, y=SOME, f=body(c="y", v="x[0]", shape="y"), g=body(c="y", v="x[0]"), stops=True),
    op('torch._higher_order_ops.associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")',
       x=SOME, stops=True),
    op('torch._higher_order_ops.associative_scan(lambda a, b: torch.maximum(a, b), x, -1, combine_mode="generic")',
       x=SOME, stops=True),
    op("torch._higher_order_ops.map(lambda a: f, x)", x=SOME, f=body(a="x[0]"), stops=True),
    op("torch._higher_order_ops.map(lambda a, b: f, x, y)",
       x=SOME, y=SOME, f=body(a="x[0]", b="y"), stops=True),
)  # fmt: skip

FUNCTIONAL: tuple[OpSpec, ...] = (
    op("torch.func.grad(lambda a: f)(x)", x=SOME, f=body(a="x", scalar=True)),
    op("torch.func.grad(lambda a, b: f)(x, y)", x=SOME, y=SOME, f=body(a="x", b="y", scalar=True)),
    op("torch.func.grad_and_value(lambda a: f)(x)", x=SOME, f=body(a="x", scalar=True)),
    op("torch.func.jacrev(lambda a: f)(x)", x=Tensor(1, 1, max_numel=8), f=body(a="x")),
    op("torch.func.jacrev(lambda a: f, chunk_size=2)(x)", x=Tensor(1, 1, max_numel=8), f=body(a="x")),
    op("torch.func.jacfwd(lambda a: f)(x)", x=Tensor(1, 1, max_numel=8), f=body(a="x"), stops=True),
    op("torch.func.hessian(lambda a: f)(x)", x=Tensor(1, 1, max_numel=8), f=body(a="x", scalar=True), stops=True),
    op("torch.func.jvp(lambda a: f, (x,), (x.clone(),))", x=SOME, f=body(a="x"), stops=True),
    op("torch.vmap(lambda a: f)(x)", x=SOME, f=body(a="x[0]")),
    op("torch.vmap(lambda a: f, in_dims=-1)(x)", x=Tensor(2, 3, max_numel=64), f=body(a="x[..., 0]")),
    op("torch.vmap(lambda a: f, chunk_size=2)(x)", x=SOME, f=body(a="x[0]")),
    op("torch.vmap(lambda a, b: f, in_dims=(0, None))(x, y)", x=SOME, y=SOME, f=body(a="x[0]", b="y")),
    op("torch.vmap(lambda a: f, out_dims=-1)(x)", x=SOME, f=body(a="x[0]")),
    op("torch.vmap(torch.func.grad(lambda a: f))(x)", x=SOME, f=body(a="x[0]", scalar=True)),
    op("torch.func.grad(lambda a: torch.nn.Linear(4, 3)(a).sum())(x)", u=Size(1, 8), x=ROWS, stops=True),
    op("torch.func.functional_call(torch.nn.Linear(4, 3), dict(weight=x, bias=b), (y,))",
       u=Size(1, 8), x=ROWS, b=Tensor(shape=("u",)), y=Tensor(shape=(2, 4))),
    op("torch.func.grad(lambda w: torch.func.functional_call(torch.nn.Linear(4, 3), dict(weight=w), (x,)).sum())(y)",
       u=Size(1, 8), x=ROWS, y=Tensor(shape=(3, 4)), stops=True),
)  # fmt: skip

CONTEXTS: tuple[OpSpec, ...] = (
    op("torch.no_grad()(lambda a: f)(x)", x=SOME, f=body(a="x")),
    op("torch.enable_grad()(lambda a: f)(x)", x=SOME, f=body(a="x")),
    op('torch.amp.autocast("cpu", dtype=torch.bfloat16)(lambda a: f)(x)', x=SOME, f=body(a="x")),
    op('torch.amp.autocast("cpu", dtype=torch.bfloat16)(lambda a: (a @ a.mT).sum())(x)', x=Tensor(2, 3, max_numel=64)),
    op('torch.amp.autocast("cpu", dtype=torch.bfloat16)(lambda a: torch.nn.Linear(4, 3)(a).softmax(-1))(x)',
       u=Size(1, 8), x=ROWS),
    op('torch.amp.autocast("cpu", enabled=False)(lambda a: f)(x)', x=SOME, f=body(a="x")),
    op("torch.no_grad()(lambda a: torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()(a, a, a))(x)",
       u=Size(1, 8), x=Tensor(shape=(2, "u", 4))),
    op("torch.no_grad()(lambda a: torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()(a))(x)",
       u=Size(1, 8), x=Tensor(shape=("u", 3, 4))),
    op("torch.no_grad()(lambda a, b: torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8, "
       "batch_first=True), 2).eval()(a, None, b))(x, m)",
       u=Size(1, 8), x=Tensor(shape=(2, "u", 4)), m=Tensor(kind="bool", shape=(2, "u"))),
)  # fmt: skip

FLEXIBLE: tuple[OpSpec, ...] = (
    op(f"{FLEX}(q, k, k)", u=Size(1, 8), q=QUERIES, n=Size(1, 8), k=Tensor(shape=(2, 2, "n", 4)), stops=True),
    op(f"{FLEX}(q, q, q, score_mod=lambda s, b, h, i, j: s + (i - j))", u=Size(1, 8), q=QUERIES, stops=True),
    op(f"{FLEX}(q, q, q, lambda s, b, h, i, j: torch.where(i >= j, s, -torch.inf))", u=Size(1, 8), q=QUERIES,
       stops=True),
    op(f"{FLEX}(q, q, q, block_mask={BLOCKS}(lambda b, h, i, j: i >= j, None, None, u, u, device='cpu'))",
       u=Size(1, 8), q=QUERIES, stops=True),
    op(f"{FLEX}(q, k, k, block_mask={BLOCKS}(lambda b, h, i, j: i - j < 3, 2, None, u, n, device='cpu'))",
       u=Size(1, 8), q=QUERIES, n=Size(1, 8), k=Tensor(shape=(2, 2, "n", 4)), stops=True),
)  # fmt: skip
