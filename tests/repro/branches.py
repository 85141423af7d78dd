"""Removes the blamed branch of a finding from torch's source, as a maintainer's fix would do."""

from __future__ import annotations

import ast
from pathlib import Path

import torch

PACKAGE = Path(torch.__file__).parents[1]

UNPATCHED = {
    "adaptive_avg_pool1d(input, output_size)": "C++ reads output_size as ints",
    "torch._C._nn.adaptive_max_pool2d(input, output_size)": "C++ reads output_size as ints",
    "torch._C._nn.adaptive_max_pool3d(input, output_size)": "C++ reads output_size as ints",
    "range(full_chunks)": "the number of outputs",
    "guard_int(chunks)": "the number of outputs",
    "complex(x)": "Python has no symbolic complex number",
    "_guarding_hint_or_throw_base(self.shape_env, expr, self.inv_precomputed_replacements)": "inductor needs an int",
}
"""Expressions that decide no branch and have no symbolic form, with what they are."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

BOOLEAN_CALLS = frozenset({"all", "any", "is_contiguous", "maybe_guard_or_false", "maybe_guard_or_true"})


def patches(file: str, line: int, expression: str) -> list[str]:
    """The sources of a module of torch in which an expression of a function is replaced by a constant result.

    First by the result of `guard_or_false` for an undecided guard, then by that of `guard_or_true`; for `min(a,
    b)`, by either operand. A number gets its symbolic form. Empty if the expression is in `UNPATCHED`. Line
    numbers stay the same, and the expression stays in the text.
    """
    source = (PACKAGE / file).read_text()
    tree = ast.parse(source)
    around = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and _is_at(node, line)]
    # All places in the function that evaluate it: one of them shows as long as another is left.
    within = max(around, key=lambda node: node.lineno) if around else tree
    near = [node for node in ast.walk(within) if isinstance(node, ast.expr) and ast.unparse(node) == expression]
    return [_answered(source, near, answer) for answer in answers(near[0])] if near else []


def _is_at(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def answers(node: ast.expr) -> list[str]:
    """The values that a fix may use in place of an expression."""
    match node:
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.Name():
            return ["False", "True"]
        case ast.Call(ast.Name("min" | "max"), [first, second]):
            return [ast.unparse(first), ast.unparse(second)]
        case ast.Call(ast.Name("min"), [_]):
            return ["1"]  # of sizes that are checked to be positive
        case ast.Call(ast.Name("int"), [number]):
            return [f"torch.sym_int({ast.unparse(number)})"]
        case ast.Call(ast.Attribute(ast.Name("math"), "floor"), [ast.BinOp(first, ast.Div(), second)]):
            return [f"{ast.unparse(first)} // {ast.unparse(second)}"]
        case ast.Call(ast.Attribute(_, "sort")):
            return ["None"]  # keeps the order
        case ast.Call(ast.Name(name) | ast.Attribute(_, name)) if name in BOOLEAN_CALLS:
            return ["False", "True"]
        case _:
            return []


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
