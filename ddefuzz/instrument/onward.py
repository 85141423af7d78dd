"""Values for undecided guards, so that a capture goes on after them: what they are for one choice of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy  # type: ignore[import-untyped]

SAMPLE = 4
"""The value of a symbol that is no dim of an input."""


class Onward:
    """Answers guards for one choice of values, so that the answers do not contradict each other.

    A dim of an input has its size in the example; `sizes` has them by name (`dim 1 of ids`).
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._values: dict[Any, int] = {}

    def note(self, symbol: Any, dim: str) -> None:
        """A symbol was made, for a dim of an input or for something else (empty)."""
        self._values[symbol] = self._sizes.get(dim, SAMPLE)

    def value(self, expression: Any) -> Any:
        """The value of an expression: a sympy truth value or number. False for what cannot be told."""
        found = sympy.sympify(expression).xreplace(
            {symbol: sympy.Integer(self._values.get(symbol, SAMPLE)) for symbol in expression.free_symbols}
        )
        found = sympy.simplify(found) if found.free_symbols else found
        return found if found in (sympy.true, sympy.false) or found.is_number else sympy.false


def plain_value(value: Any) -> bool | int | float:
    """A sympy truth value or number as Python's."""
    if value in (sympy.true, sympy.false):
        return bool(value)
    return int(value) if value.is_Integer else float(value)
