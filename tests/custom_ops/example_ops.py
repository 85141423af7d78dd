# mypy: disable-error-code="untyped-decorator, no-untyped-call, no-untyped-def"
"""Custom ops, right ones and wrong ones. Each wrong one has the defect that its name says, and one example."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.library import Library, custom_op, register_autograd

LIBRARY = Library("zoo", "DEF")


@custom_op("zoo::double_rows", mutates_args=())
def double_rows(x: Tensor, times: int = 2, flat: bool = False) -> Tensor:
    """Right, with options, an autograd formula and a vmap rule."""
    made = x.repeat(times, 1).contiguous()
    return made.reshape(-1).clone() if flat else made.clone()


@double_rows.register_fake
def _(x: Tensor, times: int = 2, flat: bool = False) -> Tensor:
    rows, columns = x.shape
    return x.new_empty(times * rows * columns) if flat else x.new_empty(times * rows, columns)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.shape, ctx.times = inputs[0].shape, inputs[1]


def _gradient_of_rows(ctx: Any, gradient: Tensor) -> Any:
    return gradient.reshape(ctx.times, *ctx.shape).sum(0), None, None


register_autograd("zoo::double_rows", _gradient_of_rows, setup_context=_keep)


@torch.library.register_vmap("zoo::double_rows")
def _(info: Any, in_dims: Any, x: Tensor, times: int = 2, flat: bool = False) -> Any:
    rows = x.movedim(in_dims[0], 0)
    return torch.stack([double_rows(row, times, flat) for row in rows]), 0


@custom_op("zoo::positive", mutates_args=())
def positive(x: Tensor) -> Tensor:
    """Right, with a dynamic size."""
    return x[x > 0]


@positive.register_fake
def _(x: Tensor) -> Tensor:
    size = torch.library.get_ctx().new_dynamic_size()
    torch._check(size <= x.shape[0])
    return x.new_empty(size)


@custom_op("zoo::branches", mutates_args=())
def branches(x: Tensor) -> Tensor:
    """The fake kernel asks for a size."""
    return x.clone()


@branches.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(0) if x.shape[0] == 0 else torch.empty_like(x)


@custom_op("zoo::two_at_least", mutates_args=())
def two_at_least(x: Tensor) -> Tensor:
    """The bound of a dynamic size does not hold."""
    return x[x > 0]


@two_at_least.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size(min=2))


@custom_op("zoo::pairs", mutates_args=())
def pairs(x: Tensor) -> Tensor:
    """Wrong for odd sizes."""
    return x.new_zeros((x.shape[0] + 1) // 2)


@pairs.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0] // 2)


@custom_op("zoo::keeps_rank", mutates_args=())
def keeps_rank(x: Tensor, keepdim: bool = False) -> Tensor:
    """The fake kernel ignores an option that no example has."""
    return x.sum(1, keepdim=keepdim)


@keeps_rank.register_fake
def _(x: Tensor, keepdim: bool = False) -> Tensor:
    return x.new_empty(x.shape[0])


@custom_op("zoo::strides", mutates_args=())
def strides(x: Tensor) -> Tensor:
    """The real kernel keeps the strides of its argument."""
    return x.clone()


@strides.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@custom_op("zoo::dtype_of_half", mutates_args=())
def dtype_of_half(x: Tensor) -> Tensor:
    """The real kernel returns float32 for float16."""
    return x.float().sum(0) if x.dtype == torch.float16 else x.sum(0)


@dtype_of_half.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[1:])


LIBRARY.define("returns_view(Tensor x, int k) -> Tensor")


@torch.library.impl(LIBRARY, "returns_view", "CPU")
def _(x: Tensor, k: int) -> Tensor:
    """A view of its argument."""
    return x[:k]


@torch.library.register_fake("zoo::returns_view")
def _(x: Tensor, k: int) -> Tensor:
    return x.new_empty(torch.sym_min(x.shape[0], k))


@custom_op("zoo::returns_itself", mutates_args=())
def returns_itself(x: Tensor, p: float) -> Tensor:
    """Its argument, for an option that no example has. `torch.library.custom_op` refuses that."""
    return x * p if p else x


@returns_itself.register_fake
def _(x: Tensor, p: float) -> Tensor:
    return torch.empty_like(x)


@custom_op("zoo::writes", mutates_args=())
def writes(x: Tensor) -> Tensor:
    """It writes to its argument, if that is not contiguous."""
    made = x.clone() if x.is_contiguous() else x
    made.neg_()
    return made.clone(memory_format=torch.contiguous_format)


@writes.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@custom_op("zoo::raw_memory", mutates_args=())
def raw_memory(x: Tensor) -> Tensor:
    """It reads the memory of its argument as if it were contiguous."""
    return x.as_strided((x.numel(),), (1,), x.storage_offset()).clone()


@raw_memory.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.numel())


@custom_op("zoo::half_gradient", mutates_args=())
def half_gradient(x: Tensor) -> Tensor:
    """The factor of the gradient is missing."""
    return x * x


@half_gradient.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _keep_x(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


register_autograd("zoo::half_gradient", lambda ctx, gradient: gradient * ctx.saved_tensors[0], setup_context=_keep_x)


@custom_op("zoo::flat_gradient", mutates_args=())
def flat_gradient(x: Tensor) -> Tensor:
    """The backward takes a contiguous gradient only."""
    return x * 2.0


@flat_gradient.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


register_autograd("zoo::flat_gradient", lambda ctx, gradient: (gradient.view(-1) * 2.0).view(gradient.shape))


@custom_op("zoo::guarding_backward", mutates_args=())
def guarding_backward(x: Tensor) -> Tensor:
    """The backward asks for a size."""
    return x * 3.0


@guarding_backward.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


register_autograd(
    "zoo::guarding_backward", lambda ctx, gradient: gradient * 3.0 if gradient.shape[0] != 7 else 3.0 * gradient
)


@custom_op("zoo::batch_last", mutates_args=())
def batch_last(x: Tensor) -> Tensor:
    """The vmap rule says that the batch is last."""
    return x.flip(-1)


@batch_last.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.register_vmap("zoo::batch_last")
def _(info: Any, in_dims: Any, x: Tensor) -> Any:
    return batch_last(x.movedim(in_dims[0], 0)), x.dim() - 1


LIBRARY.define("negated(Tensor x) -> Tensor")
LIBRARY.define("negated.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", tags=(torch.Tag.out,))


@torch.library.impl(LIBRARY, "negated", "CPU")
def _(x: Tensor) -> Tensor:
    return x.neg()


@torch.library.register_fake("zoo::negated")
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.impl(LIBRARY, "negated.out", "CPU")
def _(x: Tensor, *, out: Tensor) -> Tensor:
    return out.copy_(x.neg())


@custom_op("zoo::crashes", mutates_args=())
def crashes(x: Tensor) -> Tensor:
    """It ends its process without elements."""
    if not x.numel():
        import ctypes  # noqa: PLC0415

        ctypes.string_at(0)
    return x.clone()


@crashes.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


PLANS: dict[int, tuple[Any, ...]] = {}


@custom_op("zoo::remembers", mutates_args=())
def remembers(x: Tensor) -> Tensor:
    """The fake kernel keeps the sizes of its first call."""
    return x.reshape(x.shape[0], -1).clone()


@remembers.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(PLANS.setdefault(x.dim(), (x.shape[0], x.shape[1] * x.shape[2])))


@custom_op("zoo::one_more", mutates_args=())
def one_more(x: Tensor, weight: Tensor | None = None) -> Tensor:
    """The fake kernel is wrong with an optional tensor that no example has."""
    return torch.zeros(x.shape[0] + (weight is not None))


@one_more.register_fake
def _(x: Tensor, weight: Tensor | None = None) -> Tensor:
    return x.new_empty(x.shape[0], dtype=torch.float32)


@custom_op("zoo::magnitude", mutates_args=())
def magnitude(x: Tensor) -> Tensor:
    """Wrong for complex numbers."""
    return x.abs()


@magnitude.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("zoo::share", mutates_args=())
def share(x: Tensor) -> Tensor:
    """Wrong where a product of floats is rounded down: for 100 rows."""
    return x[: x.shape[0] * 29 // 100].clone()


@share.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(math.floor(x.shape[0] * 0.29))


@custom_op("zoo::resizes", mutates_args=("buffer",))
def resizes(x: Tensor, buffer: Tensor) -> None:
    """The fake kernel does not give the argument the new sizes."""
    buffer.resize_(x.shape[0] * 2).fill_(1)


@resizes.register_fake
def _(x: Tensor, buffer: Tensor) -> None:
    return None


@custom_op("zoo::is_sparse", mutates_args=())
def is_sparse(x: Tensor) -> Tensor:
    """The real result is sparse."""
    return x.to_sparse()


@is_sparse.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@custom_op("zoo::without_fake", mutates_args=())
def without_fake(x: Tensor) -> Tensor:
    """It has no fake kernel."""
    return x.clone()


ROWS = torch.arange(12.0).reshape(3, 4) - 5.5

EXAMPLES: dict[str, list[Any]] = {
    "zoo::double_rows": [(ROWS,), ((ROWS, 3), {"flat": True})],
    "zoo::positive": [lambda n: (torch.linspace(-1, 1, n),)],
    "zoo::branches": [(ROWS[0].clone(),)],
    "zoo::two_at_least": [(ROWS[0].clone(),)],
    "zoo::pairs": [(torch.zeros(4),)],
    "zoo::keeps_rank": [(ROWS,)],
    "zoo::strides": [(ROWS,)],
    "zoo::dtype_of_half": [(ROWS,)],
    "zoo::returns_view": [(torch.arange(5.0), 2)],
    "zoo::returns_itself": [(torch.arange(5.0), 0.5)],
    "zoo::writes": [(ROWS,)],
    "zoo::raw_memory": [(ROWS,)],
    "zoo::half_gradient": [(ROWS,)],
    "zoo::flat_gradient": [(ROWS,)],
    "zoo::guarding_backward": [(ROWS,)],
    "zoo::batch_last": [(torch.arange(9.0).reshape(3, 3),)],
    "zoo::negated": [(ROWS,)],
    "zoo::crashes": [(ROWS[0].clone(),)],
    "zoo::remembers": [lambda n, k: (torch.zeros(n, k, 2),)],
    "zoo::one_more": [(torch.zeros(4),)],
    "zoo::magnitude": [(torch.zeros(4),)],
    "zoo::share": [lambda n: (torch.zeros(n),)],
    "zoo::resizes": [(torch.zeros(3), torch.zeros(6))],
    "zoo::is_sparse": [(torch.eye(3),)],
    "zoo::without_fake": [(ROWS,)],
}
