"""Control flow as plain Python: what `torch.cond` and loops mean.

Torch's own functions compile themselves when they are called in eager (`_maybe_compile_and_run_fn`), so eager would
not be independent of what is tested.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

_pytree: Any = torch.utils._pytree

MOST_ROUNDS: Final = 10_000
"""The rounds of a loop after which it counts as one without end."""


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """`torch.cond`: one of two branches."""
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """`torch.while_loop`: the carried values after the last round. RuntimeError for a loop without end."""
    carried = tuple(carried_inputs)
    for _ in range(MOST_ROUNDS):
        if not cond_fn(*carried):
            return carried
        carried = tuple(body_fn(*carried))
    raise RuntimeError(f"a loop of more than {MOST_ROUNDS} rounds")


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


@contextmanager
def control_flow_in_python() -> Iterator[None]:
    """In the block, the functions of `PLAIN` are plain Python, for a call of eager."""
    owners = [(name.rpartition(".")[0], name.rpartition(".")[2], function) for name, function in PLAIN.items()]
    kept = [(sys.modules[owner], name, getattr(sys.modules[owner], name, None), plain) for owner, name, plain in owners]
    try:
        for module, name, own, plain in kept:
            if own is not None:
                setattr(module, name, plain)
        yield
    finally:
        for module, name, own, _ in kept:
            if own is not None:
                setattr(module, name, own)
