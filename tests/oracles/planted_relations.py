"""Planted faults that a variant of a program shows: torch does what depends on names, hints, order or dead code."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch._dynamo import decorators
from torch._inductor import lowering
from torch._inductor.virtualized import V
from torch._subclasses import fake_impls

from ddefuzz.execute.protocol import Stage
from tests.oracles.test_planted_assertions import Change, drop, plant_in_dynamo

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]

HEADER = "# ddefuzz program v1\n# inputs: "
ROUND = f"""{HEADER}x = normal; y = normal
def program(x: Float32[Tensor, "u0=3 4"], y: Float32[Tensor, "u1=5 4"]):
    t0 = torch.round(x)
    t1 = torch.relu(y)
    return (t0, t1)
"""
CHECKED = f"""{HEADER}x = normal; mask = trues(3); y = normal
def program(x: Float32[Tensor, "6 4"], mask: Bool[Tensor, "6"], y: Float32[Tensor, "u1=5 4"]):
    kept = x[mask]
    torch._check(kept.shape[0] <= 3)
    t0 = torch.round(kept)
    t1 = torch.relu(y)
    return (t0, t1)
"""
ORDERED = f"""{HEADER}x = sizes(3); y = normal
def program(x: Int64[Tensor, "1"], y: Float32[Tensor, "4"]):
    t0 = torch.zeros(x[0].item())
    t1 = torch.relu(y)
    return (t0, t1)
"""
ROWS = f"""{HEADER}x = normal
def program(x: Float32[Tensor, "u0=3 4"]):
    t0 = torch.relu(x)
    return t0
"""


def asks(question: Callable[[torch.SymInt | int], object]) -> Plant:
    """The fake kernel of `round` asks something about the first size, and fails if it is so."""

    def fake(_mode: Any, _func: Any, x: Any, *_: Any, **_kwargs: Any) -> Any:
        if question(x.shape[0]):
            raise RuntimeError("planted")
        return NotImplemented

    def plant(patch: Patch) -> None:
        patch.setitem(fake_impls.op_implementations_dict, torch.ops.aten.round.default, fake)

    return plant


def name_of_size(size: torch.SymInt | int) -> object:
    """An answer that depends on the name of a symbol."""
    return str(size) == "u1"


def is_static(size: torch.SymInt | int) -> object:
    return isinstance(size, int)


def is_backed(size: torch.SymInt | int) -> object:
    return isinstance(size, torch.SymInt) and size.node.has_hint()


def hint_is_one(size: torch.SymInt | int) -> object:
    """An answer that depends on a hint."""
    return isinstance(size, torch.SymInt) and 1 in size.node.shape_env.var_to_hint_override.values()


def bounds_are_ignored(patch: Patch) -> None:
    """`mark_unbacked` ignores `min` and `max`."""
    mark = decorators.mark_unbacked

    def planted(*args: Any, min: Any = None, max: Any = None, **kwargs: Any) -> None:  # noqa: A002 torch's names
        mark(*args, **kwargs)

    patch.setattr(decorators, "mark_unbacked", planted)


def in_graph(change: Change) -> Plant:
    return lambda patch: plant_in_dynamo(patch, change)


def dropped_beside_dead_code(graph: torch.fx.Graph, asserts: Any) -> None:
    """Assertions are lost if a comparison has no users."""
    if any(node.target is operator.eq and not node.users for node in graph.nodes):
        drop(graph, asserts)


def dropped_beside_dead_symbols(graph: torch.fx.Graph, asserts: Any) -> None:
    """Assertions are lost if there is a `nonzero`."""
    if any(node.target is torch.nonzero for node in graph.nodes):
        drop(graph, asserts)


def dropped_after_relu(graph: torch.fx.Graph, asserts: Any) -> None:
    """Assertions are lost if they come after a `relu`."""
    relu = next(at for at, node in enumerate(graph.nodes) if node.target is torch.relu)
    late = [node for at, node in enumerate(graph.nodes) if node in asserts and at > relu]
    drop(graph, late)


def dropped_by_name(graph: torch.fx.Graph, asserts: Any) -> None:
    """Assertions are lost if no input is named x."""
    if not any(node.op == "placeholder" and node.name == "l_x_" for node in graph.nodes):
        drop(graph, asserts)


def doubled_by_clone(graph: torch.fx.Graph, _asserts: Any) -> None:
    """A captured `clone` gives twice its argument."""
    for node in graph.nodes:
        if node.target == "clone":
            node.op, node.target = "call_function", torch.add
            node.args = (node.args[0], node.args[0])


def first_row_is_zero(graph: torch.fx.Graph, _asserts: Any) -> None:
    """A captured `relu` gives 0 in the first row."""

    def planted(x: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(x.shape[0]).view(-1, 1) > 0
        return torch.relu(x) * rows

    for node in graph.nodes:
        if node.target is torch.relu:
            node.target = planted


FAULTS: Mapping[Stage, tuple[str, Plant]] = {
    "under-backed": (ROUND, asks(is_backed)),
    "under-static": (ROUND, asks(is_static)),
    "under-hints": (ROUND, asks(hint_is_one)),
    "under-bounds": (ROUND, bounds_are_ignored),
    "under-reordering": (ORDERED, in_graph(dropped_after_relu)),
    "under-dead-code": (CHECKED, in_graph(dropped_beside_dead_code)),
    "under-dead-symbols": (CHECKED, in_graph(dropped_beside_dead_symbols)),
    "under-renaming": (CHECKED, in_graph(dropped_by_name)),
    "under-input-order": (ROUND, asks(name_of_size)),
    "under-identities": (ROUND, in_graph(doubled_by_clone)),
    "under-row-order": (ROWS, in_graph(first_row_is_zero)),
}
"""By the stage of a relation: a program, and a fault that this relation finds in it."""


def inductor_asks_for_hints(patch: Patch) -> None:
    """Inductor fails to lower `round` if a hint is 1."""
    op = torch.ops.aten.round.default
    original = lowering.lowerings[op]

    def planted(*args: Any, **kwargs: Any) -> Any:
        if 1 in V.graph.sizevars.shape_env.var_to_hint_override.values():
            raise RuntimeError("planted")
        return original(*args, **kwargs)

    patch.setitem(lowering.lowerings, op, planted)
