"""Places in Python source where a guard has to be decided, and edits of it. What is not changed keeps its spelling."""

from __future__ import annotations

import ast
import builtins
import linecache
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from ddefuzz.errors import InputError
from ddefuzz.files import leads_to_file, read_text
from ddefuzz.instrument.events import PROGRAM_FILE, Frame
from ddefuzz.syntax import COMPARISONS, lines_of

_INCLUSIVE = re.compile(r"(torch\._check\(.*) (>=|<) (-?\d+)\)")
_SIZE_IS_NOT_ZERO = re.compile(r"(torch\._check\([^\n=<>]*\.shape\[-?\d+\]) != 0\)")

MODULE_NAMES = {"__file__", "__name__", "__doc__", "__class__"}

_FUNCTIONS = {"Eq", "Ne", "Mod", "Max", "Min"}

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.unaryop, ast.boolop, ast.cmpop)
_ARITHMETIC = (ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Constant, *_OPERATORS)


def opposite(condition: ast.expr) -> ast.expr:
    """The condition that holds exactly when this one does not."""
    match condition:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            return ast.Compare(condition.left, [COMPARISONS[type(operator)].opposite()], condition.comparators)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.BoolOp(ast.Or(), values):
            return ast.BoolOp(ast.And(), [opposite(one) for one in values])
        case _:
            return ast.Call(ast.parse("torch.sym_not", mode="eval").body, [condition], [])


def in_user_words(question: str, sizes: Mapping[str, str]) -> ast.expr | None:
    """A relation as torch prints it (`Eq(4*u0, 0)`) over the user's own sizes. None if it has no such form."""
    tree = parsed(question)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree is not None else set()
    if tree is None or not names <= {*sizes, *_FUNCTIONS}:
        return None
    condition = _SizeNames(sizes).visit(tree)
    return _without_factor(_size_first(condition)) if isinstance(condition, ast.Compare) else None


def fixes_a_size(condition: str) -> bool:
    """Whether a condition states that one size has a value: `n == 8`, `4 * x.shape[0] == 24`."""
    match parsed(condition):
        case ast.Compare(left, [ast.Eq()], [ast.Constant(int())]):
            return not any(isinstance(node, ast.Mod | ast.FloorDiv) for node in ast.walk(left)) and _terms(left) == 1
        case _:
            return False


def numbers_in(text: str) -> Iterator[int | float]:
    """The numbers in an expression."""
    tree = parsed(text)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            yield node.value


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


class _SizeNames(ast.NodeTransformer):
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
        operator = COMPARISONS[type(condition.ops[0])].turned()
        return ast.Compare(condition.comparators[0], [operator], [condition.left])
    return condition


def holds(condition: str, sizes: Mapping[str, int]) -> bool | None:
    """Whether a condition holds for these sizes. None if it is about others too, or about more than arithmetic."""
    tree = parsed(condition)
    filled = None if tree is None else _SizeNames({name: str(size) for name, size in sizes.items()}).visit(tree)
    if filled is None or not all(isinstance(node, _ARITHMETIC) for node in ast.walk(filled)):
        return None
    try:
        return bool(eval(compile(ast.fix_missing_locations(ast.Expression(filled)), "<promise>", "eval"), {}))
    except (ArithmeticError, TypeError):
        return None


def parsed(condition: str) -> ast.expr | None:
    try:
        return ast.parse(condition, mode="eval").body
    except SyntaxError:
        return None


ChangeKind: TypeAlias = Literal["rewrite", "input-promise", "inside-promise"]


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
        if isinstance(node, ast.If | ast.IfExp | ast.Assert | ast.While) and contains(node.test, place.expression):
            return node.test
    return None


def contains(node: ast.expr, part: ast.expr) -> bool:
    """Whether an expression has this part."""
    return any(one is part for one in ast.walk(node))


def bound_within(place: Place) -> bool:
    """Whether the expression reads a name that exists only within its statement (of a comprehension or a `:=`)."""
    read = {node.id for node in ast.walk(place.expression) if isinstance(node, ast.Name)}
    inner = [node for node in ast.walk(place.statement) if isinstance(node, ast.comprehension | ast.NamedExpr)]
    return bool(read & {name.id for node in inner for name in ast.walk(node.target) if isinstance(name, ast.Name)})


def _whole(statement: ast.stmt) -> ast.expr:
    return next((node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)), ast.Constant(None))


def inserted(source: str, statement: ast.stmt, lines: tuple[str, ...]) -> str:
    """The source with lines before a statement (an `elif`: before its `if`), indented as its line is."""
    all_lines = lines_of(source)
    at = statement.lineno - 1
    while all_lines[at].lstrip().startswith("elif"):
        at = _line_of_if(source, at + 1) - 1
    indent = _indent(all_lines[at])
    return "".join([*all_lines[:at], *(f"{indent}{line}\n" for line in lines), *all_lines[at:]])


def with_block(source: str, statement: ast.stmt, block: list[ast.stmt]) -> str | None:
    """The source with a statement replaced by statements of its own block. None if its lines hold more than it."""
    lines = lines_of(source)
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
    lines = lines_of(source)
    return source if f"{line}\n" in lines else "".join([*lines[:after], f"{line}\n", *lines[after:]])


def unbound(source: str) -> set[str]:
    """The names that a file reads and nowhere binds or imports."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    known = {one.id for one in names if not isinstance(one.ctx, ast.Load)} | set(dir(builtins)) | MODULE_NAMES
    known |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    known |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    known |= {(node.asname or node.name).partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
    known |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler | ast.MatchAs) and node.name}
    return {one.id for one in names if isinstance(one.ctx, ast.Load)} - known


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


class Sources:
    """The texts of files: those that an attempt has changed, else as they are. No file is written."""

    def __init__(self, program: str = "", changed: Mapping[str, str] | None = None) -> None:
        self.program = program
        self.changed = dict(changed or {})
        self._read: dict[str, str | None] = {}

    def with_text(self, path: str, text: str) -> Sources:
        """The texts with another one of a file."""
        original = self.original(path)
        if path != PROGRAM_FILE and "torch" in unbound(text):
            text = imported(text, "import torch")
        if original is not None and "\r\n" in original:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        made = Sources(self.program, {**self.changed, path: text})
        made._read = self._read
        return made

    def text(self, path: str) -> str | None:
        """The text of a file. None if it cannot be read or is not Python."""
        return self.changed.get(path) or self.original(path)

    def original(self, path: str) -> str | None:
        """The text of a file as it is on disk, or of the cell of a notebook."""
        if path not in self._read:
            self._read[path] = self.program if path == PROGRAM_FILE else _python(path)
        return self._read[path]


def _python(path: str) -> str | None:
    """The text of a file, else of the cell of a notebook that has this name. None if it is not Python."""
    try:
        text = read_text(Path(path)) if path.endswith(".py") and leads_to_file(Path(path)) else ""
        text = text or "".join(linecache.getlines(path))
        ast.parse(text)
    except (InputError, SyntaxError, ValueError):
        return None
    return text or None
