"""Calls with DTensors for all processes of the mesh at once, so that collectives have values: torch's LocalTensorMode.

In that mode a tensor has the values of every process, and a size that differs between them is a `LocalIntNode`
(torch/distributed/_local_tensor/__init__.py). Dynamo does not compile in it, and the guards of what it compiled refuse
such tensors. So what was captured is called with the tensors of one process, and the graph gets others in their place.
It is dynamo's own graph. One of AOTAutograd is for one process: its number, and where its shards are, are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.fx import GraphModule

from ddefuzz.execute.comparison import CallResult, is_distributed
from ddefuzz.instrument import torch_api
from ddefuzz.program.recipes import WORLD


def all_processes() -> AbstractContextManager[object]:
    """The mode in which each tensor has the values of all processes. Raises UnsupportedError."""
    mode: AbstractContextManager[object] = torch_api.bound(torch_api.LOCAL_TENSOR_MODE)(WORLD)
    return mode


class Exchange:
    """The tensors of all processes, by those of one process in whose place a graph gets them."""

    def __init__(self, mine: Iterable[Any], all_: Iterable[Any]) -> None:
        self.kept = list(mine)
        self.places = {id(alone): others for alone, others in zip(self.kept, all_, strict=True)}
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
        if isinstance(value, list | tuple):
            return [self.of(part) for part in value]
        if isinstance(value, dict):
            return {name: self.of(part) for name, part in value.items()}
        return self.places.get(id(value), value)


_EXCHANGE: ContextVar[Exchange | None] = ContextVar("_EXCHANGE", default=None)


@contextmanager
def exchanged(mine: Iterable[Any], all_: Iterable[Any]) -> Iterator[Exchange]:
    """Let graphs of dynamo compute with the tensors of all processes in place of those of one process."""
    exchange = Exchange(mine, all_)
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
    return CallResult(left.error, _each(left.result), tuple(map(_each, left.inputs)), tuple(map(_each, left.gradients)))


def _each(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_each(part) for part in value]
    if isinstance(value, dict):
        return {name: _each(part) for name, part in value.items()}
    own = value.to_local() if is_distributed(value) else value
    if isinstance(own, torch.SymInt):
        values = getattr(own.node, "_local_ints", None)
    else:
        values = getattr(own, "_local_tensors", None)
    return own if values is None else {f"process {rank}": part for rank, part in sorted(values.items())}
