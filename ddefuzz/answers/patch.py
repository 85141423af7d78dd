"""Patches of torch's Python source: what a maintainer would write at a branch that cannot be decided.

The candidates are made from the syntax tree of the branch. Which of them is right is decided by running them
(`answers.tried_patches`), because the truth of the guard need not be that of the code: a comparison of tuples with `!=`
evaluates guards with `==`.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from ddefuzz.answers.edits import Edit, Source
from ddefuzz.files import unified_diff

LONGEST_LINE = 88
"""torch's own limit."""

CHECKS = {
    "RuntimeError": "torch._check",
    "AssertionError": "torch._check",
    "ValueError": "torch._check_value",
    "IndexError": "torch._check_index",
    "TypeError": "torch._check_type",
    "NotImplementedError": "torch._check_not_implemented",
}
"""The check that raises an error of this class. Asserted conditions are checked by `torch._check`."""

NEGATED: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
}

_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}

_MANY_SIZES = re.compile(r"(?:shape|sizes|strides|dims|size\(\)|stride\(\))$|^\(|\[[^\]]*:[^\]]*\]$")
"""The text of a tuple of sizes. torch's `sym_eq` compares two of them without evaluating."""

_A_NAME = re.compile(r"(?<![.\w])(guard_or_false|guard_or_true|sym_eq|sym_and|sym_or|is_contiguous_or_false|torch)\b")


class Patch(msgspec.Struct, frozen=True):
    """A change of one file of torch: its text before and after.

    `form` is what the branch becomes: `guard_or_false`, `torch._check` and so on. `code` is the new code there.
    """

    form: str
    file: str
    code: str
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The unified diff, with paths as in `a/torch/_refs/__init__.py`."""
        return unified_diff(self.file, self.before, self.after)


class _Change(NamedTuple):
    """A replacement of one node."""

    form: str
    node: ast.expr | ast.stmt
    text: str


def patches(source: Source, file: str, line: int, anchor: str) -> Iterator[Patch]:
    """The candidates for the branch of a module that evaluates `anchor` at a line, the smallest change first.

    There are none if the code at the line has no such expression, or no form of it decides nothing.
    """
    node = located(source, line, anchor)
    if node is None:
        return
    for change in _changes(source, node):
        names = set(_A_NAME.findall(change.text))
        edits: list[Edit] = [source.replaced(change.node, change.text), *source.imported(node, names)]
        after = source.edited(edits)
        if _is_valid(after):
            yield Patch(change.form, file, _shown(source, change), source.text, after)


def _shown(source: Source, change: _Change) -> str:
    """The new code as it reads by itself: its lines keep their indentation relative to the first."""
    statement = change.node if isinstance(change.node, ast.stmt) else source.statement(change.node)
    indent = "" if statement is None else source.indent(statement)
    return textwrap.dedent(indent + change.text)


def located(source: Source, line: int, anchor: str) -> ast.expr | None:
    """The expression that is decided: of those in statements that cover the line, the nearest to it."""
    same = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.expr) and _covers(node, line, source) and ast.unparse(node) == anchor
    ]
    return min(same, key=lambda node: abs(node.lineno - line)) if same else None


def clauses(source: Source, node: ast.expr) -> ast.BoolOp | None:
    """The `and` or `or` that has the expression as a clause, possibly negated."""
    for outer in source.above(node):
        match outer:
            case ast.BoolOp():
                return outer
            case ast.UnaryOp(op=ast.Not()):
                continue
            case _:
                break
    return None


def _covers(node: ast.expr, line: int, source: Source) -> bool:
    statement = source.statement(node)
    if statement is None:
        return False
    has_block = isinstance(statement, ast.If | ast.While | ast.For | ast.With)
    end = node.end_lineno if has_block else statement.end_lineno
    return min(statement.lineno, node.lineno) <= line <= (end or node.lineno)


def _is_valid(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _changes(source: Source, node: ast.expr) -> Iterator[_Change]:
    yield from _checks(source, node)
    yield from _symbolic(source, node)
    yield from _guards(source, node)
    both = clauses(source, node)
    if both is not None:
        name = "sym_or" if isinstance(both.op, ast.Or) else "sym_and"
        for value in ("false", "true"):
            yield _Change(f"guard_or_{value} of {name}", both, f"guard_or_{value}({_truth(source, both)})")


# Values in place of a guard


def _guards(source: Source, node: ast.expr) -> Iterator[_Change]:
    match node:
        case ast.UnaryOp(ast.Not(), operand):
            yield from _guards(source, operand)
        case ast.Call(ast.Name("all" | "any"), [ast.GeneratorExp() | ast.ListComp() as each]):
            yield from _guards(source, each.elt)
        case ast.Call(ast.Name(name), [decided]) if name.startswith("maybe_guard_or_"):
            for value in ("false", "true"):
                yield _Change(f"guard_or_{value}", node, f"guard_or_{value}({source.of(decided)})")
        case ast.Call(ast.Attribute(tensor, "is_contiguous"), [], []):
            yield _Change("guard_or_false", node, f"is_contiguous_or_false({source.of(tensor)})")
        case ast.Compare() | ast.BoolOp() | ast.Name() | ast.Attribute() | ast.Call(ast.Attribute(ast.Name("torch"))):
            for value in ("false", "true"):
                for truth in _truths(source, node):
                    yield _Change(f"guard_or_{value}", node, f"guard_or_{value}({truth})")
        case _:  # a number or a list, which has no truth to guard
            return


def _truths(source: Source, node: ast.expr) -> Iterator[str]:
    """The texts of the truth of an expression that evaluate nothing."""
    first = _truth(source, node)
    yield first
    match node:
        case ast.Compare(left, [ast.Eq() | ast.NotEq()], [right]) if "sym_eq" not in first:
            if all(isinstance(side, ast.Name | ast.Attribute) for side in (left, right)):  # may be tuples
                yield _equal(source, node)
        case ast.Call(ast.Attribute(ast.Name("torch"), "any" | "all")):
            yield f"{first}.item()"


def _truth(source: Source, node: ast.expr) -> str:
    match node:
        case ast.Compare(_, [_]):
            sides = (source.of(node.left), source.of(node.comparators[0]))
            if isinstance(node.ops[0], ast.Eq | ast.NotEq) and any(map(_MANY_SIZES.search, sides)):
                return _equal(source, node)
            return source.of(node)
        case ast.Compare(left, ops, others):
            pairs = zip((left, *others), ops, others, strict=False)
            parts = [f"{source.of(a)} {_OPERATORS.get(type(op), '<')} {source.of(b)}" for a, op, b in pairs]
            return f"sym_and({', '.join(parts)})"
        case ast.BoolOp(op, values):
            name = "sym_or" if isinstance(op, ast.Or) else "sym_and"
            return f"{name}({', '.join(_truth(source, value) for value in values)})"
        case ast.UnaryOp(ast.Not(), operand):
            return f"torch.sym_not({_truth(source, operand)})"
        case _:
            return source.of(node)


def _equal(source: Source, node: ast.Compare) -> str:
    equal = f"sym_eq({source.of(node.left)}, {source.of(node.comparators[0])})"
    return equal if isinstance(node.ops[0], ast.Eq) else f"torch.sym_not({equal})"


def _false(source: Source, node: ast.expr) -> str:
    """The text of the truth of the opposite."""
    match node:
        case ast.Compare(_, [ast.NotEq()]) if "sym_eq" in _truth(source, node):
            return _truth(source, node).removeprefix("torch.sym_not(").removesuffix(")")
        case ast.Compare(left, [op], [right]) if type(op) in NEGATED and "sym_eq" not in _truth(source, node):
            return f"{source.of(left)} {NEGATED[type(op)]} {source.of(right)}"
        case ast.UnaryOp(ast.Not(), operand):
            return _truth(source, operand)
        case ast.BoolOp(op, values):
            name = "sym_and" if isinstance(op, ast.Or) else "sym_or"
            return f"{name}({', '.join(_false(source, value) for value in values)})"
        case _:
            return f"torch.sym_not({_truth(source, node)})"


# Checks of arguments


def _checks(source: Source, node: ast.expr) -> Iterator[_Change]:
    """A run-time assertion in place of a branch that raises, or of an assert."""
    statement = source.statement(node)
    for outer in source.above(node):
        if isinstance(outer, ast.Call) and "_check" in ast.unparse(outer.func) and outer.args:
            # Evaluated before it is passed to the check: a comparison of tuples.
            if node in ast.walk(outer.args[0]) and isinstance(node, ast.Compare):
                yield _Change("torch._check", node, _equal(source, node))
            return
    match statement:
        case ast.Assert(test, message):
            said = None if message is None else source.of(message)
            text = _call(source, statement, "torch._check", _truth(source, test), said)
            yield _Change("torch._check", statement, text)
        case ast.If(test, [ast.Raise(exc=ast.Call(ast.Name(error), args, []))], []) if len(args) <= 1:
            if not _is_elif(source, statement):
                said = source.of(args[0]) if args else None
                yield from _raising(source, statement, test, node, error, said)
        case _:
            return


def _raising(
    source: Source, statement: ast.If, test: ast.expr, node: ast.expr, error: str, said: str | None
) -> Iterator[_Change]:
    name = CHECKS.get(error, f"torch._check_with({error}, ")
    rest = ""
    decided = test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and node in test.values:
        # The other clauses, which can be decided, still raise.
        others = " or ".join(source.of(value) for value in test.values if value is not node)
        indent = source.indent(statement)
        rest = f"if {others}:\n{indent}    {source.of(statement.body[0])}\n{indent}"
        decided = node
    for condition in dict.fromkeys((_false(source, decided), *_other_equal(source, decided))):
        yield _Change("torch._check", statement, rest + _call(source, statement, name, condition, said))


def _other_equal(source: Source, node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Compare(ast.Name() | ast.Attribute(), [ast.NotEq()], [ast.Name() | ast.Attribute()]):
            yield f"sym_eq({source.of(node.left)}, {source.of(node.comparators[0])})"
        case _:
            return


def _call(source: Source, statement: ast.stmt, name: str, condition: str, said: str | None) -> str:
    start = name if "(" in name else f"{name}("
    message = None if said is None else f"lambda: {said}"
    indent = source.indent(statement)
    line = f"{start}{', '.join(filter(None, (condition, message)))})"
    if "\n" not in line and len(indent) + len(line) <= LONGEST_LINE:
        return line
    opened, _, first = start.partition("(")
    parts = [part for part in (first.strip().removesuffix(","), condition, message) if part]
    inner = "".join(f"{indent}    {part},\n" for part in parts)
    return f"{opened}(\n{inner}{indent})"


def _is_elif(source: Source, statement: ast.If) -> bool:
    return source.of(statement).startswith("elif")


# Symbolic forms


def _symbolic(source: Source, node: ast.expr) -> Iterator[_Change]:
    """A form that computes the same without deciding anything."""
    forms: Callable[[str], _Change] = lambda text: _Change("a symbolic form", node, text)  # noqa: E731
    match node:
        case ast.Call(ast.Name("min" | "max" as name), [first, second], []):
            yield forms(f"torch.sym_{name}({_extremum(source, first)}, {_extremum(source, second)})")
        case ast.Call(ast.Name("int"), [number], []):
            yield forms(f"torch.sym_int({source.of(number)})")
        case ast.Call(ast.Attribute(ast.Name("math"), "floor"), [ast.BinOp(first, ast.Div(), second)], []):
            yield forms(f"({source.of(first)} // {source.of(second)})")
        case _:
            return


def _extremum(source: Source, node: ast.expr) -> str:
    match node:
        case ast.Call(ast.Name("min" | "max" as name), [first, second], []):
            return f"torch.sym_{name}({_extremum(source, first)}, {_extremum(source, second)})"
        case _:
            return source.of(node)
