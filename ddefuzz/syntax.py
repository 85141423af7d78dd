"""Python source: parsing in one thread at a time, edits that keep the spelling of the rest, and comparisons."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_PARSING: Final = Lock()


def _one_at_a_time(function: Function) -> Function:
    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        with _PARSING:
            return function(*given, **named)

    return called  # type: ignore[return-value]


parse: Final = _one_at_a_time(ast.parse)
"""`ast.parse`. In two threads at once it may raise SystemError in CPython 3.11 ("AST constructor recursion depth
mismatch"): both count their depth in one place. The pages of the dashboard run in threads.
"""


MOST_LEVELS: Final = 150
"""How deep a tree may be that is read from any text: what visits trees recurses."""


def parsed_expression(text: str) -> ast.expr | None:
    """The tree of an expression; None if Python cannot parse the text, or if it is nested too deeply."""
    tree = _parsed(text, "eval")
    return tree.body if isinstance(tree, ast.Expression) else None


def parsed_statements(text: str) -> list[ast.stmt] | None:
    """The trees of statements; None if Python cannot parse the text, or if it is nested too deeply."""
    tree = _parsed(text, "exec")
    return tree.body if isinstance(tree, ast.Module) else None


def _parsed(text: str, mode: str) -> ast.AST | None:
    try:
        tree: ast.AST = parse(text, mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    level = [tree]
    for _ in range(MOST_LEVELS):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree
    return None


def compiles(source: str) -> bool:
    """Whether a source is valid Python."""
    try:
        compile(source, "<changed>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def lines_of(source: str) -> list[str]:
    """The lines as Python counts them, with their ends. `str.splitlines` splits at form feeds, too."""
    return [line.decode() for line in source.encode().splitlines(keepends=True)]


def replaced(source: str, node: ast.expr | ast.stmt, text: str) -> str:
    """The source with one expression or statement replaced. Columns of `ast` count bytes."""
    lines = source.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head = lines[first][: node.col_offset]
    tail = lines[last][node.end_col_offset :]
    return b"".join([*lines[:first], head, text.encode(), tail, *lines[last + 1 :]]).decode()


class Comparison(NamedTuple):
    """A comparison: its text, the one that is true where it is not, and that of the operands in the other order."""

    text: str
    opposite: type[ast.cmpop]
    turned: type[ast.cmpop]


COMPARISONS: Final[dict[type[ast.cmpop], Comparison]] = {
    ast.Eq: Comparison("==", ast.NotEq, ast.Eq),
    ast.NotEq: Comparison("!=", ast.Eq, ast.NotEq),
    ast.Lt: Comparison("<", ast.GtE, ast.Gt),
    ast.LtE: Comparison("<=", ast.Gt, ast.GtE),
    ast.Gt: Comparison(">", ast.LtE, ast.Lt),
    ast.GtE: Comparison(">=", ast.Lt, ast.LtE),
}
