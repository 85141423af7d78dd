"""A planted fault: a lowering of inductor that calls eager for sizes that it cannot tell to be small."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any
from unittest.mock import patch

import sympy  # type: ignore[import-untyped]
import torch
from torch._inductor import lowering
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
