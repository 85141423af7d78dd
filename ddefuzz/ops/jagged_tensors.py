"""Catalogue: jagged nested tensors, made of rows that are repeated as data says, and computed on. What a row gives is a
plain tensor again.
"""

from __future__ import annotations

from ddefuzz.ops.spec import Data, Indices, OpSpec, Size, Tensor, op

ROWS = Tensor(shape=(3, 4))
LENGTHS = Data("sizes", (3,))
OFFSETS = "torch.nn.functional.pad(s.cumsum(0), (1, 0))"
MADE = f"torch.nested.nested_tensor_from_jagged(torch.repeat_interleave(x, s, dim=0), {OFFSETS})"


def _on(template: str, *, stops: bool = False) -> OpSpec:
    """The op on a jagged tensor, which the template calls `j`."""
    return op(template.replace("{j}", MADE), x=ROWS, s=LENGTHS, stops=stops)


JAGGED: tuple[OpSpec, ...] = (
    _on("({j} * 2).values()"),
    _on("torch.add({j}, 1).values()"),
    _on("{j}.sin().values()"),
    _on("{j}.sum(-1).values()"),
    _on("{j}.sum(1)"),
    _on("{j}.mean(1)"),
    _on("{j}.amax(1)"),
    _on("{j}.softmax(-1).values()"),
    _on("torch.nn.functional.softmax({j}, 1).values()"),
    _on("torch.nn.functional.layer_norm({j}, (4,)).values()", stops=True),
    _on("torch.nn.functional.linear({j}, torch.ones(3, 4)).values()"),
    _on("torch.nn.functional.dropout({j}, 0.5, training=False).values()"),
    _on("({j} @ torch.ones(4, 4)).values()"),
    _on("{j}.split(2, -1)[0].values()"),
    _on("{j}.unsqueeze(-1).values()"),
    _on("{j}.transpose(1, 2).transpose(1, 2).values()"),
    _on("{j}.view(3, -1, 2, 2).values()"),
    _on("{j}.unflatten(-1, (2, 2)).flatten(-2).values()"),
    _on("{j}[..., :2].values()"),
    _on("{j}[0]"),
    _on("{j}.select(0, 1)", stops=True),
    _on("{j}.unbind()[1]"),
    _on("{j}.to_padded_tensor(0.0)"),
    _on("{j}.to(torch.float64).values()"),
    _on("torch.zeros_like({j}).values()"),
    op("torch.nested.as_nested_tensor(x, layout=torch.jagged).values()", u=Size(1, 6), x=Tensor(shape=("u", 3, 4))),
    op("torch.nested.as_nested_tensor(x.expand(n, -1, -1), layout=torch.jagged).mean(-1, keepdim=True).values()",
       n=Size(1, 6), x=Tensor(shape=(1, 3, 4)), stops=True),
    op("torch.nested.as_nested_tensor([x, y], layout=torch.jagged).values()",
       u=Size(1, 6), x=Tensor(shape=("u", 4)), y=Tensor(shape=(3, 4)), stops=True),
    op("torch.nested.nested_tensor([x, y], layout=torch.jagged).values()",
       u=Size(1, 6), x=Tensor(shape=("u", 4)), y=Tensor(shape=(3, 4)), stops=True),
    op("torch.nested.narrow(x, 1, 0, t, layout=torch.jagged).unbind()[1]",
       x=Tensor(shape=(2, 5, 3)), t=Indices(5, shape=(2,))),
)  # fmt: skip
