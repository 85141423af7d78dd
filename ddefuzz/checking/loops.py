"""Loops whose number of rounds depends on data. No promise about sizes lets capture unroll them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddefuzz.errors import InputError
from ddefuzz.files import read_text

REMEDY = (
    "capture unrolls a Python loop, so the number of its rounds must not depend on data. Write it with "
    "torch.while_loop, or call it as one op: torch.library.custom_op, with register_fake for the shape of the result"
)


def loop_at(file: str, line: int) -> str:
    """The first line of the `while` loop that the code at this line of a file decides to leave or not.

    The code is the loop's condition, or an `if` in the loop that only breaks. Empty if there is no such loop.
    """
    try:
        source = read_text(Path(file))
        tree = ast.parse(source)
    except (InputError, OSError, SyntaxError, ValueError):
        return ""
    loops = [loop for loop in ast.walk(tree) if isinstance(loop, ast.While) and _decides(loop, line)]
    return source.splitlines()[loops[-1].lineno - 1].strip() if loops else ""


def _decides(loop: ast.While, line: int) -> bool:
    leaving = [one.test for one in _inside(loop.body) if isinstance(one, ast.If) and isinstance(one.body[0], ast.Break)]
    return any(one.lineno <= line <= (one.end_lineno or one.lineno) for one in (loop.test, *leaving))


def _inside(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a loop's body, without those of inner loops and functions."""
    for one in body:
        yield one
        if not isinstance(one, ast.For | ast.While | ast.FunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                yield from _inside(getattr(one, field, []))
