"""Replaces the blamed branch of a finding in torch's source, as a maintainer's fix would do."""

from __future__ import annotations

import ast
from pathlib import Path

import torch

PACKAGE = Path(torch.__file__).parents[1]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def patched(file: str, line: int, expression: str, answer: str) -> str:
    """The source of a module of torch in which an expression of the function at a line is replaced by `answer`.

    Line numbers stay the same, and the expression stays in the text.
    """
    source = (PACKAGE / file).read_text()
    tree = ast.parse(source)
    around = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and _is_at(node, line)]
    # All places in the function that evaluate it: one of them shows as long as another is left.
    within = max(around, key=lambda node: node.lineno) if around else tree
    near = [
        node
        for node in ast.walk(within)
        if isinstance(node, ast.expr)
        and not isinstance(getattr(node, "ctx", None), ast.Store)
        and ast.unparse(node) == expression
    ]
    assert near, f"{file}:{line}: found no {expression}"
    return _answered(source, near, answer)


def _is_at(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _answered(source: str, nodes: list[ast.expr], answer: str) -> str:
    lines = source.splitlines(keepends=True)
    # From the last to the first, so that the positions of the others stay valid.
    for node in sorted(nodes, key=lambda one: (one.lineno, one.col_offset), reverse=True):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        end = lines[node.end_lineno - 1].encode()
        lines[node.end_lineno - 1] = (end[: node.end_col_offset] + b")" + end[node.end_col_offset :]).decode()
        start = lines[node.lineno - 1].encode()
        # Not a constant, because the compiler would drop the functions in the expression.
        before = f"({answer} if __name__ else ".encode()
        lines[node.lineno - 1] = (start[: node.col_offset] + before + start[node.col_offset :]).decode()
    return "".join(lines)
