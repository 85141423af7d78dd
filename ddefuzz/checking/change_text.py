"""Edits of Python source by position. What is not changed keeps its spelling."""

from __future__ import annotations

import ast
import textwrap


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
    return _with_lines(all_lines, at, _indent(all_lines[at]), lines)


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
    return [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt)
        and not isinstance(node, definitions)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]


def function_at(source: str, line: int) -> ast.FunctionDef | None:
    """The innermost function that contains a line."""
    found = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and _first_line(node) <= line <= (node.end_lineno or node.lineno)
    ]
    return max(found, key=lambda node: node.lineno, default=None)


def block_of(tree: ast.AST, statement: ast.stmt) -> list[ast.stmt]:
    """The list of statements that a statement stands in."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and any(_same(one, statement) for one in block):
                return block
    return [statement]


def _same(one: ast.AST, other: ast.stmt) -> bool:
    return isinstance(one, ast.stmt) and (one.lineno, one.col_offset) == (other.lineno, other.col_offset)


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


def _line_of_if(source: str, elif_line: int) -> int:
    parents = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.If) and node.orelse)
    return next(node.lineno for node in parents if node.orelse[0].lineno == elif_line)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _with_lines(all_lines: list[str], at: int, indent: str, lines: tuple[str, ...]) -> str:
    before = all_lines[:at]
    if before and not before[-1].endswith("\n"):
        before = [*before[:-1], f"{before[-1]}\n"]
    return "".join([*before, *(f"{indent}{line}\n" for line in lines), *all_lines[at:]])
