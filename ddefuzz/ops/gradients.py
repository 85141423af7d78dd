"""Catalogue: gradients that a program computes itself: into a leaf of some layout, and of another gradient."""

from __future__ import annotations

from ddefuzz.ops.spec import Leaf, OpSpec, op

SUMMED = "(x.mul(2).sum().backward(), x.grad)[1]"
"""Autograd checks the memory layout of the leaf before it keeps the gradient."""

GRADIENTS: tuple[OpSpec, ...] = (
    op(SUMMED, x=Leaf((3, 4), (0, 1), "transposed"), stops=True),
    op(SUMMED, x=Leaf((3, 4, 3, 3), (0, 1, 2, 3), "transposed"), stops=True),
    op(SUMMED, x=Leaf((3, 4, 3, 3, 3), (0, 1, 2, 3, 4), "transposed"), stops=True),
    op("torch.autograd.grad(torch.autograd.grad(torch.conv2d(x, w).sum(), [x], create_graph=True)[0].sum(), [w])[0]",
       x=Leaf((3, 1, 4, 4), (0,)), w=Leaf((3, 1, 2, 2))),
)  # fmt: skip
