"""Answers undecided guards by assumed sizes, so that a capture continues after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import sympy  # type: ignore[import-untyped]

from ddefuzz.instrument.events import Place

SAMPLE = 4
"""The value of a symbol that is not a dim of an input."""

MOST_ROUNDS = 12
"""How often one line of the user's code gets the same truth value. This ends loops over data."""


class AssumedSizes:
    """The value of each unbacked symbol. All guards are answered by the same values, so no two answers contradict.

    A dim of an input has its size in the example; `sizes` has these by name (`dim 1 of ids`). Any other symbol has
    the value `SAMPLE`. Each round of a loop makes new symbols, so `while kept.numel() > 0` would not end. A line of
    the user's code that got one answer `MOST_ROUNDS` times therefore gets the other answer.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._values: dict[Any, int] = {}
        self._rounds: Counter[tuple[Place, bool]] = Counter()

    def note(self, symbol: Any, dim: str) -> None:
        """Choose the value of a new symbol. `dim` names the dim of an input, and is empty for any other symbol."""
        self._values[symbol] = self._sizes.get(dim, SAMPLE)

    def value(self, expression: Any, line: Place | None = None) -> Any:
        """The value of an expression: a sympy truth value or number. False if it is unknown.

        `line` is that of the user's code that branches on the expression.
        """
        found = sympy.sympify(expression).xreplace(
            {symbol: sympy.Integer(self._values.get(symbol, SAMPLE)) for symbol in expression.free_symbols}
        )
        found = sympy.simplify(found) if found.free_symbols else found
        value = found if found in (sympy.true, sympy.false) or found.is_number else sympy.false
        if line is None or value not in (sympy.true, sympy.false):
            return value
        self._rounds[line, bool(value)] += 1
        return sympy.Not(value) if self._rounds[line, bool(value)] > MOST_ROUNDS else value


def plain_value(value: Any) -> bool | int | float:
    """A sympy truth value or number as Python's."""
    if value in (sympy.true, sympy.false):
        return bool(value)
    return int(value) if value.is_Integer else float(value)
