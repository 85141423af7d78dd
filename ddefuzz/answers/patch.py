"""Patches of torch's Python source: what a maintainer would write at a branch that cannot be decided.

The candidates are made from the syntax tree of the branch. Which of them is right is decided by running them
(`answers.tried_patches`), because the truth of the guard need not be that of the code: a comparison of tuples with `!=`
evaluates guards with `==`.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec

from ddefuzz import syntax
from ddefuzz.files import leads_to_file, unified_diff
from ddefuzz.syntax import COMPARISONS


@cache
def source_of(file: str) -> Source | None:
    """The source of a file named as in frames (`torch/_refs/__init__.py`); None if it is no file of torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None or not file.startswith("torch/") or ".." in file:
        return None
    path = Path(spec.origin).parents[1] / file
    return Source(path.read_text(encoding="utf-8")) if leads_to_file(path) else None


SHAPES = "torch.fx.experimental.symbolic_shapes"
"""The module of torch that has the functions for undecided guards. torch imports it inside of functions, because
importing it at the top of a module leads to a cycle."""

ELSEWHERE = {
    "torch": "import torch",
    **{
        name: f"from torch._prims_common import {name}"
        for name in ("is_contiguous_or_false", "is_contiguous_for_memory_format_or_false")
    },
}
"""Imports of names that are not in `SHAPES`."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source:
    """The text of a module, its syntax tree, and the parent of each node."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = syntax.parse(text)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def of(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        text = ast.get_source_segment(self.text, node)
        assert text is not None
        return text

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

    def edited(self, node: ast.expr | ast.stmt, text: str, names: Iterable[str] = ()) -> str:
        """The text with a node replaced, and the imports that make names of `SHAPES` and the module `torch` known."""
        changed = syntax.replaced(self.text, node, self.fitted(node, text))
        function = self.function(node)
        local = [] if function is None else [one for one in function.body if one.lineno < node.lineno]
        known = {
            alias.asname or alias.name
            for one in (*self.tree.body, *local)
            if isinstance(one, ast.Import | ast.ImportFrom)
            for alias in one.names
        }
        missing = sorted(set(names) - known)
        if not missing or function is None:
            return changed
        shapes = [name for name in missing if name not in ELSEWHERE]
        lines = [ELSEWHERE[name] for name in missing if name in ELSEWHERE]
        same = next((one for one in local if isinstance(one, ast.ImportFrom) and one.module == SHAPES), None)
        if shapes and same is not None and not any(alias.asname for alias in same.names):
            both = sorted({*shapes, *(alias.name for alias in same.names)})
            changed = syntax.replaced(changed, same, f"from {SHAPES} import {', '.join(both)}")
        elif shapes:
            lines.append(f"from {SHAPES} import {', '.join(shapes)}")
        if not lines:
            return changed
        has_docstring = ast.get_docstring(function) is not None and len(function.body) > 1
        first = function.body[1 if has_docstring else 0]
        before = changed.splitlines(keepends=True)
        added = [f"{' ' * first.col_offset}{line}\n" for line in lines]
        at = first.lineno - 1
        while before[at - 1].lstrip().startswith("#"):  # a comment stays with its statement
            at -= 1
        return "".join([*before[:at], *added, "\n", *before[at:]])

    def fitted(self, node: ast.expr | ast.stmt, text: str) -> str:
        """The text of a call in place of a node, folded as PyTorch's formatter does if its line would be too long."""
        line = self.text.splitlines()[node.lineno - 1]
        tree = syntax.parsed_expression(text)
        last = self.text.splitlines()[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset :].decode()
        before = line.encode()[: node.col_offset].decode()
        room = LONGEST_LINE - len(before) - len(last)
        if len(text) <= room or "\n" in text or not isinstance(tree, ast.Call) or tree.keywords:
            return text
        indent = " " * (len(line) - len(line.lstrip()))
        parts = [ast.get_source_segment(text, one) or "" for one in tree.args]
        return call_of(ast.get_source_segment(text, tree.func) or "", parts, indent, room)

    def indent(self, node: ast.stmt) -> str:
        """The white space before a statement. Empty if it is not the first on its line."""
        before = self.text.splitlines()[node.lineno - 1].encode()[: node.col_offset].decode()
        return before if not before.strip() else ""


LONGEST_LINE = 88  # torch's own limit


def call_of(function: str, parts: Sequence[str], indent: str, room: int) -> str:
    """A call as PyTorch's formatter writes it in a line with this indentation and so many columns left: whole, else
    with its arguments on a line of their own, else with one a line.
    """
    inline = ", ".join(parts)
    if len(function) + len(inline) + 2 <= room:
        return f"{function}({inline})"
    fits = len(indent) + 4 + len(inline) <= LONGEST_LINE
    lines = [inline] if fits else [f"{part}," for part in parts]
    return "".join([f"{function}(\n", *(f"{indent}    {one}\n" for one in lines), f"{indent})"])


CHECKS = {
    "RuntimeError": "torch._check",
    "ValueError": "torch._check_value",
    "IndexError": "torch._check_index",
    "TypeError": "torch._check_type",
    "NotImplementedError": "torch._check_not_implemented",
}
"""The check that raises an error of this class. `torch._check_with` raises any other."""

_OTHER = "torch._check_with({}, "

_MANY_SIZES = re.compile(r"(?:shape|sizes|strides|dims|size\(\)|stride\(\))$|^\(|\[[^\]]*:[^\]]*\]$")
"""The text of a tuple of sizes. torch's `sym_eq` compares two of them without evaluating."""

_A_NAME = re.compile(
    r"(?<![.\w])(guard_or_false|guard_or_true|sym_eq|sym_and|sym_or|is_contiguous(?:_for_memory_format)?_or_false|torch)\b"
)


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


class Change(NamedTuple):
    """What a branch becomes: a node of the tree and the text in place of it."""

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
    for change in changes(source, node):
        after = source.edited(change.node, change.text, names_in(change.text))
        if syntax.compiles(after):
            yield Patch(change.form, file, shown(source, change), source.text, after)


def names_in(text: str) -> set[str]:
    """The names in a new code that may need an import."""
    return set(_A_NAME.findall(text))


def shown(source: Source, change: Change) -> str:
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


def changes(source: Source, node: ast.expr) -> Iterator[Change]:
    """What the branch that decides a node can become, the smallest change first."""
    yield from _checks(source, node)
    yield from _symbolic(source, node)
    yield from _guards(source, node)
    both = clauses(source, node)
    if both is not None:
        name = "sym_or" if isinstance(both.op, ast.Or) else "sym_and"
        for value in ("false", "true"):
            yield Change(f"guard_or_{value} of {name}", both, f"guard_or_{value}({truth(source, both)})")


# Values in place of a guard


def _guards(source: Source, node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.UnaryOp(ast.Not(), operand):
            yield from _guards(source, operand)
        case ast.Call(ast.Name("all" | "any"), [ast.GeneratorExp() | ast.ListComp() as each]):
            yield from _guards(source, each.elt)
        case ast.Call(ast.Name(name), [decided]) if name.startswith("maybe_guard_or_"):
            for value in ("false", "true"):
                yield Change(f"guard_or_{value}", node, f"guard_or_{value}({source.of(decided)})")
        case ast.Call(ast.Attribute(tensor, "is_contiguous"), [], []):
            yield Change("guard_or_false", node, f"is_contiguous_or_false({source.of(tensor)})")
        case ast.Call(ast.Attribute(tensor, "is_contiguous"), [], [ast.keyword("memory_format", memory_format)]):
            asked = f"{source.of(tensor)}, memory_format={source.of(memory_format)}"
            yield Change("guard_or_false", node, f"is_contiguous_for_memory_format_or_false({asked})")
        case ast.Call(ast.Name("bool"), [ast.Call(ast.Attribute(attr="all" | "any")) as tensor], []):
            for value in ("false", "true"):
                yield Change(f"guard_or_{value}", node, f"guard_or_{value}({source.of(tensor)}.item())")
        case ast.Call(ast.Name(name)) if name not in _BUILTIN and _is_tested(source, node):
            for value in ("false", "true"):
                yield Change(f"guard_or_{value}", node, f"guard_or_{value}({source.of(node)})")
        case ast.Compare() | ast.BoolOp() | ast.Name() | ast.Attribute() | ast.Call(ast.Attribute(ast.Name("torch"))):
            for value in ("false", "true"):
                for text in _truths(source, node):
                    yield Change(f"guard_or_{value}", node, f"guard_or_{value}({text})")
        case _:  # a number or a list, which has no truth to guard
            return


_BUILTIN = frozenset(dir(builtins))


def _is_tested(source: Source, node: ast.expr) -> bool:
    """Whether the truth of an expression decides a branch."""
    match source.parents[node]:
        case ast.If(test) | ast.IfExp(test) | ast.While(test):
            return test is node
        case ast.UnaryOp(ast.Not()) | ast.BoolOp():
            return True
        case _:
            return False


def _truths(source: Source, node: ast.expr) -> Iterator[str]:
    """The texts of the truth of an expression that evaluate nothing."""
    first = truth(source, node)
    yield first
    match node:
        case ast.Compare(left, [ast.Eq() | ast.NotEq()], [right]) if "sym_eq" not in first:
            if all(isinstance(side, ast.Name | ast.Attribute) for side in (left, right)):  # may be tuples
                yield _equal(source, node)
        case ast.Call(ast.Attribute(ast.Name("torch"), "any" | "all")):
            yield f"{first}.item()"


def truth(source: Source, node: ast.expr) -> str:
    """The text of the truth of an expression. It evaluates no guard."""
    match node:
        case ast.Compare(ast.Call(ast.Name("min"), [many], []), [ast.Lt() | ast.LtE() as op], [least]):
            return f"sym_or(False, *(one {COMPARISONS[type(op)].text} {source.of(least)} for one in {source.of(many)}))"
        case ast.Compare(_, [_]):
            sides = (source.of(node.left), source.of(node.comparators[0]))
            if isinstance(node.ops[0], ast.Eq | ast.NotEq) and any(map(_MANY_SIZES.search, sides)):
                return _equal(source, node)
            extrema = (_extremum(source, node.left), _extremum(source, node.comparators[0]))
            return source.of(node) if extrema == sides else f"{extrema[0]} {_operator(node)} {extrema[1]}"
        case ast.Compare(left, ops, others):
            pairs = zip((left, *others), ops, others, strict=False)
            parts = [
                f"{source.of(a)} {COMPARISONS[type(op)].text if type(op) in COMPARISONS else '<'} {source.of(b)}"
                for a, op, b in pairs
            ]
            return f"sym_and({', '.join(parts)})"
        case ast.BoolOp(op, values):
            return _joined("sym_or" if isinstance(op, ast.Or) else "sym_and", [truth(source, one) for one in values])
        case ast.UnaryOp(ast.Not(), operand):
            return f"torch.sym_not({truth(source, operand)})"
        case ast.Call(ast.Name("all" | "any" as name), [ast.GeneratorExp() as each]):
            return _of_each(source, each, truth(source, each.elt), is_all=name == "all")
        case _:
            return source.of(node)


def _joined(name: str, parts: list[str]) -> str:
    """The truth of all (`sym_and`) or any (`sym_or`) of some texts. Those of the same function are taken apart."""
    flat = list[str]()
    for part in parts:
        tree = syntax.parsed_expression(part)
        if isinstance(tree, ast.Call) and ast.unparse(tree.func) == name:
            flat += [ast.get_source_segment(part, one) or "" for one in tree.args]
        else:
            flat.append(part)
    neutral = "True" if name == "sym_and" else "False"
    others = [part for part in flat if part != neutral]
    if all(part.startswith("*") for part in others):  # there may be no item, which torch's functions do not take
        others.insert(0, neutral)
    return f"{name}({', '.join(others)})"


def _operator(node: ast.Compare) -> str:
    return COMPARISONS[type(node.ops[0])].text if type(node.ops[0]) in COMPARISONS else "<"


def _of_each(source: Source, each: ast.GeneratorExp, text: str, *, is_all: bool) -> str:
    """The truth of all or any of a generator. It may have no item, which torch's functions do not take."""
    loops = source.of(each).removeprefix("(").removesuffix(")").partition(source.of(each.elt))[2]
    return f"{'sym_and(True' if is_all else 'sym_or(False'}, *({text}{loops}))"


def _equal(source: Source, node: ast.Compare) -> str:
    equal = f"sym_eq({source.of(node.left)}, {source.of(node.comparators[0])})"
    return equal if isinstance(node.ops[0], ast.Eq) else f"torch.sym_not({equal})"


def falsity(source: Source, node: ast.expr) -> str:
    """The text of its opposite."""
    match node:
        case ast.Compare(_, [ast.NotEq()]) if "sym_eq" in truth(source, node):
            return truth(source, node).removeprefix("torch.sym_not(").removesuffix(")")
        case ast.Compare(ast.Call(ast.Name("min"), [many], []), [ast.Lt() | ast.LtE() as op], [least]):
            opposite = COMPARISONS[COMPARISONS[type(op)].opposite].text
            return f"sym_and(True, *(one {opposite} {source.of(least)} for one in {source.of(many)}))"
        case ast.Compare(left, [op], [right]) if type(op) in COMPARISONS and "sym_eq" not in truth(source, node):
            opposite = COMPARISONS[COMPARISONS[type(op)].opposite].text
            return f"{_extremum(source, left)} {opposite} {_extremum(source, right)}"
        case ast.UnaryOp(ast.Not(), operand):
            return truth(source, operand)
        case ast.Call(ast.Name("all" | "any" as name), [ast.GeneratorExp() as each]):
            return _of_each(source, each, falsity(source, each.elt), is_all=name == "any")
        case ast.BoolOp(op, values):
            return _joined("sym_and" if isinstance(op, ast.Or) else "sym_or", [falsity(source, one) for one in values])
        case _:
            return f"torch.sym_not({truth(source, node)})"


# Checks of arguments


def _checks(source: Source, node: ast.expr) -> Iterator[Change]:
    """A run-time assertion in place of a branch that raises, or of an assert."""
    statement = source.statement(node)
    for outer in source.above(node):
        if isinstance(outer, ast.Call) and "_check" in ast.unparse(outer.func) and outer.args:
            # Evaluated before it is passed to the check: a comparison of tuples.
            if node in ast.walk(outer.args[0]):
                yield from _argument(source, outer.args[0], node)
            return
    match statement:
        case ast.Assert(test, message):
            message_text = None if message is None else source.of(message)
            text = _call(source, statement, _OTHER.format("AssertionError"), truth(source, test), message_text or '""')
            yield Change("torch._check", statement, text)
        case ast.If(test):
            raising = raised_by(source, statement)
            if raising is not None:
                yield from _raising(source, statement, test, node, *raising)
        case _:
            return


def raised_by(source: Source, statement: ast.If) -> tuple[str, str] | None:
    """The class of the error that a branch raises, and the text of its message. None if it does something else."""
    match statement.body:
        case [ast.Raise(exc=ast.Call(ast.Name(error), args, []))] if len(args) <= 1:
            return error, source.of(args[0]) if args else '""'
        case [
            ast.Assign([ast.Name(message)], value),
            ast.Raise(exc=ast.Call(ast.Name(error), [ast.Name(name)], [])),
        ] if message == name:
            return error, source.of(value)
        case _:
            return None


def placed(source: Source, statement: ast.If) -> tuple[str, str, str] | None:
    """What is before and after the code in place of a branch that raises, and the indentation of that code.

    An `elif` is the code of an `else`. What follows a branch that raises need not be an `else`. None for both at once.
    """
    indent, is_elif = source.indent(statement), source.of(statement).startswith("elif")
    match statement.orelse:
        case []:
            return (f"else:\n{indent}    ", "", f"{indent}    ") if is_elif else ("", "", indent)
        case [ast.If() as following] if not is_elif and source.of(following).startswith("elif"):
            return "", f"\n{indent}{source.of(following).removeprefix('el')}", indent
        case _:
            return None


def _is_of_numbers(node: ast.expr) -> bool:
    return isinstance(node, ast.Compare) and all(type(op) in COMPARISONS for op in node.ops)


def _argument(source: Source, condition: ast.expr, node: ast.expr) -> Iterator[Change]:
    """The condition of a check, if it is evaluated before the check gets it. As a whole first, if `and` or `or` asks
    for the truth of the clause that is decided, and no clause keeps another one from raising (`x is None or …`).
    """
    whole = []
    is_chained = isinstance(condition, ast.Compare) and len(condition.ops) > 1
    if is_chained or isinstance(condition, ast.BoolOp | ast.UnaryOp):
        whole = [Change("torch._check", condition, truth(source, condition))]
    if (
        isinstance(condition, ast.BoolOp)
        and node not in ast.walk(condition.values[-1])
        and all(isinstance(one, ast.Call) or _is_of_numbers(one) for one in condition.values)
    ):
        yield from whole
        whole = []
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq):
        yield Change("torch._check", node, _equal(source, node))
    elif isinstance(node, ast.Call) and truth(source, node) != source.of(node):
        yield Change("torch._check", node, truth(source, node))
    yield from whole


def _raising(
    source: Source, statement: ast.If, test: ast.expr, node: ast.expr, error: str, message: str
) -> Iterator[Change]:
    place = placed(source, statement)
    if place is None:
        return
    before, after, indent = place
    name = CHECKS.get(error, _OTHER.format(error))
    decided = test
    values = test.values if isinstance(test, ast.BoolOp) else []
    clause = next((value for value in values if node in ast.walk(value)), node)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and clause in values:
        # The other clauses, which can be decided, still raise.
        others = " or ".join(source.of(value) for value in values if value is not clause)
        raising = source.of(statement.body[0]) if len(statement.body) == 1 else f"raise {error}({message})"
        before += f"if {others}:\n{indent}    {raising}\n{indent}"
        decided = clause
    elif clause in values:
        others = " and ".join(source.of(value) for value in values if value is not clause)
        before += f"if {others}:\n{indent}    "
        checked = _call_at(f"{indent}    ", name, falsity(source, clause), message)
        yield Change("torch._check", statement, f"{before}{checked}{after}")
        return
    conditions = [falsity(source, decided)]
    match decided:
        case ast.Compare(ast.Name() | ast.Attribute(), [ast.NotEq()], [ast.Name() | ast.Attribute()]):
            conditions.append(f"sym_eq({source.of(decided.left)}, {source.of(decided.comparators[0])})")
    for condition in dict.fromkeys(conditions):
        yield Change("torch._check", statement, f"{before}{_call_at(indent, name, condition, message)}{after}")


def _call(source: Source, statement: ast.stmt, name: str, condition: str, text: str | None) -> str:
    return _call_at(source.indent(statement), name, condition, text)


def _call_at(indent: str, name: str, condition: str, text: str | None) -> str:
    start = name if "(" in name else f"{name}("
    message = None if text is None else f"lambda: {text}"
    if text is not None and "\n" in text:  # several literals, as PyTorch's formatter writes them
        literals = "".join(f"{indent}        {one.strip()}\n" for one in text.splitlines())
        message = f"lambda: (\n{literals}{indent}    )"
    line = f"{start}{', '.join(filter(None, (condition, message)))})"
    if "\n" not in line and len(indent) + len(line) <= LONGEST_LINE:
        return line
    opened, _, first = start.partition("(")
    parts = [part for part in (first.strip().removesuffix(","), condition, message) if part]
    inner = "".join(f"{indent}    {part},\n" for part in parts)
    return f"{opened}(\n{inner}{indent})"


# Symbolic forms


def _symbolic(source: Source, node: ast.expr) -> Iterator[Change]:
    forms: Callable[[str], Change] = lambda text: Change("a symbolic form", node, text)  # noqa: E731
    match node:
        case ast.Call(ast.Name("min" | "max" as name), [first, second], []):
            yield forms(f"torch.sym_{name}({_extremum(source, first)}, {_extremum(source, second)})")
        case ast.Call(ast.Name("int"), [number], []):
            yield forms(f"torch.sym_int({source.of(number)})")
        case ast.Call(ast.Attribute(ast.Name("math"), "sqrt"), [number], []):
            yield forms(f"torch.sym_sqrt({source.of(number)})")
        case ast.Call(ast.Attribute(ast.Attribute(tensor, "shape"), "numel"), [], []):
            yield forms(f"{source.of(tensor)}.numel()")
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
