"""Conditions in the user's words: torch's guards over the user's own sizes, opposites, and what promises refuse."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from ddefuzz.checking.changes import Comparison
from ddefuzz.checking.edits import Edit

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

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.unaryop, ast.boolop, ast.cmpop)
_ARITHMETIC = (ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Constant, *_OPERATORS)

_LARGEST = 100_000
"""Sizes up to this one are tried."""

_NO_SIZE = re.compile(r"(\.shape\[\d+\]) <= 0$")
"""No size is below 0."""


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
    tree = _parsed(question)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree is not None else set()
    if tree is None or not names <= {*sizes, *_FUNCTIONS}:
        return None
    condition = _Renamed(sizes).visit(tree)
    return _without_factor(_size_first(condition)) if isinstance(condition, ast.Compare) else None


def fixes_a_size(condition: str) -> bool:
    """Whether a condition states that one size has a value: `n == 8`, `4 * x.shape[0] == 24`."""
    match _parsed(condition):
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


class _Renamed(ast.NodeTransformer):
    """Puts other expressions for sizes, which are symbols or `ids.shape[1]`, and Python's for sympy's functions."""

    def __init__(self, sizes: Mapping[str, str]) -> None:
        self.sizes = sizes

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        text = self.sizes.get(ast.unparse(node))
        return node if text is None else ast.parse(text, mode="eval").body

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


def holds(condition: str, sizes: Mapping[str, int]) -> bool | None:
    """Whether a condition holds for these sizes. None if it is about others too, or about more than arithmetic."""
    tree = _parsed(condition)
    filled = None if tree is None else _Renamed({name: str(size) for name, size in sizes.items()}).visit(tree)
    if filled is None or not all(isinstance(node, _ARITHMETIC) for node in ast.walk(filled)):
        return None
    try:
        return bool(eval(compile(ast.fix_missing_locations(ast.Expression(filled)), "<promise>", "eval"), {}))
    except (ArithmeticError, TypeError):
        return None


def restrictions(promises: Sequence[Edit], refused: Sequence[Comparison], taken: int) -> list[str]:
    """Which inputs promises refuse that eager takes, in words, with an example that breaks the promise.

    A promise that all sizes keep refuses nothing. `taken` is the number of sets of inputs that eager takes.
    """
    said, binding = [], [edit for edit in promises if not _holds_always(edit.condition)]
    for edit in binding:
        if edit.kind == "example-value":
            said.append(f"this exports a model for {edit.condition} only")
        elif refused:
            fitting = [one for one in refused if _breaks(edit.condition, one.inputs, only=len(binding) == 1)]
            example = f", which eager takes, such as {fitting[0].inputs}" if fitting else ""
            said.append(f"refuses inputs for which {_broken(edit.condition)}{example}")
    others = dict.fromkeys(_broken(edit.condition) for edit in binding if edit.kind != "example-value")
    if others and not refused:
        none = f"none of the {taken} sets of inputs that eager takes is refused"
        said.append(f"refuses inputs for which {', or '.join(others)}; {none}")
    return said


def _breaks(promise: str, inputs: str, *, only: bool) -> bool:
    """Whether refused inputs break a promise. If that is not known: whether it is the only one, or has their size."""
    given: dict[str, int] = {}
    for part in inputs.split(", "):  # such as `ids.shape[1] = mask.shape[1] = 0`
        *names, value = part.split(" = ")
        if value.isdigit():
            given |= dict.fromkeys(names, int(value))
    kept = holds(promise, given)
    return not kept if kept is not None else only or any(name in inputs for name in _sizes(promise))


def _holds_always(promise: str) -> bool:
    """Whether a promise about one size holds for all, as `3 * x.shape[0] != 1` does: torch cannot decide that."""
    sizes, tree = _sizes(promise), _parsed(promise)
    if len(sizes) != 1 or tree is None:
        return False
    numbers = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is int]
    largest = max(numbers, default=0) + 2
    return largest <= _LARGEST and all(holds(promise, dict.fromkeys(sizes, value)) for value in range(largest))


def _broken(promise: str) -> str:
    """The opposite of what is promised."""
    tree = _parsed(promise)
    if not isinstance(tree, ast.Compare | ast.UnaryOp):
        return f"not ({promise})"
    return _NO_SIZE.sub(r"\1 == 0", ast.unparse(opposite(tree)))


def _sizes(promise: str) -> set[str]:
    """The sizes in a promise, such as `ids.shape[1]`."""
    tree = _parsed(promise)
    return {
        ast.unparse(node)
        for node in (() if tree is None else ast.walk(tree))
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    }


def _parsed(condition: str) -> ast.expr | None:
    try:
        return ast.parse(condition, mode="eval").body
    except SyntaxError:
        return None
