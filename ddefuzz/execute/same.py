"""A digest of a captured program. Two captures with the same digest compute the same results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import count

import torch
from torch.fx import GraphModule

from ddefuzz.execute.stages import Capture, graph_text

_UNREAD = count()


def digest_of(capture: Capture) -> str:
    """The digest of the graphs with their constants, of inductor's code, and of the ranges that an export checks."""
    graphs = (capture.graph, *capture.lowered())
    values = (*capture.constants(), *(value for graph in graphs for value in _read_by(graph)))
    texts = (*map(graph_text, graphs), *map(_shown, values), *capture.generated(), *capture.ranges())
    return hashlib.sha256("\n".join(texts).encode(errors="backslashreplace")).hexdigest()


def _read_by(graph: GraphModule) -> Iterator[object]:
    """The values that a graph reads by name, apart from other graphs."""
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            value: object = graph
            for name in str(node.target).split("."):
                value = getattr(value, name, None)
            if not isinstance(value, GraphModule):
                yield value


def _shown(value: object) -> str:
    """A value as text. One that cannot be read (a tensor of torch.func, a subclass) is like no other."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    try:
        return _read(value)
    except RuntimeError:
        return f"{type(value).__name__} {next(_UNREAD)}"


def _read(value: torch.Tensor) -> str:
    plain_kind = type(value) in {torch.Tensor, torch.nn.Parameter} and value.layout == torch.strided
    if not plain_kind or value.is_quantized or value.device.type != "cpu":
        return str(value)
    plain = value.detach().resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)
    return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(plain.numpy().tobytes()).hexdigest()}"
