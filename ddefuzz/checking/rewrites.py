"""Edits of a decision in code that may be changed, which compute the same."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from itertools import product

from ddefuzz.answers.patch import CHECKS
from ddefuzz.checking.edits import (
    Edit,
    Place,
    Rewrite,
    contains,
    following,
    imported,
    opposite,
    statements_at,
    tested,
    with_block,
)
from ddefuzz.instrument import torch_api
from ddefuzz.syntax import compiles, lines_of, replaced

_IS_SIZE = re.compile(r"\.shape\b|\.size\(|\.numel\(|\blen\(|^torch\.sym_|^(min|max)\(")
"""A condition on sizes, which no op on tensors computes."""


def keep_symbolic(place: Place) -> Iterator[Edit]:
    """`int(t)`, `len(t)` and `max(a, b)` that stay symbolic: each of them, and all at once."""
    nodes = [node for node in ast.walk(place.statement) if isinstance(node, ast.Call)]
    calls = [node for node in nodes if _symbolic(node) is not None]
    inner = {one for node in calls for child in ast.iter_child_nodes(node) for one in ast.walk(child)}
    outermost = sorted((node for node in calls if node not in inner), key=lambda node: (node.lineno, node.col_offset))
    if len(calls) > 1:
        source, texts = place.source, [ast.unparse(_Symbolic().visit(copy.deepcopy(node))) for node in outermost]
        for node, text in zip(reversed(outermost), reversed(texts), strict=True):
            source = replaced(source, node, text)
        yield Edit(source, "rewrite", f"keep the numbers symbolic: {', '.join(texts)}")
    for node in calls:
        if (symbolic := _symbolic(node)) is not None:
            yield Edit(replaced(place.source, node, symbolic), "rewrite", f"keep the number symbolic: {symbolic}")


class _Symbolic(ast.NodeTransformer):
    """Writes all that `_symbolic` knows, inner calls first."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        text = _symbolic(node)
        return node if text is None else ast.parse(text, mode="eval").body


def select_index(place: Place) -> Iterator[Edit]:
    """`x[0, n]` with a number from data as `x[0].select(0, n)`, which takes a SymInt. A tensor `n` is read first."""
    for node in ast.walk(place.expression):
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            continue
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        at = next((at for at, item in enumerate(items) if isinstance(item, ast.Name | ast.Attribute)), None)
        if at is None or not all(_keeps_dims(item) for one, item in enumerate(items) if one != at):
            continue
        dim = sum(not _is_int(item) for item in items[:at])
        if any(map(_is_ellipsis, items)):
            if at < len(items) - 1 or not _is_ellipsis(items[0]):
                continue
            dim = -1
        kept = [":" if one == at else ast.unparse(item) for one, item in enumerate(items)]
        while kept and kept[-1] in {":", "..."}:
            kept.pop()
        rest = f"[{', '.join(kept)}]" if kept else ""
        for index in (ast.unparse(items[at]), f"{ast.unparse(items[at])}.item()"):
            selected = f"{_owner(node.value)}{rest}.select({dim}, {index})"
            yield Edit(replaced(place.source, node, selected), "rewrite", f"use {selected}")


def _keeps_dims(item: ast.expr) -> bool:
    return isinstance(item, ast.Slice) or _is_int(item) or _is_ellipsis(item)


def _is_int(node: ast.expr) -> bool:
    number = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(number, ast.Constant) and type(number.value) is int


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def clamp(place: Place) -> Iterator[Edit]:
    """`if n > cap: n = cap` as the lesser of both; and other code for which `cap` is too much, such as `topk(cap)`."""
    statement = place.statement
    if not isinstance(statement, ast.If) or statement.orelse or not contains(statement.test, place.expression):
        return
    match statement.test:
        case ast.Compare(size, [ast.Gt() | ast.GtE()], [cap]) | ast.Compare(cap, [ast.Lt() | ast.LtE()], [size]):
            rows = (("min", size, cap), ("max", cap, size))
        case _:
            return
    changed: str | None
    for name, number, bound in rows:
        text = f"torch.sym_{name}({ast.unparse(number)}, {ast.unparse(bound)})"
        match statement.body:
            case [ast.Assign([target], value)] if (ast.unparse(target), ast.unparse(value)) == (
                ast.unparse(number),
                ast.unparse(bound),
            ):
                changed = replaced(place.source, statement, f"{ast.unparse(number)} = {text}")
            case _:
                changed = _with_bound(place.source, statement, ast.unparse(bound), text) if name == "min" else None
        if changed is not None and compiles(changed):
            yield Edit(changed, "rewrite", f"use {text} without a branch", removed=statement.test)


def _with_bound(source: str, statement: ast.If, bound: str, text: str) -> str | None:
    """The body in place of the branch, with another expression for each `bound` in it."""
    nodes = [node for one in statement.body for node in ast.walk(one) if isinstance(node, ast.expr)]
    read = [node for node in nodes if not isinstance(getattr(node, "ctx", None), ast.Store)]
    uses = [node for node in read if ast.unparse(node) == bound]
    for node in sorted(uses, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        source = replaced(source, node, text)
    branches = [one for one in statements_at(source, statement.lineno) if one.col_offset == statement.col_offset]
    branch = branches[0] if branches and uses else None
    return with_block(source, branch, branch.body) if isinstance(branch, ast.If) else None


def one_block(place: Place) -> Iterator[Edit]:
    """Drop a branch that only saves work, or always take it."""
    statement = place.statement
    if not isinstance(statement, ast.If) or not contains(statement.test, place.expression):
        return
    condition = ast.unparse(statement.test)
    sides = (
        (statement.orelse, f"drop the branch `if {condition}`"),
        (statement.body, f"run the code of the branch `if {condition}` in all cases"),
    )
    for block, does in sides:
        source = with_block(place.source, statement, block)
        if source is not None and compiles(source):
            yield Edit(source, "rewrite", does, removed=statement.test)


def one_value(place: Place) -> Iterator[Edit]:
    """Take one side of `a if test else b`."""
    for node in ast.walk(place.statement):
        if isinstance(node, ast.IfExp) and contains(node.test, place.expression):
            alone = any(one is node for one in ast.iter_child_nodes(place.statement))
            for side in (node.orelse, node.body):
                text = ast.unparse(side)
                source = replaced(
                    place.source, node, text if alone and not isinstance(side, ast.NamedExpr) else f"({text})"
                )
                yield Edit(source, "rewrite", f"compute {text} for every size", removed=node.test)


def select(place: Place) -> Iterator[Edit]:
    """A branch on a tensor or a number computed without a branch: both sides, and `torch.where`."""
    for node in ast.walk(place.statement):
        if isinstance(node, ast.IfExp) and contains(node.test, place.expression):
            for condition in _as_conditions(node.test):
                text = _where(condition, node.body, node.orelse)
                yield Edit(replaced(place.source, node, text), "rewrite", "compute both branches and select")
    if isinstance(place.statement, ast.If) and contains(place.statement.test, place.expression):
        for condition in _as_conditions(place.statement.test):
            yield from _select_statement(place, place.statement, condition)


def _select_statement(place: Place, statement: ast.If, condition: str) -> Iterator[Edit]:
    """`if t: x = a` as `x = torch.where(t, a, x)`, and `if t: return a` before `return b`."""
    rest: str | None = place.source
    match statement.body, statement.orelse or following(place.source, statement):
        case [ast.Assign([target], value)], [ast.Assign([other], otherwise), *_] if statement.orelse and ast.unparse(
            target
        ) == ast.unparse(other):
            text = f"{ast.unparse(target)} = {_where(condition, value, otherwise)}"
        case [ast.Assign([target], value)], _ if not statement.orelse:
            text = f"{ast.unparse(target)} = {_where(condition, value, target)}"
        case [ast.AugAssign(target, operator, value)], _ if not statement.orelse:
            changed = ast.BinOp(ast.Name(ast.unparse(target)), operator, value)
            text = f"{ast.unparse(target)} = {_where(condition, changed, target)}"
        case [ast.Return(ast.expr() as value)], [ast.Return(ast.expr() as otherwise) as last, *_]:
            text = f"return {_where(condition, value, otherwise)}"
            rest = place.source if statement.orelse else with_block(place.source, last, [])
        case _:
            return
    source = None if rest is None else replaced(rest, statement, text)
    if source is not None and compiles(source):
        yield Edit(source, "rewrite", "compute both branches and select")


def assert_instead(place: Place) -> Iterator[Edit]:
    """`assert condition`, and `if condition: raise`, as a check at run time."""
    match place.statement:
        case ast.Assert(test, message):
            condition: ast.expr = test
            shown = message
        case ast.If(test, [ast.Raise(exception)], []):
            condition = opposite(test)
            shown = exception.args[0] if isinstance(exception, ast.Call) and exception.args else None
        case _:
            return
    is_elif = lines_of(place.source)[place.statement.lineno - 1].lstrip().startswith("elif")
    if is_elif or not contains(place.statement.test, place.expression):
        return
    arguments = [f", lambda: {ast.unparse(shown)}" if shown is not None else ""]
    if not isinstance(shown, ast.Constant | None):
        arguments.append("")  # torch.compile refuses messages that use local variables
    names = dict.fromkeys((_check_of(place.statement), "torch._check"))
    checks = [f"{name}({ast.unparse(condition)}{argument})" for name, argument in product(names, arguments)]
    if not _IS_SIZE.search(ast.unparse(condition)):
        text = ast.unparse(shown) if isinstance(shown, ast.Constant | ast.JoinedStr) else repr("expected to hold")
        checks.append(f"torch._assert_async({_tensor(condition)}, {text})")
    for check in checks:
        yield Edit(replaced(place.source, place.statement, check), "rewrite", "check the condition at run time")


def _check_of(statement: ast.stmt) -> str:
    match statement:
        case ast.If(_, [ast.Raise(ast.Call(ast.Name(error)) | ast.Name(error))], []):
            return CHECKS.get(error, "torch._check")
        case _:
            return "torch._check"


def other_op(place: Place) -> Iterator[Edit]:
    """An op that computes the same without such a guard."""
    for node in (one for one in ast.walk(place.statement) if isinstance(one, ast.Call)):
        for text in _other_ops(node):
            yield Edit(replaced(place.source, node, text), "rewrite", f"use {text}")


def fall_back(place: Place) -> Iterator[Edit]:
    """`guard_or_false`: take the general branch if the answer is unknown."""
    test = tested(place)
    if test is None:
        return
    expression = ast.unparse(place.expression)
    for side, api in (("false", torch_api.GUARD_OR_FALSE), ("true", torch_api.GUARD_OR_TRUE)):
        module, name = api.path.split(":")
        changed = imported(
            replaced(place.source, place.expression, f"{name}({expression})"), f"from {module} import {name}"
        )
        yield Edit(changed, "rewrite", f"take {expression} as {side} where it is unknown", removed=test)


REWRITES: tuple[Rewrite, ...] = (
    keep_symbolic,
    assert_instead,
    clamp,
    one_block,
    one_value,
    select,
    other_op,
    fall_back,
)
"""Edits for a decision in code that may be changed, those that read best first."""


def _symbolic(node: ast.AST) -> str | None:
    match node:
        case ast.Call(ast.Name("int" | "float" | "bool"), [ast.Call(ast.Attribute(_, "item"), []) as inner], []):
            return ast.unparse(inner)
        case ast.Call(ast.Name("len"), [value], []):
            return f"{_owner(value)}.shape[0]"
        case ast.Call(ast.Name("int"), [value], []) if _IS_SIZE.search(ast.unparse(value)):
            return ast.unparse(value)
        case ast.Call(ast.Name("int"), [ast.BinOp() as value], []):
            return f"({ast.unparse(value)}).to(torch.int64).item()"
        case ast.Call(ast.Name("int" | "float"), [value], []):
            return f"{_owner(value)}.item()"
        case ast.Call(ast.Name("max" | "min" as name), [first, second], []):
            return f"torch.sym_{name}({ast.unparse(first)}, {ast.unparse(second)})"
        case _:
            return None


def _other_ops(node: ast.Call) -> Iterator[str]:
    match node:
        case ast.Call(ast.Attribute(owner, "view" | "reshape" as name), args, []) if args:
            other = "reshape" if name == "view" else "view"
            yield f"{_owner(owner)}.{other}({', '.join(map(ast.unparse, args))})"
        case ast.Call(ast.Attribute(owner, "contiguous"), [], []):
            yield f"{_owner(owner)}.clone(memory_format=torch.contiguous_format)"
        case ast.Call(ast.Attribute(owner, "squeeze"), [], []):
            yield from (f"{_owner(owner)}.squeeze({dim})" for dim in (0, -1))
        case ast.Call(ast.Attribute(ast.Name("torch"), "tensor"), [ast.BinOp(ast.List([value]), ast.Mult(), size)], []):
            yield f"torch.full(({ast.unparse(size)},), {ast.unparse(value)})"
        case ast.Call(ast.Attribute(ast.Name("torch"), "squeeze"), [owner], []):
            yield f"torch.squeeze({ast.unparse(owner)}, 0)"
        case _:
            return


def _tensor(test: ast.expr) -> str:
    """A condition as a tensor: without `.item()`, `bool(…)` and `not`."""
    match test:
        case ast.Call(ast.Attribute(value, "item"), [], []):
            return ast.unparse(value)
        case ast.Call(ast.Name("bool"), [value], []):
            return _tensor(value)
        case ast.UnaryOp(ast.Not(), value) | ast.Call(ast.Attribute(ast.Name("torch"), "sym_not"), [value], []):
            return f"torch.logical_not({_tensor(value)})"
        case ast.Compare(left, operators, comparators):
            plain = [ast.Name(_tensor(one)) for one in (left, *comparators)]
            return ast.unparse(ast.Compare(plain[0], operators, list(plain[1:])))
        case _:
            return ast.unparse(test)


def _as_conditions(test: ast.expr) -> Iterator[str]:
    """A condition as a tensor, if it compares tensors, and if it compares numbers."""
    if not _IS_SIZE.search(ast.unparse(test)):
        yield _tensor(test)
    match test:
        case ast.Compare(left, [operator], [right]) if not isinstance(left, ast.Constant):
            yield ast.unparse(ast.Compare(ast.Name(f"torch.tensor({ast.unparse(left)})"), [operator], [right]))


def _where(condition: str, value: ast.expr, otherwise: ast.expr) -> str:
    return f"torch.where({condition}, {ast.unparse(value)}, {ast.unparse(otherwise)})"


def _owner(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) else f"({text})"
