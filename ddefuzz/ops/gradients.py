"""Catalogue: gradients that a program computes itself, and functions that vmap maps."""

from __future__ import annotations

from ddefuzz.ops.spec import Leaf, OpSpec, Size, Tensor, op

N = Size(1, 6)

MAPPED: tuple[OpSpec, ...] = (
    op("torch.vmap(torch.matmul)(torch.relu(x), y)", n=N, x=Tensor(shape=(3, "n", "n", 4)), y=Tensor(shape=(3, 4, 2)),
       stops=True),
    op("torch.vmap(torch.matmul)(x, y)", n=N, x=Tensor(shape=(3, "n", 2, 4)), y=Tensor(shape=(3, 1, 4, 2))),
    op("torch.vmap(torch.matmul)(x, x[:, :1])", n=N, x=Tensor(shape=(3, "n", 2, 2))),
    op("torch.vmap(torch.cat)((x, y))", n=N, x=Tensor(shape=(3, "n")), y=Tensor(shape=(3, 4)), stops=True),
)  # fmt: skip


SUMMED = "(x.mul(2).sum().backward(), x.grad)[1]"
"""Autograd checks the memory layout of the leaf before it keeps the gradient."""

GRADIENTS: tuple[OpSpec, ...] = (
    op(SUMMED, x=Leaf((3, 4), (0, 1), "transposed"), stops=True),
    op(SUMMED, x=Leaf((3, 4, 3, 3), (0, 1, 2, 3), "transposed"), stops=True),
    op(SUMMED, x=Leaf((3, 4, 3, 3, 3), (0, 1, 2, 3, 4), "transposed"), stops=True),
    op("(x.mul(2).backward(torch.ones_like(x), retain_graph=True), x.grad)[1]", x=Leaf((3, 4), (0, 1), "transposed"),
       stops=True),
    op("torch.autograd.grad(x * x, x, torch.ones_like(x), create_graph=True)[0]", x=Leaf((3, 4), (0,))),
    op("torch.autograd.grad(torch.autograd.grad(torch.conv2d(x, w).sum(), [x], create_graph=True)[0].sum(), [w])[0]",
       x=Leaf((3, 1, 4, 4), (0,)), w=Leaf((3, 1, 2, 2))),
)  # fmt: skip
