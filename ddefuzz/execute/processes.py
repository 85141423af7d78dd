"""Calls with DTensors for all processes of the mesh at once, so that collectives have values: torch's LocalTensorMode.

In that mode a tensor has the values of every process, and a size that differs between them is a `LocalIntNode`
(torch/distributed/_local_tensor/__init__.py). Dynamo does not compile in it, and the guards of what it compiled refuse
such tensors. So what was captured is called with the tensors of one process, and the graph gets others in their place.
It is dynamo's own graph. One of AOTAutograd is for one process: its number, and where its shards are, are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.fx import GraphModule

from ddefuzz.execute.comparison import CallResult, is_distributed
from ddefuzz.instrument import torch_api
from ddefuzz.program.recipes import WORLD


@contextmanager
def all_processes() -> Iterator[None]:
    """The mode in which each tensor has the values of all processes. Raises UnsupportedError.

    DTensor remembers sizes of a shard by the sizes of the whole tensor, and those of one process do not fit here.
    """
    forget = torch_api.bound(torch_api.CLEAR_SHARDING)
    forget()
    try:
        with torch_api.bound(torch_api.LOCAL_TENSOR_MODE)(WORLD):
            yield
    finally:
        forget()


class Exchange:
    """The tensors of all processes, by those of one process in whose place a graph gets them."""

    def __init__(self, of_one: Iterable[Any], of_all: Iterable[Any]) -> None:
        self.kept = list(of_one)  # so that no other value gets the id of one of them
        self.places = {id(alone): others for alone, others in zip(self.kept, of_all, strict=True)}
        self.is_done = False

    def arguments(self, graph: GraphModule, args: tuple[Any, ...]) -> Iterator[Any]:
        """The arguments of dynamo's graph in all processes. Raises ValueError for a DTensor that is no argument."""
        examples = [node.meta.get("example_value") for node in graph.graph.nodes if node.op == "placeholder"]
        sizes: dict[str, Any] = {}
        for example, mine in zip(examples, args, strict=True):
            if is_distributed(mine) and id(mine) not in self.places:
                raise ValueError("found a DTensor that is no argument, expected none")
            sizes |= _sizes(example, self.of(mine))
        for example, mine in zip(examples, args, strict=True):
            yield self.of(mine) if isinstance(mine, torch.Tensor) else sizes.get(str(example), mine)

    def of(self, value: Any) -> Any:
        """A result, in which each of the exchanged tensors is that of all processes."""
        return _mapped(value, lambda part: self.places.get(id(part), part))


_EXCHANGE: ContextVar[Exchange | None] = ContextVar("_EXCHANGE", default=None)


@contextmanager
def exchanged(of_one: Iterable[Any], of_all: Iterable[Any]) -> Iterator[Exchange]:
    """Let graphs of dynamo compute with the tensors of all processes in place of those of one process."""
    exchange = Exchange(of_one, of_all)
    token = _EXCHANGE.set(exchange)
    try:
        yield exchange
    finally:
        _EXCHANGE.reset(token)


def call_graph(graph: GraphModule, args: tuple[Any, ...]) -> Any:
    """Call dynamo's graph: as dynamo calls it, or with exchanged tensors."""
    exchange = _EXCHANGE.get()
    if exchange is None:
        return graph(*args)
    exchange.is_done = True
    with all_processes():
        return graph(*exchange.arguments(graph, args))


def _sizes(example: Any, given: Any) -> Mapping[str, Any]:
    """The sizes of an argument, and of its shards, by the symbols that dynamo gave them."""
    if not isinstance(example, torch.Tensor):
        return {}
    sizes = dict(zip(map(str, example.shape), given.shape, strict=True))
    if is_distributed(example) and is_distributed(given):
        sizes |= _sizes(example.to_local(), given.to_local())  # type: ignore[attr-defined]
    return sizes


def by_process(left: CallResult) -> CallResult:
    """What a call left, each tensor as a dict with those of all processes."""
    inputs, gradients = (tuple(_mapped(one, _by_process) for one in values) for values in (left.inputs, left.gradients))
    return CallResult(left.error, _mapped(left.result, _by_process), inputs, gradients)


def _by_process(value: Any) -> Any:
    values = _values(value)
    return value if values is None else {f"process {rank}": part for rank, part in sorted(values.items())}


def own_tensors(value: Any) -> list[Any]:
    """The plain tensors that a tensor consists of: the shard of this process, or those of all."""
    own = value.to_local() if is_distributed(value) else value
    return list((_values(own) or {0: own}).values())


def has_uneven(leaves: Iterable[Any], unbacked: Container[tuple[int, int]]) -> bool:
    """Whether a dim that is static has other sizes in other processes: dynamo takes those of its own for constants.

    `unbacked` are the dims (number of the leaf, dim) that are not static.
    """
    sizes = (
        (size, (at, dim))
        for at, leaf in enumerate(leaves)
        if is_distributed(leaf)
        for dim, size in enumerate(leaf.to_local().shape)
    )
    return any(_values(size) is not None and place not in unbacked for size, place in sizes)


def _values(value: Any) -> dict[int, Any] | None:
    """The values in all processes, if there are several: of a tensor, or of a size that differs."""
    own = value.to_local() if is_distributed(value) else value
    if isinstance(own, torch.SymInt):
        return getattr(own.node, "_local_ints", None)
    return getattr(own, "_local_tensors", None)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with each part in its containers changed."""
    if isinstance(value, list | tuple):
        return [_mapped(part, change) for part in value]
    if isinstance(value, dict):
        return {name: _mapped(part, change) for name, part in value.items()}
    return change(value)
