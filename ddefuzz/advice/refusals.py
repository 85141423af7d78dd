"""Which inputs a change refuses that eager takes, in words."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from ddefuzz.advice.conditions import opposite
from ddefuzz.advice.model import Compared
from ddefuzz.advice.place import Edit

_NO_SIZE = re.compile(r"(\.shape\[\d+\]) <= 0$")
"""No size is below 0."""


def refusals(promises: Sequence[Edit], refused: Sequence[Compared], taken: int) -> list[str]:
    """What promises refuse, with an example. Of several, only an input that names a size of a promise is one of it."""
    said = []
    for edit in promises:
        if edit.kind == "example-value":
            said.append(f"this exports a model for {edit.condition} only")
        elif refused:
            fitting = [one for one in refused if len(promises) == 1 or any(name in one.inputs for name in _sizes(edit))]
            example = f", such as {fitting[0].inputs}" if fitting else ""
            said.append(f"refuses inputs for which {_broken(edit)}, which eager takes{example}")
    others = dict.fromkeys(_broken(edit) for edit in promises if edit.kind != "example-value")
    if others and not refused:
        none = f"none of the {taken} sets of inputs that eager takes is refused"
        said.append(f"refuses inputs for which {', or '.join(others)}; {none}")
    return said


def _broken(promise: Edit) -> str:
    """The opposite of what is promised."""
    tree = _parsed(promise)
    if not isinstance(tree, ast.Compare | ast.UnaryOp):
        return f"not ({promise.condition})"
    return _NO_SIZE.sub(r"\1 == 0", ast.unparse(opposite(tree)))


def _sizes(promise: Edit) -> set[str]:
    """The sizes in a promise, such as `ids.shape[1]`."""
    tree = _parsed(promise)
    return {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Subscript)} if tree else set()


def _parsed(promise: Edit) -> ast.expr | None:
    try:
        return ast.parse(promise.condition, mode="eval").body
    except SyntaxError:
        return None
