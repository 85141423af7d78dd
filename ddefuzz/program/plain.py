"""Control flow as plain Python: what `torch.cond` and loops mean.

Torch's own functions compile themselves when they are called in eager (`_maybe_compile_and_run_fn`), so eager would
not be independent of what is tested.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import torch

_pytree: Any = torch.utils._pytree

MOST_ROUNDS: Final = 10_000
"""The rounds of a loop after which it counts as one without end."""


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """`torch.cond`: one of two branches."""
    return true_fn(*operands) if _is_true(pred) else false_fn(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """`torch.while_loop`: the carried values after the last round. RuntimeError for a loop without end."""
    carried = tuple(carried_inputs)
    for _ in range(MOST_ROUNDS):
        if not _is_true(cond_fn(*carried)):
            return carried
        carried = tuple(body_fn(*carried))
    raise RuntimeError(f"a loop of more than {MOST_ROUNDS} rounds")


def _is_true(value: Any) -> bool:
    """The truth of a condition. RuntimeError for what is neither a bool nor one in a tensor: no user writes that."""
    if isinstance(value, torch.Tensor) and (value.dtype != torch.bool or value.numel() != 1):
        raise RuntimeError(f"a condition of {value.numel()} elements of {value.dtype}, expected one bool")
    return bool(value)


def scan(combine_fn: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
    """`torch._higher_order_ops.scan`: the last carry, and the outputs stacked along `dim`.

    Raises RuntimeError for no elements, as torch does (torch/_higher_order_ops/scan.py).
    """
    slices = _slices(xs, dim)
    carry, outputs = init, []
    for part in reversed(slices) if reverse else slices:
        carry, output = combine_fn(carry, part)
        outputs.append(output)
    return carry, _stacked(outputs[::-1] if reverse else outputs, dim)


def mapped(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`torch._higher_order_ops.map`: the results for each row, stacked. RuntimeError for no rows, as in torch."""
    return _stacked([f(row, *args) for row in _slices(xs, 0)], 0)


def _slices(xs: Any, dim: int) -> list[Any]:
    leaves, spec = _pytree.tree_flatten(xs)
    if any(leaf.shape[dim] != leaves[0].shape[dim] for leaf in leaves) or not leaves[0].shape[dim]:
        raise RuntimeError(f"leaves of shapes {[tuple(leaf.shape) for leaf in leaves]}, with nothing to go through")
    return [
        _pytree.tree_unflatten(list(parts), spec) for parts in zip(*(leaf.unbind(dim) for leaf in leaves), strict=True)
    ]


def _stacked(outputs: list[Any], dim: int) -> Any:
    return _pytree.tree_map(lambda *parts: torch.stack(parts, dim), *outputs)


PLAIN: Final[dict[str, Callable[..., Any]]] = {
    "torch.cond": cond,
    "torch.while_loop": while_loop,
    "torch._higher_order_ops.scan": scan,
    "torch._higher_order_ops.map": mapped,
}
"""By the catalogue's name."""


class ControlFlowInPython:
    """In the block, the functions of `PLAIN` are plain Python, for a call of eager.

    It is no generator, because `contextlib` sets attributes of an exception that passes: a user's may not allow that.
    """

    def __enter__(self) -> None:
        owners = [(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], PLAIN[name]) for name in PLAIN]
        self._kept = [(owner, name, getattr(owner, name)) for owner, name, _ in owners if hasattr(owner, name)]
        for owner, name, plain in owners:
            if hasattr(owner, name):
                setattr(owner, name, plain)

    def __exit__(self, *_: object) -> None:
        for owner, name, function in self._kept:
            setattr(owner, name, function)
