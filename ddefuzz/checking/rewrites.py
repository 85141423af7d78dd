"""Changes that keep the behaviour, and promises inside: each row of a table makes text from text.

A row gets the statement and the expression at the failing line and yields edits. It does not know whether an edit
helps, or whether the results stay the same: `search` tries each.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import product

from ddefuzz.answers.patch import CHECKS
from ddefuzz.checking.conditions import fixes_a_size, in_user_words, opposite
from ddefuzz.checking.edits import (
    Edit,
    Place,
    Rewrite,
    bound_within,
    compiles,
    following,
    imported,
    inserted,
    replaced,
    tested,
    with_block,
)
from ddefuzz.instrument import torch_api

GUARD_IMPORTS = {
    "guard_or_false": "from {} import {}".format(*torch_api.GUARD_OR_FALSE.path.split(":")),
    "guard_or_true": "from {} import {}".format(*torch_api.GUARD_OR_TRUE.path.split(":")),
}

_TRUTH_OF_A_TENSOR = re.compile(r"|Eq\([uz]\w*, 1\)|Ne\([uz]\w*, 0(\.0)?\)")
"""Expressions of a branch on a tensor: torch evaluates its `item()`. Empty: dynamo rejects it before that."""

_IS_SIZE = re.compile(r"\.shape\b|\.size\(|\.numel\(|\blen\(")
"""A condition on sizes, which no op on tensors computes."""

PROBE = "ddefuzz probe: "
"""The beginning of the message of a source that `probe_of` makes."""

VALUE = "DDEFUZZ_VALUE"
"""What stands for a value of the example that is not known yet."""


def keep_symbolic(place: Place) -> Iterator[Edit]:
    """`int(t)` and `max(a, b)` that stay symbolic."""
    for node in ast.walk(place.statement):
        text = _symbolic(node)
        if text is not None and isinstance(node, ast.expr):
            source = replaced(place.source, node, text)
            yield Edit(source, "rewrite", f"keep the number symbolic: {text}")


def one_block(place: Place) -> Iterator[Edit]:
    """Drop a branch that only saves work, or always take it."""
    statement = place.statement
    if not isinstance(statement, ast.If) or not _holds(statement.test, place.expression):
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
        if isinstance(node, ast.IfExp) and _holds(node.test, place.expression):
            for side in (node.orelse, node.body):
                alone = any(one is node for one in ast.iter_child_nodes(place.statement))
                text = ast.unparse(side)
                whole = alone and not isinstance(side, ast.NamedExpr)
                source = replaced(place.source, node, text if whole else f"({text})")
                yield Edit(source, "rewrite", f"compute {ast.unparse(side)} for every size", removed=node.test)


def select(place: Place) -> Iterator[Edit]:
    """A branch on a tensor or a number computed without a branch: both sides, and `torch.where`."""
    for node in ast.walk(place.statement):
        if isinstance(node, ast.IfExp) and _holds(node.test, place.expression):
            for condition in _conditions(node.test):
                text = _where(condition, node.body, node.orelse)
                yield Edit(replaced(place.source, node, text), "rewrite", "compute both branches and select")
    if isinstance(place.statement, ast.If) and _holds(place.statement.test, place.expression):
        for condition in _conditions(place.statement.test):
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
            said = message
        case ast.If(test, [ast.Raise(exception)], []):
            condition = opposite(test)
            said = exception.args[0] if isinstance(exception, ast.Call) and exception.args else None
        case _:
            return
    is_elif = place.source.splitlines()[place.statement.lineno - 1].lstrip().startswith("elif")
    if is_elif or not _holds(place.statement.test, place.expression):
        return
    arguments = [f", lambda: {ast.unparse(said)}" if said is not None else ""]
    if not isinstance(said, ast.Constant | None):
        arguments.append("")  # torch.compile refuses messages that use local variables
    for name, argument in product(dict.fromkeys((_check_of(place.statement), "torch._check")), arguments):
        check = f"{name}({ast.unparse(condition)}{argument})"
        yield Edit(replaced(place.source, place.statement, check), "rewrite", "check the condition at run time")
    if _IS_SIZE.search(ast.unparse(condition)):
        return
    text = ast.unparse(said) if isinstance(said, ast.Constant | ast.JoinedStr) else repr("expected to hold")
    check = f"torch._assert_async({_tensor(condition)}, {text})"
    yield Edit(replaced(place.source, place.statement, check), "rewrite", "check the condition at run time")


def _check_of(statement: ast.stmt) -> str:
    """The check that raises the error of `if …: raise`."""
    match statement:
        case ast.If(_, [ast.Raise(ast.Call(ast.Name(error)) | ast.Name(error))], []):
            return CHECKS.get(error, "torch._check")
        case _:
            return "torch._check"


def other_op(place: Place) -> Iterator[Edit]:
    """An op that computes the same without such a guard."""
    for node in ast.walk(place.statement):
        if isinstance(node, ast.Call):
            for text in _other_ops(node):
                yield Edit(replaced(place.source, node, text), "rewrite", f"use {text}")


def fall_back(place: Place) -> Iterator[Edit]:
    """`guard_or_false`: take the general branch if the answer is unknown."""
    test = tested(place)
    if test is None:
        return
    for function, line in GUARD_IMPORTS.items():
        text = f"{function}({ast.unparse(place.expression)})"
        side = "false" if function == "guard_or_false" else "true"
        yield Edit(
            imported(replaced(place.source, place.expression, text), line),
            "rewrite",
            f"take {ast.unparse(place.expression)} as {side} where it is unknown",
            removed=test,
        )


REWRITES: tuple[Rewrite, ...] = (
    keep_symbolic,
    assert_instead,
    one_block,
    one_value,
    select,
    other_op,
    fall_back,
)
"""Edits for a decision in code that may be changed, those that read best first."""


def assume(place: Place) -> Iterator[Edit]:
    """`torch._check` of the branch's own condition, or of its opposite, before the branch."""
    if not isinstance(place.expression, ast.Compare) or len(place.expression.ops) != 1 or bound_within(place):
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
    if tested(place) is None or not _TRUTH_OF_A_TENSOR.fullmatch(place.question):
        return
    condition = ast.unparse(place.expression)
    for promise, words in (("decided", condition), ("torch.sym_not(decided)", f"not {condition}")):
        lines = (f"decided = ({condition}).item()", f"torch._check({promise})")
        yield Edit(
            inserted(replaced(place.source, place.expression, "decided"), place.statement, lines),
            "inside-promise",
            f"read the condition once and assert that {words}",
            words,
        )


def assume_value(place: Place) -> Iterator[Edit]:
    """`torch._check` that the number which torch needs has the value of the example, which `with_value` fills in."""
    size = place.sizes.get(place.question)
    if size is not None:
        edit = checked(place, f"{size} == {VALUE}")
        yield edit._replace(kind="example-value")


DECISIONS: tuple[Rewrite, ...] = (assume, decide_tensor)
"""What the code can assert about its own decision."""

SIZES: tuple[Rewrite, ...] = (assume_question, assume_size, assume_value)
"""What it can assert about sizes that have names, in order of increasing assumptions."""


def probe_of(edit: Edit) -> str:
    """The source of an edit of `assume_value` that raises the value instead."""
    size = edit.condition.removesuffix(f" == {VALUE}")
    return edit.source.replace(f"torch._check({edit.condition})", f'raise RuntimeError(f"{PROBE}{{{size}}}")')


def with_value(edit: Edit, value: str) -> Edit:
    """The edit with the value of the example."""
    source, does, condition = (text.replace(VALUE, value) for text in (edit.source, edit.does, edit.condition))
    return edit._replace(source=source, does=does, condition=condition)


def checked(place: Place, condition: str) -> Edit:
    """`torch._check(condition)` before the statement."""
    source = inserted(place.source, place.statement, (f"torch._check({condition})",))
    kind = "example-value" if fixes_a_size(condition) else "inside-promise"
    return Edit(source, kind, f"assert {condition}", condition)  # type: ignore[arg-type]


def _holds(test: ast.expr, expression: ast.expr) -> bool:
    return any(one is expression for one in ast.walk(test))


def _symbolic(node: ast.AST) -> str | None:
    match node:
        case ast.Call(ast.Name("int" | "float" | "bool"), [ast.Call(ast.Attribute(_, "item"), []) as inner], []):
            return ast.unparse(inner)
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
            yield f"{ast.unparse(owner)}.{other}({', '.join(map(ast.unparse, args))})"
        case ast.Call(ast.Attribute(owner, "contiguous"), [], []):
            yield f"{ast.unparse(owner)}.clone(memory_format=torch.contiguous_format)"
        case ast.Call(ast.Attribute(owner, "squeeze"), [], []):
            yield f"{ast.unparse(owner)}.squeeze(0)"
            yield f"{ast.unparse(owner)}.squeeze(-1)"
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
        case ast.UnaryOp(ast.Not(), value):
            return f"torch.logical_not({_tensor(value)})"
        case ast.Call(ast.Attribute(ast.Name("torch"), "sym_not"), [value], []):
            return f"torch.logical_not({_tensor(value)})"
        case ast.Compare(left, operators, comparators):
            plain = [ast.Name(_tensor(one)) for one in (left, *comparators)]
            return ast.unparse(ast.Compare(plain[0], operators, list(plain[1:])))
        case _:
            return ast.unparse(test)


def _conditions(test: ast.expr) -> Iterator[str]:
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
