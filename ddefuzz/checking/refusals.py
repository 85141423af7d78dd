"""Which inputs a change refuses that eager takes, in words."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from ddefuzz.checking.changes import Compared
from ddefuzz.checking.conditions import opposite
from ddefuzz.checking.place import Edit

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.unaryop, ast.boolop, ast.cmpop)
_ARITHMETIC = (ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Constant, *_OPERATORS)

_LARGEST = 100_000
"""Sizes up to this one are tried."""

_NO_SIZE = re.compile(r"(\.shape\[\d+\]) <= 0$")
"""No size is below 0."""


def refusals(promises: Sequence[Edit], refused: Sequence[Compared], taken: int) -> list[str]:
    """What promises refuse, with an example that breaks the promise. A promise that all sizes keep refuses nothing."""
    said, kept = [], [edit for edit in promises if not _holds_always(edit)]
    for edit in kept:
        if edit.kind == "example-value":
            said.append(f"this exports a model for {edit.condition} only")
        elif refused:
            fitting = [one for one in refused if _breaks(edit, one, only=len(kept) == 1)]
            example = f", which eager takes, such as {fitting[0].inputs}" if fitting else ""
            said.append(f"refuses inputs for which {_broken(edit)}{example}")
    others = dict.fromkeys(_broken(edit) for edit in kept if edit.kind != "example-value")
    if others and not refused:
        none = f"none of the {taken} sets of inputs that eager takes is refused"
        said.append(f"refuses inputs for which {', or '.join(others)}; {none}")
    return said


def _breaks(promise: Edit, one: Compared, *, only: bool) -> bool:
    """Whether refused inputs break a promise. If that is not known: whether it is the only one, or has their size."""
    holds = _holds(promise, _given(one.inputs))
    return not holds if holds is not None else only or any(name in one.inputs for name in _sizes(promise))


def _given(inputs: str) -> dict[str, int]:
    """The sizes that inputs are said to have: `ids.shape[1] = mask.shape[1] = 0`."""
    given: dict[str, int] = {}
    for part in inputs.split(", "):
        *names, value = part.split(" = ")
        if value.isdigit():
            given |= dict.fromkeys(names, int(value))
    return given


def _holds_always(promise: Edit) -> bool:
    """Whether a promise about one size holds for all, as `3 * x.shape[0] != 1` does: torch cannot decide that."""
    sizes = _sizes(promise)
    tree = _parsed(promise)
    if len(sizes) != 1 or tree is None:
        return False
    (size,) = sizes
    numbers = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is int]
    largest = max(numbers, default=0) + 2
    return largest <= _LARGEST and all(_holds(promise, {size: value}) for value in range(largest))


def _holds(promise: Edit, sizes: Mapping[str, int]) -> bool | None:
    """Whether a promise holds for these sizes. None if it is about others too, or about more than arithmetic."""
    tree = _parsed(promise)
    filled = None if tree is None else _Filled(sizes).visit(tree)
    if filled is None or not all(isinstance(node, _ARITHMETIC) for node in ast.walk(filled)):
        return None
    try:
        return bool(eval(compile(ast.fix_missing_locations(ast.Expression(filled)), "<promise>", "eval"), {}))
    except (ArithmeticError, TypeError):
        return None


class _Filled(ast.NodeTransformer):
    """Sizes in place of the expressions for them."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        size = self.sizes.get(ast.unparse(node))
        return node if size is None else ast.Constant(size)


def _broken(promise: Edit) -> str:
    """The opposite of what is promised."""
    tree = _parsed(promise)
    if not isinstance(tree, ast.Compare | ast.UnaryOp):
        return f"not ({promise.condition})"
    return _NO_SIZE.sub(r"\1 == 0", ast.unparse(opposite(tree)))


def _sizes(promise: Edit) -> set[str]:
    """The sizes in a promise, such as `ids.shape[1]`."""
    tree = _parsed(promise)
    parts = () if tree is None else ast.walk(tree)
    return {
        ast.unparse(node)
        for node in parts
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    }


def _parsed(promise: Edit) -> ast.expr | None:
    try:
        return ast.parse(promise.condition, mode="eval").body
    except SyntaxError:
        return None
