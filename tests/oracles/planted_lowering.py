"""Planted faults that make inductor's code for unbacked sizes worse than its code for backed sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any
from unittest.mock import patch

import sympy  # type: ignore[import-untyped]
import torch
from torch._inductor import cpu_vec_isa, lowering, scheduler
from torch._inductor.codegen import cpp
from torch._inductor.virtualized import V


@contextmanager
def falling_back() -> Iterator[None]:
    """`relu` has no code of inductor for unbacked sizes."""
    op = torch.ops.aten.relu.default
    handler: Any = lowering.fallback_handler
    original, fallback = lowering.lowerings[op], handler(op, add_to_fallback_set=False)

    def planted(x: Any) -> Any:
        sizes: Any = V.graph.sizevars
        small = sizes.guard_or_false(sympy.Lt(x.get_size()[0], 1_000_000))
        return original(x) if small else fallback(x)

    code = planted.__code__.replace(co_filename=str(lowering.__file__))
    inside = FunctionType(code, planted.__globals__, "planted", None, planted.__closure__)
    with patch.dict(lowering.lowerings, {op: inside}):
        yield


def _has_unbacked() -> bool:
    env: Any = V.graph.sizevars.shape_env
    return any(str(symbol).startswith("u") for symbol in env.var_to_range)


@contextmanager
def loops_not_fused() -> Iterator[None]:
    """Inductor fuses no loops of a graph with unbacked sizes, but writes them into one function."""
    can_fuse = scheduler.Scheduler.can_fuse

    def never(self: Any, *args: Any, **kwargs: Any) -> bool:
        return not _has_unbacked() and bool(can_fuse(self, *args, **kwargs))

    with patch.object(scheduler.Scheduler, "can_fuse", never):
        yield


@contextmanager
def never_fused() -> Iterator[None]:
    """Inductor fuses no kernels of a graph with unbacked sizes, and writes a function for each."""
    can_fuse, codegen_node = scheduler.Scheduler.can_fuse, cpp.CppScheduling.codegen_node

    def never(self: Any, *args: Any, **kwargs: Any) -> bool:
        return not _has_unbacked() and bool(can_fuse(self, *args, **kwargs))

    def alone(self: Any, node: Any) -> None:
        codegen_node(self, node)
        if _has_unbacked():
            self.flush()

    with (
        patch.object(scheduler.Scheduler, "can_fuse", never),
        patch.object(cpp.CppScheduling, "codegen_node", alone),
    ):
        yield


@contextmanager
def without_vectors() -> Iterator[None]:
    """Inductor finds no vector instructions for a graph with unbacked sizes."""
    original = cpu_vec_isa.pick_vec_isa

    def planted() -> Any:
        return cpu_vec_isa.invalid_vec_isa if _has_unbacked() else original()

    with patch.object(cpu_vec_isa, "pick_vec_isa", planted):
        yield
