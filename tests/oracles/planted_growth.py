"""A planted fault: a pass that is quadratic in the number of evaluations of one export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ddefuzz.instrument.torch_api import EVALUATE_EXPR


@contextmanager
def quadratic() -> Iterator[None]:
    """Every evaluation evaluates all earlier expressions of the export again."""
    inner: Any = EVALUATE_EXPR.get()

    def planted(self: Any, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        earlier: list[Any] = vars(self).setdefault("planted", [])
        for expr in earlier:
            self._maybe_evaluate_static(expr)
        earlier.append(orig_expr)
        return inner(self, orig_expr, *args, **kwargs)

    with patch.object(EVALUATE_EXPR.owner(), EVALUATE_EXPR.name, planted):
        yield
