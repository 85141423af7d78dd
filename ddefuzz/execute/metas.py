"""Run a captured graph node by node, and compare each value with what the graph says of it (`meta["val"]`).

The source from the line `# ---` on is copied into scripts. It is written for Python 3.9 and torch 2.6, and later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg

# ---
CHANGE_META = ("as_strided_", "resize_", "set_", "squeeze_", "swapaxes_", "t_", "transpose_", "unsqueeze_")
"""In-place ops after which a tensor has other sizes. The graph then says what it has at the end, at all its nodes."""


class Unlike(NamedTuple):
    """What the graph says wrongly of a value, and how."""

    what: Any
    how: str


class Reader(Interpreter):
    """Runs a graph. `wrong` is the first node of whose value the graph says what is not so, with its real arguments and
    what that is.

    A node is compared if the graph is right about its arguments. `known` are the values of the symbols.
    """

    def __init__(self, graph: GraphModule) -> None:
        super().__init__(graph)
        self.known: dict[str, int] = {}
        self.wrong: Any = None
        self.compares = not any(map(changes_meta, graph.graph.nodes))

    def run_node(self, n: Node) -> Any:
        """Run one node."""
        if not self.compares or self.wrong is not None or n.op not in ("call_function", "call_method"):
            value = super().run_node(n)
            bind(said_of(n), value, self.known)
            return value
        real = self.fetch_args_kwargs_from_env(n)
        pairs = list(tensors(map_arg((n.args, n.kwargs), said_of), real))
        agree = not any(one for pair in pairs for one in unlike_tensors(*pair, self.known, True))
        value, claim = super().run_node(n), said_of(n)
        bind(claim, value, self.known)
        if agree and claim is not None:
            first = next(unlike(claim, value, pairs, self.known, is_one_op(n.target)), None)
            self.wrong = None if first is None else (n, real, first)
        return value


def said_of(node: Node) -> Any:
    """What the graph says of a node's value: a fake tensor, or a number."""
    return node.meta.get("example_value", node.meta.get("val"))


def target_of(node: Node) -> str:
    """The name of what a node calls: `mm.default`, `relu`."""
    return str(getattr(node.target, "__name__", node.target))


def changes_meta(node: Node) -> bool:
    """Whether a node changes the sizes of a tensor in place."""
    return target_of(node).partition(".")[0] in CHANGE_META or torch.Tag.inplace_view in getattr(
        node.target, "tags", ()
    )


def is_one_op(target: Any) -> bool:
    """Whether it is an op that does not consist of others. It always returns a view, or never."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return hasattr(target, "overloadpacket") and not target.has_kernel_for_dispatch_key(key)


def tensors(claim: Any, real: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors in nested containers, as the graph says and real."""
    if isinstance(claim, torch.Tensor) and isinstance(real, torch.Tensor):
        yield claim, real
    elif isinstance(claim, (list, tuple)) and isinstance(real, (list, tuple)):
        for pair in zip(claim, real):
            yield from tensors(*pair)
    elif isinstance(claim, dict) and isinstance(real, dict):
        for name in claim:
            yield from tensors(claim[name], real.get(name))


def bind(claim: Any, value: Any, known: dict[str, int]) -> None:
    """Note the values of the symbols that a value has first."""
    if isinstance(claim, torch.Tensor) and isinstance(value, torch.Tensor):
        for pair in zip((*claim.shape, *geometry(claim)), (*value.shape, *geometry(value))):
            bind(*pair, known)
    elif isinstance(claim, (list, tuple)) and isinstance(value, (list, tuple)):
        for pair in zip(claim, value):
            bind(*pair, known)
    elif isinstance(claim, torch.SymInt) and type(value) is int and claim.node.expr.is_Symbol:
        known.setdefault(str(claim.node.expr), value)


def geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Strides and storage offset."""
    return (*tensor.stride(), tensor.storage_offset()) if tensor.layout == torch.strided else ()


def number(size: Any, known: Mapping[str, int]) -> Any:
    """The value of a size; None where a symbol is not known."""
    if isinstance(size, (bool, int)):
        return int(size)
    if not isinstance(size, (torch.SymInt, torch.SymBool)):
        return None
    expression = size.node.expr
    symbols = {symbol: known.get(str(symbol)) for symbol in expression.free_symbols}
    if None in symbols.values():
        return None
    with suppress(Exception):  # where torch's functions of sizes are not defined
        return int(expression.xreplace(symbols))
    return None


def unlike(claim: Any, value: Any, inputs: Any, known: Mapping[str, int], one_op: bool) -> Iterator[Unlike]:
    """What is said wrongly of a value, or of its parts. `inputs` are the tensors that it was made of. With `one_op`,
    whether it is a view of one of them is compared.
    """
    if isinstance(claim, torch.Tensor) and isinstance(value, torch.Tensor):
        made, there = (shares_memory(one, [pair[at] for pair in inputs]) for at, one in enumerate((claim, value)))
        small = any(is_small(*pair) for pair in (*inputs, (claim, value)))
        yield from unlike_tensors(claim, value, known, made == there and not small)
        if one_op and made != there and value.numel():
            words = ("is a copy", "is a view")
            yield Unlike("alias", f"{words[made]}, the value {words[there]}")
    elif isinstance(claim, (list, tuple)) and isinstance(value, (list, tuple)):
        if len(claim) != len(value):
            yield Unlike("structure", f"{len(claim)} items, the value has {len(value)}")
        for pair in zip(claim, value):
            yield from unlike(*pair, inputs, known, one_op)
    elif claim is None and isinstance(value, torch.Tensor):
        yield Unlike("structure", "nothing, the value is a tensor")
    elif isinstance(value, (bool, int)) and number(claim, known) not in (None, int(value)):
        shown = f"{claim} is {number(claim, known)}" if isinstance(claim, torch.SymInt | torch.SymBool) else str(claim)
        yield Unlike("number", f"{shown}, the value is {int(value)}")


def unlike_tensors(
    claim: torch.Tensor, value: torch.Tensor, known: Mapping[str, int], places: bool
) -> Iterator[Unlike]:
    """What is said wrongly of a tensor. With `places`, strides and storage offset are compared, too."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return
    shape = tuple(number(size, known) for size in claim.shape)
    if len(shape) == value.dim() and matches(shape, value.shape):
        shape = tuple(value.shape)
    for what, wanted, real in (
        ("dtype", claim.dtype, value.dtype),
        ("structure", claim.layout, value.layout),
        ("structure", claim.device.type, value.device.type),
        ("shape", shape, tuple(value.shape)),
    ):
        if wanted != real:
            yield Unlike(what, f"{wanted}, the value has {real}")
            return
    if not places or value.layout != torch.strided or not value.numel():
        return
    strides, offset = tuple(number(one, known) for one in claim.stride()), number(claim.storage_offset(), known)
    shown = [at for at, size in enumerate(value.shape) if size > 1]
    if not matches([strides[at] for at in shown], [value.stride(at) for at in shown]):
        yield Unlike("strides", f"{strides}, the value has {value.stride()}")
    elif offset not in (None, value.storage_offset()):
        yield Unlike("strides", f"storage offset {offset}, the value has {value.storage_offset()}")


def is_small(claim: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether an unknown size is 0 or 1. Then several strides describe one memory, and a fake kernel says those of
    larger sizes.
    """
    return any(type(one) is not int and there < 2 for one, there in zip(claim.shape, value.shape))


def matches(wanted: Any, real: Any) -> bool:
    """Whether numbers are equal, as far as they are known."""
    return all(one in (None, other) for one, other in zip(wanted, real))


def shares_memory(tensor: torch.Tensor, others: list[torch.Tensor]) -> bool:
    """Whether a tensor shares memory with one of the others. A sparse tensor has no memory of its own."""
    try:
        return any(torch._C._is_alias_of(tensor, one) for one in others)  # type: ignore[attr-defined]
    except (NotImplementedError, RuntimeError):
        return False
