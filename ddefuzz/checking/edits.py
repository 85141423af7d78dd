"""Places in Python source where a guard has to be decided, and edits of it. What is not changed keeps its spelling."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ddefuzz.checking.changes import ChangeKind
from ddefuzz.instrument.events import Frame


class Place(NamedTuple):
    """The statement in a source where a guard has to be decided, and the expression in it.

    `sizes` maps each symbol to the user's own expression for it: `u0` to `kept.shape[0]`.
    """

    source: str
    statement: ast.stmt
    expression: ast.expr
    question: str
    sizes: Mapping[str, str]


class Edit(NamedTuple):
    """A changed source and what the change does, in words.

    `condition` is what a promise states; empty for a rewrite. `removed` is a decision of the original that the change
    takes away: it is a rewrite only if inputs of both sides of it give the same results.
    """

    source: str
    kind: ChangeKind
    does: str
    condition: str = ""
    removed: ast.expr | None = None


Rewrite = Callable[[Place], Iterator[Edit]]


def locate(source: str, frame: Frame, anchor: str, question: str, sizes: Mapping[str, str]) -> Place | None:
    """The statement at a frame's line and the expression that prints as `anchor`; None where they are not there."""
    around = sorted(statements_at(source, frame.line), key=lambda node: (node.end_lineno or 0) - node.lineno)
    for statement in around:
        for node in ast.walk(statement):
            if isinstance(node, ast.expr) and ast.unparse(node) == anchor:
                return Place(source, statement, node, question, sizes)
    return Place(source, around[0], _whole(around[0]), question, sizes) if around else None


def tested(place: Place) -> ast.expr | None:
    """The condition of the branch that the expression is, or is a part of."""
    for node in ast.walk(place.statement):
        if isinstance(node, ast.If | ast.IfExp | ast.Assert | ast.While) and any(
            one is place.expression for one in ast.walk(node.test)
        ):
            return node.test
    return None


def bound_within(place: Place) -> bool:
    """Whether the expression reads a name that exists only within its statement (of a comprehension or a `:=`)."""
    read = {node.id for node in ast.walk(place.expression) if isinstance(node, ast.Name)}
    inner = [node for node in ast.walk(place.statement) if isinstance(node, ast.comprehension | ast.NamedExpr)]
    return bool(read & {name.id for node in inner for name in ast.walk(node.target) if isinstance(name, ast.Name)})


def _whole(statement: ast.stmt) -> ast.expr:
    """The first expression of a statement, where the failing one is not known."""
    return next((node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)), ast.Constant(None))


def compiles(source: str) -> bool:
    """Whether a source is valid Python."""
    try:
        compile(source, "<changed>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def inserted(source: str, statement: ast.stmt, lines: tuple[str, ...]) -> str:
    """The source with lines before a statement (an `elif`: before its `if`), indented as its line is."""
    all_lines = source.splitlines(keepends=True)
    at = statement.lineno - 1
    while all_lines[at].lstrip().startswith("elif"):
        at = _line_of_if(source, at + 1) - 1
    indent = _indent(all_lines[at])
    return "".join([*all_lines[:at], *(f"{indent}{line}\n" for line in lines), *all_lines[at:]])


def replaced(source: str, node: ast.expr | ast.stmt, text: str) -> str:
    """The source with one expression or statement replaced. Columns of `ast` count bytes."""
    lines = source.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head = lines[first][: node.col_offset]
    tail = lines[last][node.end_col_offset :]
    return b"".join([*lines[:first], head, text.encode(), tail, *lines[last + 1 :]]).decode()


def with_block(source: str, statement: ast.stmt, block: list[ast.stmt]) -> str | None:
    """The source with a statement replaced by statements of its own block. None if its lines hold more than it."""
    lines = source.splitlines(keepends=True)
    first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
    indent = _indent(lines[first])
    if lines[first].lstrip().startswith("elif") or len(indent) != statement.col_offset:
        return None
    if not block:
        return "".join([*lines[:first], *lines[last + 1 :]])
    start, end = block[0].lineno - 1, block[-1].end_lineno or block[-1].lineno
    if start == first:  # `if a: return b` on one line
        kept = "".join(f"{indent}{ast.unparse(one)}\n" for one in block)
    else:
        kept = textwrap.indent(textwrap.dedent("".join(lines[start:end])), indent)
    return "".join([*lines[:first], kept if kept.endswith("\n") else f"{kept}\n", *lines[last + 1 :]])


def imported(source: str, line: str) -> str:
    """The source with an import after its docstring and `__future__` imports; as it is if it has that line."""
    body = ast.parse(source).body
    after = 0
    for node in body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            after = node.end_lineno or node.lineno
    lines = source.splitlines(keepends=True)
    return source if f"{line}\n" in lines else "".join([*lines[:after], f"{line}\n", *lines[after:]])


def statements_at(source: str, line: int) -> list[ast.stmt]:
    """The statements that a line is part of, without definitions."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    statements = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt))
    statements = (node for node in statements if not isinstance(node, definitions))
    return [node for node in statements if node.lineno <= line <= (node.end_lineno or node.lineno)]


def function_at(source: str, line: int) -> ast.FunctionDef | None:
    """The innermost function that contains a line."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    around = [node for node in functions if first_line(node) <= line <= (node.end_lineno or node.lineno)]
    return max(around, key=lambda node: node.lineno, default=None)


def first_line(node: ast.stmt) -> int:
    """The number of the first line of a statement, or of its first decorator."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def following(source: str, statement: ast.stmt) -> list[ast.stmt]:
    """The statements after a statement in its block."""
    place = (statement.lineno, statement.col_offset)
    for node in ast.walk(ast.parse(source)):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            places = [(one.lineno, one.col_offset) for one in block] if isinstance(block, list) else []
            if isinstance(block, list) and place in places:
                return block[places.index(place) + 1 :]
    return []


def _line_of_if(source: str, elif_line: int) -> int:
    parents = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.If) and node.orelse)
    return next(node.lineno for node in parents if node.orelse[0].lineno == elif_line)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
