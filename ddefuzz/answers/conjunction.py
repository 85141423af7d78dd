"""The clauses of an undecided guard: of a sympy expression, or of Python's `a or b` around it."""

from __future__ import annotations

import ast
from typing import NamedTuple

from ddefuzz.answers.installed import source_of
from ddefuzz.answers.patch import clauses, located
from ddefuzz.classify.anchor import python_anchor
from ddefuzz.classify.signature import Site
from ddefuzz.classify.site import site as site_of
from ddefuzz.instrument.events import Raised


class Conjunction(NamedTuple):
    """`a or b`, or `a and b`. `text` is the whole, as `ast.unparse` prints it."""

    is_or: bool
    text: str
    clauses: tuple[str, ...]

    def clause_of(self, raised: Raised) -> str:
        """The clause that a guard belongs to; empty if it belongs to none."""
        try:
            anchor = python_anchor(site_of(raised)[1])
        except ValueError:
            return ""
        return anchor if anchor in self.clauses else ""


def in_expression(text: str) -> Conjunction | None:
    """The clauses of an expression as sympy prints it: `Eq(u0, 1) | (u1 > 2)`."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    match tree:
        case ast.BinOp(_, ast.BitOr() | ast.BitAnd() as operator, _):
            parts = _operands(tree, type(operator))
            return Conjunction(isinstance(operator, ast.BitOr), text, tuple(_text(text, part) for part in parts))
        case ast.Call(ast.Name("And" | "Or" as name), args) if len(args) > 1:
            return Conjunction(name == "Or", text, tuple(_text(text, part) for part in args))
        case _:
            return None


def in_python(raised: Raised, site: Site) -> Conjunction | None:
    """The `and` or `or` of torch's source that has the guard as a clause."""
    if site.language != "Python" or site.module is None:
        return None
    frame = site_of(raised)[1]
    source = source_of(site.module)
    if source is None or frame.file != site.module:
        return None
    node = located(source, frame.line, python_anchor(frame))
    around = None if node is None else clauses(source, node)
    if around is None:
        return None
    parts = tuple(ast.unparse(value) for value in around.values)
    return Conjunction(isinstance(around.op, ast.Or), ast.unparse(around), parts)


def _operands(tree: ast.expr, operator: type[ast.operator]) -> list[ast.expr]:
    match tree:
        case ast.BinOp(left, op, right) if isinstance(op, operator):
            return [*_operands(left, operator), *_operands(right, operator)]
        case _:
            return [tree]


def _text(text: str, node: ast.expr) -> str:
    return ast.get_source_segment(text, node) or ast.unparse(node)
