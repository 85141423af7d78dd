"""What is known of the inputs of a subject: their names, for symbols that are their dims, and the sizes by which a run
that continues after undecided guards answers them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FrameType, MappingProxyType
from typing import Any

import sympy  # type: ignore[import-untyped]

from ddefuzz.instrument.events import Place

MASK_FUNCTION = "_kept"
"""The function of a stage whose local `symbol` names the size that it makes unbacked."""

_DIM = re.compile(r"L\['(?P<name>\w+)'\](?P<path>.*)\.size\(\)\[(?P<dim>\d+)\]")
"""A dim of an input as dynamo's sources are named: `L['batch']['ids'].size()[1]`."""


def _empty() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Inputs:
    """`masked` are the dims (`dim 0 of ids`) of each symbol that masks make unbacked. `leaves` are the names of all
    leaves of the arguments, `positional` those of the positional arguments: a stage may pass them as `args`, and
    strict export numbers the leaves. `written` is how the user writes a leaf, by torch's name of it.
    """

    masked: Mapping[str, str] = field(default_factory=_empty)
    positional: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    written: Mapping[str, str] = field(default_factory=_empty)

    def dim(self, source: str, frame: FrameType | None) -> str:
        """The dim of an input that a new symbol stands for, from torch's name of the symbol or from the mask that makes
        it.

        Empty if it is not known.
        """
        named = _DIM.fullmatch(source)
        if named is not None:
            name = self._name(named["name"], named["path"])
            return f"dim {named['dim']} of {self.written.get(name, name)}"
        while frame is not None and frame.f_code.co_name != MASK_FUNCTION:
            frame = frame.f_back
        if frame is not None:
            return self.masked.get(str(frame.f_locals.get("symbol")), "")
        return next(iter(self.masked.values())) if len(self.masked) == 1 else ""

    def _name(self, name: str, path: str) -> str:
        index = re.match(r"\[(\d+)\]", path)
        numbered = {"args": self.positional, "flat_args": self.leaves}.get(name, ())
        if index is not None and int(index[1]) < len(numbered):
            return numbered[int(index[1])] + path[index.end() :]
        key = re.match(r"\['(\w+)'\]", path)
        return key[1] + path[key.end() :] if name == "kwargs" and key is not None else name + path


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
