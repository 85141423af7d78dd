"""Control flow and `flex_attention` as plain Python: what `torch.cond` and loops mean.

Torch's own functions compile themselves when they are called in eager (`_maybe_compile_and_run_fn`), so eager would
not be independent of what is tested.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch

_pytree: Any = torch.utils._pytree

MOST_ROUNDS: Final = 10_000
"""The rounds of a loop after which it counts as one without end."""


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """`torch.cond`: one of two branches."""
    return (true_fn if _is_true(pred) else false_fn)(*operands)


def cond_of_both(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """The same, for a program that is made or made smaller: both branches have to run and to return the same kinds of
    values, because torch captures both. RuntimeError if they do not.
    """
    results = [function(*operands) for function in (true_fn, false_fn)]
    if _kinds(results[0]) != _kinds(results[1]):
        raise RuntimeError(f"branches that return {_kinds(results[0])} and {_kinds(results[1])}, expected the same")
    return results[0] if _is_true(pred) else results[1]


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """`torch.while_loop`: the carried values after the last round. RuntimeError for a loop without end."""
    carried = tuple(carried_inputs)
    for _ in range(MOST_ROUNDS):
        if not _is_true(cond_fn(*carried)):
            return carried
        carried = _carried(carried, tuple(body_fn(*carried)))
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
        pair = combine_fn(carry, part)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise RuntimeError(f"a function that returns {_kinds(pair)}, expected the next carry and an output")
        carry = _carried(carry, pair[0])
        outputs.append(pair[1])
    return carry, _stacked(outputs[::-1] if reverse else outputs, dim)


def mapped(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`torch._higher_order_ops.map`: the results for each row, stacked. RuntimeError for no rows, as in torch."""
    return _stacked([f(row, *args) for row in _slices(xs, 0)], 0)


def flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Callable[..., Any] | None = None,
    block_mask: Any = None,
    scale: float | None = None,
) -> torch.Tensor:
    """`torch.nn.attention.flex_attention.flex_attention`, from its definition. A row that a mask excludes is 0.

    Raises RuntimeError for what torch refuses: other ranks than 4, heads that differ, no keys, a mask of other lengths.
    """
    if (
        query.dim() != 4
        or key.dim() != 4
        or query.shape[:2] != key.shape[:2]
        or key.shape != value.shape
        or not key.shape[2]
    ):
        raise RuntimeError(f"shapes {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}")
    scores = (query @ key.transpose(-2, -1)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    sizes = scores.shape
    places = [torch.arange(size).view([-1 if at == dim else 1 for at in range(4)]) for dim, size in enumerate(sizes)]
    if score_mod is not None:
        scores = score_mod(scores, *places).expand(sizes)
    if block_mask is not None:
        if tuple(block_mask.seq_lengths) != tuple(sizes[2:]):
            raise RuntimeError(f"a mask for lengths {tuple(block_mask.seq_lengths)}, expected {tuple(sizes[2:])}")
        scores = scores.masked_fill(~block_mask.mask_mod(*places).expand(sizes), -torch.inf)
    return torch.nan_to_num(torch.softmax(scores, -1)) @ value


def _own(function: Callable[..., Any], *values: Any) -> Any:
    """What a function computes. RuntimeError if a result shares memory with an argument or with a value around the
    function: torch refuses that (torch/_higher_order_ops/utils.py, `has_potential_input_alias_or_mutation`).
    """
    result = function(*values)
    around = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    outside = [*values, *around, *(value for names in around if isinstance(names, dict) for value in names.values())]
    if not set(_memory(outside)).isdisjoint(_memory(result)):
        raise RuntimeError("a function whose result shares memory with another value, expected one with its own")
    return result


def _carried(before: Any, after: Any) -> Any:
    """What is carried to the next round. RuntimeError if it has another form than before."""
    shapes = [[getattr(leaf, "shape", ()) for leaf in _pytree.tree_leaves(values)] for values in (before, after)]
    if _kinds(before) != _kinds(after) or shapes[0] != shapes[1]:
        raise RuntimeError(f"a carry of {_kinds(after)} of {shapes[1]}, expected {_kinds(before)} of {shapes[0]}")
    return after


def _kinds(values: Any) -> list[str]:
    """The dtypes of tensors, and the types of other values."""
    leaves = _pytree.tree_leaves(values)
    return [str(leaf.dtype) if isinstance(leaf, torch.Tensor) else type(leaf).__name__ for leaf in leaves]


def _memory(values: Any) -> Iterator[int]:
    """Where the tensors in some values are stored. Those without memory of their own are left out."""
    leaves = (leaf for leaf in _pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor))
    yield from filter(None, map(address_of, leaves))


def address_of(tensor: torch.Tensor) -> int:
    """Where the tensor's memory is. 0 for one without memory of its own: sparse, a DTensor, of torch.func, fake."""
    try:
        return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0
    except (NotImplementedError, RuntimeError):
        return 0


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
    "torch.nn.attention.flex_attention.flex_attention": flex_attention,
}
"""By the catalogue's name: what a call of eager has."""


def _strict(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The same for functions whose results have memory of their own (`_own`)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return plain(*(partial(_own, arg) if callable(arg) else arg for arg in args), **kwargs)

    return call


FOR_A_NEW_PROGRAM: Final = {name: _strict(one) for name, one in {**PLAIN, "torch.cond": cond_of_both}.items()}
"""By the catalogue's name: what decides whether a program is valid.

A call of eager is less strict: at other sizes a value may be a view that is a copy at the example's.
"""


class ControlFlowInPython:
    """In the block, the functions of `PLAIN` are plain Python, for a call of eager.

    It is no generator, because `contextlib` sets attributes of an exception that passes: a user's may not allow that.
    """

    def __enter__(self) -> None:
        places = [name.rpartition(".") for name in PLAIN if name.rpartition(".")[0] in sys.modules]
        owners = [(sys.modules[module], name, PLAIN[f"{module}.{name}"]) for module, _, name in places]
        self._kept = [(owner, name, getattr(owner, name)) for owner, name, _ in owners if hasattr(owner, name)]
        for owner, name, plain in owners:
            if hasattr(owner, name):
                setattr(owner, name, plain)

    def __exit__(self, *_: object) -> None:
        for owner, name, function in self._kept:
            setattr(owner, name, function)
