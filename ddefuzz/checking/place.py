"""A place in a source where a guard has to be decided, and the edits of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ddefuzz.checking.change_text import statements_at
from ddefuzz.checking.changes import ChangeKind
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
        if isinstance(node, ast.If | ast.IfExp | ast.Assert | ast.While) and any(
            one is place.expression for one in ast.walk(node.test)
        ):
            return node.test
    return None


def bound_within(place: Place) -> bool:
    """Whether the expression reads a name that exists only within its statement (of a comprehension or a `:=`)."""
    read = {node.id for node in ast.walk(place.expression) if isinstance(node, ast.Name)}
    inner = [node for node in ast.walk(place.statement) if isinstance(node, ast.comprehension | ast.NamedExpr)]
    return bool(read & {name.id for node in inner for name in ast.walk(node.target) if isinstance(name, ast.Name)})


def _whole(statement: ast.stmt) -> ast.expr:
    """The first expression of a statement, where the failing one is not known."""
    return next((node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)), ast.Constant(None))
