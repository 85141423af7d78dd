"""Templates that convert an existing tensor to the kind, rank or shape that a slot requires."""

from __future__ import annotations

from typing import Final

from ddefuzz.ops.spec import Kind

TO_KIND: Final[dict[Kind, tuple[str, ...]]] = {
    "float": ("x.float()", "x * 1.0"),
    "int": ("x.long()", "x.to(torch.int64)"),
    "bool": ("x > 0", "x != 0"),
    "number": ("x.abs()",),
    "complex": ("torch.complex(x, x)",),
}
"""`x` converted to another kind (for `complex`: a float)."""

FROM_COMPLEX: Final = ("torch.view_as_real(x).sum(-1)", "x.abs()", "x.real")
RAISE_RANK: Final = ("x.unsqueeze(0)", "x.unsqueeze(-1)", "x[None]", "torch.stack((x, x))")
TO_SCALAR: Final = ("x[0]", "x.sum()")
LOWER_RANK: Final = ("x.flatten(0, 1)", "x.sum(-1)", "x.sum(0)", "x[..., 0]", "x.amax(1)")

ALIKE: Final[dict[Kind, tuple[str, ...]]] = {
    "float": ("x * 2.0", "torch.ones_like(x, dtype=torch.float32)", "torch.cos(x)", "x.clone()"),
    "int": ("torch.zeros_like(x, dtype=torch.int64)", "torch.ones_like(x, dtype=torch.int64)"),
    "bool": ("x > 0", "x == x", "torch.zeros_like(x, dtype=torch.bool)"),
    "complex": ("torch.complex(x, x)",),
}
"""Another tensor with the shape of `x`."""

FRESH: Final[dict[Kind, tuple[str, ...]]] = {
    "float": (
        "torch.ones(s)",
        "torch.full(s, 0.5)",
        "torch.zeros(s)",
        "torch.ones(s).cumsum(0)",
        "torch.ones(s).cumsum(-1)",
    ),
    "int": ("torch.ones(s, dtype=torch.int64)", "torch.zeros(s, dtype=torch.int64)"),
    "bool": ("torch.ones(s, dtype=torch.bool)", "torch.zeros(s, dtype=torch.bool)"),
    "complex": ("torch.zeros(s, dtype=torch.complex64)",),
}
"""A tensor of the shape `s`."""

LAID_OUT: Final[dict[int, tuple[str, ...]]] = {
    2: ("x.t().contiguous().t()",),
    3: ("x.transpose(1, 2).contiguous().transpose(1, 2)", "x.transpose(0, 1).contiguous().transpose(0, 1)"),
    4: ("x.contiguous(memory_format=torch.channels_last)", "x.transpose(1, 2).contiguous().transpose(1, 2)"),
    5: ("x.contiguous(memory_format=torch.channels_last_3d)",),
}
"""`x` with other strides, by rank."""

BROADCASTABLE: Final = ("x[:1]", "x.sum(0)", "x.mean(-1, keepdim=True)", "x.amax(0, keepdim=True)")
"""A tensor that broadcasts with `x`, of rank 1 or more."""

ADJUST: Final = (
    *("n",) * 4,
    "n - 1",
    "n + 1",
    "n // 2",
    "n * 2",
    "(n + 1) // 2",
    "torch.sym_min(n, 3)",
    "torch.sym_max(n, 1)",
    "n % 4",
)
"""Sizes computed from a size. The plain size is listed several times, so that it is drawn more often.

Python's own `min` and `max` compare, which is a branch of the user's code.
"""

INDICES: Final = (
    "torch.arange(n)",
    "torch.arange(n).flip(0)",
    "torch.zeros(n, dtype=torch.int64)",
    "torch.arange(n) // 2",
)
"""Index tensors of length `n`, with values below it (or 0)."""

TEMPLATES: Final[tuple[str, ...]] = (
    *(template for table in (TO_KIND, ALIKE, FRESH) for templates in table.values() for template in templates),
    *(template for templates in LAID_OUT.values() for template in templates),
    *(*FROM_COMPLEX, *RAISE_RANK, *LOWER_RANK, *TO_SCALAR, *BROADCASTABLE, *ADJUST, *INDICES),
    "x % n",
    "x[:n]",
)
"""All templates above. Their callables belong to the catalogue."""
