"""Name unbacked symbols in the user's terms: `u0`, made by `kept = x[keep]`, is `kept.shape[0]`."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from ddefuzz.checking.change_text import inserted, replaced, statements_at
from ddefuzz.classify.anchor import python_anchor
from ddefuzz.instrument.events import SymbolOrigin

NUMBERS = frozenset({"item", "tolist", "_local_scalar_dense"})
"""The ops whose symbol is the value itself. The symbol of any other op is the size of dim 0 of its result."""


class Named(NamedTuple):
    """A source in which every new symbol has a name.

    `added` are the lines of the original in front of which a line was inserted.
    """

    source: str
    sizes: dict[str, str]
    added: tuple[int, ...]

    def line(self, line: int) -> int:
        """The number, in this source, of a line of the original."""
        return line + sum(at <= line for at in self.added)


def named(source: str, origins: Iterable[SymbolOrigin]) -> Named:
    """Name the symbols by the variables that hold them. If no variable holds a symbol, a line that assigns one is
    added.
    """
    sizes: dict[str, str] = {}
    added: tuple[int, ...] = ()
    for origin in origins:
        if origin.frame is None:
            continue
        found = _name(Named(source, sizes, added), origin)
        if found is not None:
            source, sizes, added = found
    return Named(source, sizes, added)


def _name(so_far: Named, origin: SymbolOrigin) -> Named | None:
    if origin.frame is None:
        return None
    line = so_far.line(origin.frame.line)
    around = statements_at(so_far.source, line)
    if not around:
        return None
    statement = max(around, key=lambda node: node.lineno)
    made = python_anchor(origin.frame)
    maker = next((n for n in ast.walk(statement) if isinstance(n, ast.expr) and ast.unparse(n) == made), None)
    if maker is None:
        return None
    held = _held(statement, maker, origin, so_far.sizes)
    if held is not None:
        return so_far._replace(sizes={**so_far.sizes, origin.symbol: held})
    return _hoisted(so_far, origin, statement, maker)


def _held(statement: ast.stmt, maker: ast.expr, origin: SymbolOrigin, sizes: dict[str, str]) -> str | None:
    """The size in terms of the variable that the statement assigns."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    number = origin.op in NUMBERS
    match statement.targets[0], statement.value:
        case ast.Name(name), value if value is maker:
            return name if number else f"{name}.shape[0]"
        case ast.Name(name), ast.Call(func=ast.Attribute(value, "size")) if value is maker:
            return name
        case ast.Name(name), ast.Subscript(value=ast.Attribute(value, "shape")) if value is maker:
            return name
        case ast.Tuple(elts), value if value is maker and all(isinstance(element, ast.Name) for element in elts):
            names = [ast.unparse(element) if number else f"{ast.unparse(element)}.shape[0]" for element in elts]
            return next((name for name in names if name not in sizes.values()), None)
        case _:
            return None


def _hoisted(so_far: Named, origin: SymbolOrigin, statement: ast.stmt, maker: ast.expr) -> Named:
    name = f"made_{origin.symbol}"
    source = inserted(replaced(so_far.source, maker, name), statement, (f"{name} = {ast.unparse(maker)}",))
    size = name if origin.op in NUMBERS else f"{name}.shape[0]"
    return Named(source, {**so_far.sizes, origin.symbol: size}, (*so_far.added, statement.lineno))
