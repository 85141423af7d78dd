"""A change of torch in memory: the shapes of a call with out= come from the same call without it.

It stands for a meta function of the overload with out= (or sizes that stay symbolic in its C++): the guards that remain
are those of the op itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ddefuzz.instrument import torch_api

check: Callable[[object], None] = torch._check


@contextmanager
def with_out_metas() -> Iterator[None]:
    """In the block, dynamo computes the fake result of a call with out= so."""
    inner = torch_api.bound(torch_api.RUN_NODE)

    def run(tracer: Any, node: Any, args: Any, kwargs: Any, nnmodule: Any) -> Any:
        out = kwargs.get("out")
        if node.op != "call_function" or out is None:
            return inner(tracer, node, args, kwargs, nnmodule)
        others = {name: value for name, value in kwargs.items() if name != "out"}
        return _as_out(out, inner(tracer, node, args, others, nnmodule))

    with torch_api.RUN_NODE.replaced(run):
        yield


def _as_out(out: Any, result: Any) -> Any:
    """The tensors of `out`, each with the shape of the result, which is asserted."""
    leaves = torch_api.bound(torch_api.TREE_LEAVES)
    for given, computed in zip(leaves(out), leaves(result), strict=True):
        for size, needed in zip(given.shape, computed.shape, strict=True):
            check(size == needed)
    return out
