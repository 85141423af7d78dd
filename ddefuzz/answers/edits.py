"""Edits of source text by the positions of its syntax tree, so that everything else in the text stays as it is."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

SHAPES = "torch.fx.experimental.symbolic_shapes"
"""The module of torch that has the functions for undecided guards. torch imports it inside of functions, because
importing it at the top of a module leads to a cycle."""

ELSEWHERE = {
    "torch": "import torch",
    "is_contiguous_or_false": "from torch._prims_common import is_contiguous_or_false",
}
"""Imports of names that are not in `SHAPES`."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Edit(NamedTuple):
    """Replace the bytes from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


class Source:
    """The text of a module, its syntax tree, and the parent of each node."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._lines = [line.encode() for line in text.splitlines(keepends=True)]
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """The byte positions of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text.encode()[start:end].decode()

    def replaced(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        """The edit that replaces a node."""
        return Edit(*self.span(node), text)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The innermost function around a node."""
        return next((one for one in self.above(node) if isinstance(one, FUNCTIONS)), None)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement around a node."""
        return next((one for one in self.above(node) if isinstance(one, ast.stmt)), None)

    def imported(self, node: ast.AST, names: Iterable[str]) -> list[Edit]:
        """The edits that make names of `SHAPES` and the module `torch` known where a node is."""
        function = self.function(node)
        line = getattr(node, "lineno", 0)
        local = [] if function is None else [one for one in function.body if one.lineno < line]
        known = {
            alias.asname or alias.name
            for one in (*self.tree.body, *local)
            if isinstance(one, ast.Import | ast.ImportFrom)
            for alias in one.names
        }
        missing = sorted(set(names) - known)
        if not missing or function is None:
            return []
        shapes = [name for name in missing if name not in ELSEWHERE]
        lines = [ELSEWHERE[name] for name in missing if name in ELSEWHERE]
        same = next((one for one in local if isinstance(one, ast.ImportFrom) and one.module == SHAPES), None)
        edits = []
        if shapes and same is not None and not any(alias.asname for alias in same.names):
            both = sorted({*shapes, *(alias.name for alias in same.names)})
            edits.append(self.replaced(same, f"from {SHAPES} import {', '.join(both)}"))
        elif shapes:
            lines.append(f"from {SHAPES} import {', '.join(shapes)}")
        if lines:
            edits.append(self._before_body(function, lines))
        return edits

    def edited(self, edits: Iterable[Edit]) -> str:
        """The text after edits that do not overlap."""
        content = self.text.encode()
        for edit in sorted(edits, reverse=True):
            content = content[: edit.start] + edit.text.encode() + content[edit.end :]
        return content.decode()

    def indent(self, node: ast.stmt) -> str:
        """The white space before a statement. Empty if it is not the first on its line."""
        before = self._lines[node.lineno - 1][: node.col_offset].decode()
        return before if not before.strip() else ""

    def _before_body(self, function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> Edit:
        """Insert lines before the first statement of a function, after its docstring."""
        has_docstring = ast.get_docstring(function) is not None and len(function.body) > 1
        first = function.body[1 if has_docstring else 0]
        start = self._at(first.lineno, 0)
        indent = " " * first.col_offset
        return Edit(start, start, "".join(f"{indent}{line}\n" for line in lines) + "\n")

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column
