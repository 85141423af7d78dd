"""Evaluates symbolic expressions that torch printed, at given values of their symbols, without executing them."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from ddefuzz import syntax

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Eq": operator.eq,
    "Ne": operator.ne,
    "Lt": operator.lt,
    "Le": operator.le,
    "Gt": operator.gt,
    "Ge": operator.ge,
    "Min": min,
    "Max": max,
    "min": min,
    "max": max,
    "Abs": abs,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "FloatTrueDiv": operator.truediv,
    "IntTrueDiv": operator.truediv,
    "ToFloat": float,
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "TruncToInt": math.trunc,
    "ceiling": math.ceil,
    "floor": math.floor,
}
"""Functions of sympy and of torch/utils/_sympy/functions.py, by their printed name; `min` and `max` are those of
inductor's Python code."""

OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: lambda one, other: bool(one) and bool(other),
    ast.BitOr: lambda one, other: bool(one) or bool(other),
    ast.Invert: operator.not_,
    ast.USub: operator.neg,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

Number = bool | int | float

LARGEST_POWER = 64


class _UnknownError(Exception):
    """The expression cannot be evaluated."""


def value_at(expression: str, symbols: Mapping[str, int | float]) -> Number | None:
    """The value of an expression at these values of its symbols; None if it contains other symbols or functions."""
    tree = parsed(expression)
    if tree is None:
        return None
    try:
        value = _value(tree, symbols)
    except (_UnknownError, ArithmeticError, ValueError, TypeError):
        return None
    return value if isinstance(value, bool | int | float) else None


def holds(constraint: str, symbols: Mapping[str, int | float]) -> bool | None:
    """Whether an assertion, a range or a replacement (`u0 = 3`) is true at these values; None if that is unknown."""
    symbol, is_replacement, value = constraint.partition(" = ")
    if not is_replacement:
        truth = value_at(constraint, symbols)
        return None if truth is None else bool(truth)
    value_then = value_at(value, symbols)
    return None if symbol not in symbols or value_then is None else bool(value_then == symbols[symbol])


def parsed(expression: str) -> ast.expr | None:
    """The expression's syntax tree; None if it does not parse."""
    return syntax.parsed_expression(expression.strip())


def _value(node: ast.expr, symbols: Mapping[str, int | float]) -> Any:
    match node:
        case ast.Constant(bool() | int() | float() as value):
            return value
        case ast.Name(name) if name in symbols:
            return symbols[name]
        case ast.Name("True" | "true"):
            return True
        case ast.Name("False" | "false"):
            return False
        case ast.UnaryOp(op, operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(operand, symbols))
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            first, second = _value(left, symbols), _value(right, symbols)
            if isinstance(op, ast.Pow) and abs(second) > LARGEST_POWER:
                raise _UnknownError
            return OPERATORS[type(op)](first, second)
        case ast.Compare(left, ops, comparators) if all(type(op) in OPERATORS for op in ops):
            values = [_value(one, symbols) for one in (left, *comparators)]
            return all(OPERATORS[type(op)](*pair) for op, pair in zip(ops, pairwise(values), strict=True))
        case ast.Call(ast.Name(name), args, []) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_value(arg, symbols) for arg in args))
        case _:
            raise _UnknownError


def clauses(expression: str) -> tuple[str, ...]:
    """The clauses of a disjunction (`a | b`). Any other expression is a single clause."""
    tree = parsed(expression)
    return (expression,) if tree is None else tuple(map(ast.unparse, _clauses(tree)))


def _clauses(tree: ast.expr) -> list[ast.expr]:
    match tree:
        case ast.BinOp(left, ast.BitOr(), right):
            return [*_clauses(left), *_clauses(right)]
        case _:
            return [tree]


def sides(clause: str) -> tuple[str, str] | None:
    """Both sides of an equation (`Eq(a, b)` or `a == b`); None for anything else."""
    match parsed(clause):
        case ast.Call(ast.Name("Eq"), [left, right], []) | ast.Compare(left, [ast.Eq()], [right]):
            return ast.unparse(left), ast.unparse(right)
        case _:
            return None


def addends(expression: str) -> tuple[int, ...]:
    """The integers that are added in an expression (`a + 1`)."""

    def of(tree: ast.expr | None) -> tuple[int, ...]:
        match tree:
            case ast.BinOp(left, ast.Add(), right):
                return (*of(left), *of(right))
            case ast.BinOp(left, ast.Sub(), ast.Constant(int(number))):
                return (*of(left), -number)
            case ast.Constant(int(number)):
                return (number,)
            case _:
                return ()

    return of(parsed(expression)) if isinstance(parsed(expression), ast.BinOp) else ()


def usual_sizes(expression: str) -> dict[str, int]:
    """Sizes for the symbols of a guard that are all large and differ."""
    names = dict.fromkeys(re.findall(r"\b[us]\d+\b", expression))
    return {name: 64 + 9 * number for number, name in enumerate(names)}


def usual_truth(expression: str) -> bool | None:
    """The truth of a guard where all sizes are large and differ. None if it is not known."""
    sizes = usual_sizes(expression)
    return holds(expression, sizes) if sizes else None
