"""Changes of a user's source that may decide a guard that torch could not. Each row of a table makes text from
text.

A row gets the statement and the expression at the failing line and yields edits. It does not know whether an edit
helps. `advice` tries each and reports only those that did.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ddefuzz.instrument import torch_api
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
    """A changed source: what it does and what it assumes, in words, and the code that is new."""

    source: str
    does: str
    assumes: str
    lines: tuple[str, ...]


Rewrite = Callable[[Place], Iterator[Edit]]

GUARD_IMPORT = "from {} import {}".format(*torch_api.GUARD_OR_FALSE.path.split(":"))

_TRUTH_OF_A_TENSOR = re.compile(r"|Eq\([uz]\w*, 1\)|Ne\([uz]\w*, 0(\.0)?\)")
"""Expressions of a branch on a tensor: torch evaluates its `item()`. Empty: dynamo rejects it before that."""

_INCLUSIVE = re.compile(r"(torch\._check\(.*) (>=|<) (-?\d+)\)")
_SIZE_IS_NOT_ZERO = re.compile(r"(torch\._check\([^\n=<>]*\.shape\[-?\d+\]) != 0\)")

PROBE = "ddefuzz probe: "
"""The beginning of the message of a source that `probe` makes."""

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}


_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
}


def locate(source: str, frame: Frame, anchor: str, question: str, sizes: Mapping[str, str]) -> Place | None:
    """The statement at a frame's line and the expression that prints as `anchor`; None where they are not there."""
    around = sorted(statements_at(source, frame.line), key=lambda node: (node.end_lineno or 0) - node.lineno)
    for statement in around:
        for node in ast.walk(statement):
            if isinstance(node, ast.expr) and ast.unparse(node) == anchor:
                return Place(source, statement, node, question, sizes)
    return Place(source, around[0], _whole(around[0]), question, sizes) if around else None


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


def assume(place: Place) -> Iterator[Edit]:
    """`torch._check` of the branch's own condition, or of its opposite, before the branch."""
    if not isinstance(place.expression, ast.Compare) or len(place.expression.ops) != 1:
        return
    if _bound_within(place):
        return
    for condition in (place.expression, opposite(place.expression)):
        yield checked(place, ast.unparse(condition))


def assume_question(place: Place) -> Iterator[Edit]:
    """`torch._check` of the guard's expression, or of its opposite, with the user's own expressions for the sizes."""
    condition = in_user_words(place.question, place.sizes)
    if condition is None:
        return
    for one in (opposite(condition), condition):
        yield checked(place, ast.unparse(one))


def assume_size(place: Place) -> Iterator[Edit]:
    """`torch._check` that a size is not one of the special ones."""
    for symbol, size in place.sizes.items():
        if re.search(rf"\b{symbol}\b", place.question):
            for condition in (f"{size} != 0", f"{size} > 0", f"{size} != 1", f"{size} > 1"):
                yield checked(place, condition)


def decide_tensor(place: Place) -> Iterator[Edit]:
    """For a branch on a tensor: read its value once, and assert what it is."""
    if _tested(place) is None or not _TRUTH_OF_A_TENSOR.fullmatch(place.question):
        return
    condition = ast.unparse(place.expression)
    for promise, assumes in (("decided", "true"), ("torch.sym_not(decided)", "false")):
        lines = (f"decided = ({condition}).item()", f"torch._check({promise})")
        yield Edit(
            inserted(replaced(place.source, place.expression, "decided"), place.statement, lines),
            "read the condition once and assert its value",
            f"{condition} is always {assumes}",
            lines,
        )


def select(place: Place) -> Iterator[Edit]:
    """`a if tensor else b` computed without a branch."""
    for node in ast.walk(place.statement):
        if isinstance(node, ast.IfExp) and ast.unparse(node.test) == ast.unparse(place.expression):
            text = f"torch.where({ast.unparse(node.test)}, {ast.unparse(node.body)}, {ast.unparse(node.orelse)})"
            yield Edit(
                replaced(place.source, node, text),
                "compute both branches and select",
                "nothing: both branches are computed, and they have the same shape",
                (text,),
            )


def fall_back(place: Place) -> Iterator[Edit]:
    """`guard_or_false`: take the general branch if the answer is unknown."""
    if _tested(place) is None:
        return
    text = f"guard_or_false({ast.unparse(place.expression)})"
    yield Edit(
        imported(replaced(place.source, place.expression, text), GUARD_IMPORT),
        "take the other branch wherever the condition is unknown",
        "the branch without the condition is right for every size",
        (GUARD_IMPORT, text),
    )


def keep_symbolic(place: Place) -> Iterator[Edit]:
    """`int(t)` and `max(a, b)` that stay symbolic."""
    match place.expression:
        case ast.Call(func=ast.Name("int"), args=[value]) if not isinstance(value, ast.BinOp):
            text = f"{_owner(value)}.item()"
        case ast.Call(func=ast.Name("int"), args=[value]):
            text = f"({ast.unparse(value)}).to(torch.int64).item()"
        case ast.Call(func=ast.Name("float"), args=[value]):
            text = f"{_owner(value)}.item()"
        case ast.Call(func=ast.Name("max" | "min" as name), args=[first, second]):
            text = f"torch.sym_{name}({ast.unparse(first)}, {ast.unparse(second)})"
        case ast.Compare(left=left) if (call := _extremum(left)) is not None:
            text = ast.unparse(place.expression).replace(ast.unparse(left), call, 1)
        case _:
            return
    source = replaced(place.source, place.expression, text)
    yield Edit(source, "keep the number symbolic", "nothing: the value is the same", (text,))


DECISIONS: tuple[Rewrite, ...] = (keep_symbolic, select, assume, decide_tensor, fall_back)
"""Edits for a guard in the user's own code, in order of increasing assumptions."""

QUESTIONS: tuple[Rewrite, ...] = (assume_question,)
"""Edits for a guard in torch about sizes that the user's code has names for: what the code can assert about them."""


def assume_value(place: Place, value: str) -> Edit | None:
    """`torch._check` that the number which torch needs has the value of the example inputs."""
    size = place.sizes.get(place.question)
    return checked(place, f"{size} == {value}") if size is not None else None


def probe(place: Place) -> str | None:
    """A source that raises the value of the number which torch needs. None if torch needs a relation."""
    size = place.sizes.get(place.question)
    if size is None:
        return None
    return inserted(place.source, place.statement, (f'raise RuntimeError(f"{PROBE}{{{size}}}")',))


def checked(place: Place, condition: str) -> Edit:
    """`torch._check(condition)` before the statement."""
    line = f"torch._check({condition})"
    assumes = f"{condition} for every input (a run-time assertion checks it)"
    return Edit(inserted(place.source, place.statement, (line,)), "assert the condition", assumes, (line,))


def meaning(source: str) -> str:
    """The source with its assertions on integers in one spelling: `n >= 1` as `n > 0`, and `!= 0` of a size too."""
    plain = _SIZE_IS_NOT_ZERO.sub(r"\1 > 0)", source)
    return _INCLUSIVE.sub(
        lambda found: f"{found[1]} {'>' if found[2] == '>=' else '<='} {int(found[3]) - 1})",
        plain,
    )


def inserted(source: str, statement: ast.stmt, lines: tuple[str, ...]) -> str:
    """The source with lines before a statement (an `elif`: before its `if`), indented as its line is."""
    all_lines = source.splitlines(keepends=True)
    at = statement.lineno - 1
    while all_lines[at].lstrip().startswith("elif"):
        at = _line_of_if(source, at + 1) - 1
    indent = all_lines[at][: len(all_lines[at]) - len(all_lines[at].lstrip())]
    return "".join([*all_lines[:at], *(f"{indent}{line}\n" for line in lines), *all_lines[at:]])


def _line_of_if(source: str, elif_line: int) -> int:
    parents = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.If) and node.orelse)
    return next(node.lineno for node in parents if node.orelse[0].lineno == elif_line)


def replaced(source: str, node: ast.expr, text: str) -> str:
    """The source with one expression replaced. Columns of `ast` count bytes."""
    lines = source.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head = lines[first][: node.col_offset]
    tail = lines[last][node.end_col_offset :]
    return b"".join([*lines[:first], head, text.encode(), tail, *lines[last + 1 :]]).decode()


def imported(source: str, line: str) -> str:
    """The source with an import after its docstring and `__future__` imports."""
    body = ast.parse(source).body
    after = 0
    for node in body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            after = node.end_lineno or node.lineno
    lines = source.splitlines(keepends=True)
    return "".join([*lines[:after], f"{line}\n", *lines[after:]])


def opposite(condition: ast.expr) -> ast.expr:
    """The condition that holds exactly when this one does not."""
    if isinstance(condition, ast.Compare) and len(condition.ops) == 1 and type(condition.ops[0]) in _OPPOSITES:
        return ast.Compare(condition.left, [_OPPOSITES[type(condition.ops[0])]()], condition.comparators)
    return ast.Call(ast.parse("torch.sym_not", mode="eval").body, [condition], [])


def in_user_words(question: str, sizes: Mapping[str, str]) -> ast.expr | None:
    """A relation as torch prints it (`Eq(4*u0, 0)`) over the user's own sizes. None if it has no such form."""
    try:
        tree = ast.parse(question, mode="eval").body
    except SyntaxError:
        return None
    if any(node.id not in {*sizes, *_FUNCTIONS} for node in ast.walk(tree) if isinstance(node, ast.Name)):
        return None
    said = _InUserWords(sizes).visit(tree)
    return _size_first(said) if isinstance(said, ast.Compare) else None


_FUNCTIONS = {"Eq", "Ne", "Mod", "Max", "Min"}


class _InUserWords(ast.NodeTransformer):
    def __init__(self, sizes: Mapping[str, str]) -> None:
        self.sizes = sizes

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


def _size_first(condition: ast.Compare) -> ast.Compare:
    """`1 > n` with the size first: `n < 1`."""
    if isinstance(condition.left, ast.Constant) and len(condition.ops) == 1:
        operator = _TURNED[type(condition.ops[0])]()
        return ast.Compare(condition.comparators[0], [operator], [condition.left])
    return condition


def _whole(statement: ast.stmt) -> ast.expr:
    """The first expression of a statement, where the failing one is not known."""
    return next((node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)), ast.Constant(None))


def _tested(place: Place) -> ast.expr | None:
    """The condition of the branch that the expression is, or is a part of."""
    for node in ast.walk(place.statement):
        if isinstance(node, ast.If | ast.IfExp | ast.Assert) and place.expression in ast.walk(node.test):
            return node.test
    return None


def _bound_within(place: Place) -> bool:
    """Whether the expression reads a name that exists only within its statement (of a comprehension or a `:=`)."""
    read = {node.id for node in ast.walk(place.expression) if isinstance(node, ast.Name)}
    inner = [node for node in ast.walk(place.statement) if isinstance(node, ast.comprehension | ast.NamedExpr)]
    return bool(read & {name.id for node in inner for name in ast.walk(node.target) if isinstance(name, ast.Name)})


def _extremum(node: ast.expr) -> str | None:
    match node:
        case ast.Call(func=ast.Name("max" | "min" as name), args=[first, second]):
            return f"torch.sym_{name}({ast.unparse(first)}, {ast.unparse(second)})"
        case _:
            return None


def _owner(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) else f"({text})"
