"""Conditions in the user's words: torch's guards written with the user's own sizes, opposites, and what they fix."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

_INCLUSIVE = re.compile(r"(torch\._check\(.*) (>=|<) (-?\d+)\)")
_SIZE_IS_NOT_ZERO = re.compile(r"(torch\._check\([^\n=<>]*\.shape\[-?\d+\]) != 0\)")

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
    ast.Lt: ast.Gt,
    ast.GtE: ast.LtE,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
}

_FUNCTIONS = {"Eq", "Ne", "Mod", "Max", "Min"}


def opposite(condition: ast.expr) -> ast.expr:
    """The condition that holds exactly when this one does not."""
    match condition:
        case ast.Compare(ops=[operator]) if type(operator) in _OPPOSITES:
            return ast.Compare(condition.left, [_OPPOSITES[type(operator)]()], condition.comparators)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.BoolOp(ast.Or(), values):
            return ast.BoolOp(ast.And(), [opposite(one) for one in values])
        case _:
            return ast.Call(ast.parse("torch.sym_not", mode="eval").body, [condition], [])


def in_user_words(question: str, sizes: Mapping[str, str]) -> ast.expr | None:
    """A relation as torch prints it (`Eq(4*u0, 0)`) over the user's own sizes. None if it has no such form."""
    try:
        tree = ast.parse(question, mode="eval").body
    except SyntaxError:
        return None
    if any(node.id not in {*sizes, *_FUNCTIONS} for node in ast.walk(tree) if isinstance(node, ast.Name)):
        return None
    said = _InUserWords(sizes).visit(tree)
    return _without_factor(_size_first(said)) if isinstance(said, ast.Compare) else None


def fixes_a_size(condition: str) -> bool:
    """Whether a condition states that one size has a value: `n == 8`, `4 * x.shape[0] == 24`."""
    try:
        tree = ast.parse(condition, mode="eval").body
    except SyntaxError:
        return False
    match tree:
        case ast.Compare(left, [ast.Eq()], [ast.Constant(int())]):
            return not any(isinstance(node, ast.Mod | ast.FloorDiv) for node in ast.walk(left)) and _terms(left) == 1
        case _:
            return False


def meaning(source: str) -> str:
    """The source with its assertions on integers in one spelling: `n >= 1` as `n > 0`, and `!= 0` of a size too."""
    plain = _SIZE_IS_NOT_ZERO.sub(r"\1 > 0)", source)
    return _INCLUSIVE.sub(
        lambda found: f"{found[1]} {'>' if found[2] == '>=' else '<='} {int(found[3]) - 1})",
        plain,
    )


def _terms(node: ast.expr) -> int:
    """How many sizes an expression adds or subtracts."""
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult(), right):
            return _terms(left) + _terms(right)
        case ast.UnaryOp(operand=operand):
            return _terms(operand)
        case ast.Constant():
            return 0
        case _:
            return 1


class _InUserWords(ast.NodeTransformer):
    def __init__(self, sizes: Mapping[str, str]) -> None:
        self.sizes = sizes

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(self.sizes[node.id], mode="eval").body if node.id in self.sizes else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func, node.args:
            case ast.Name("Eq"), [left, right]:
                return ast.Compare(left, [ast.Eq()], [right])
            case ast.Name("Ne"), [left, right]:
                return ast.Compare(left, [ast.NotEq()], [right])
            case ast.Name("Mod"), [left, right]:
                return ast.BinOp(left, ast.Mod(), right)
            case ast.Name("Max" | "Min" as name), args:
                function = ast.parse(f"torch.sym_{name.lower()}", mode="eval").body
                return ast.Call(function, args, [])
            case _:
                return node


def _without_factor(condition: ast.Compare) -> ast.Compare:
    """`4 * n == 0` without the factor."""
    match condition:
        case ast.Compare(ast.BinOp(ast.Constant(int() as factor), ast.Mult(), size), operators, [ast.Constant(0)]) if (
            factor > 0
        ):
            return ast.Compare(size, operators, [ast.Constant(0)])
        case _:
            return condition


def _size_first(condition: ast.Compare) -> ast.Compare:
    """`1 > n` with the size first: `n < 1`."""
    if isinstance(condition.left, ast.Constant) and len(condition.ops) == 1:
        operator = _TURNED[type(condition.ops[0])]()
        return ast.Compare(condition.comparators[0], [operator], [condition.left])
    return condition
