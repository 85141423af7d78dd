"""Which op of a program led to a failure: the call on the program's own line that was running."""

from __future__ import annotations

import ast

from ddefuzz.execute.protocol import Observation
from ddefuzz.instrument.events import PROGRAM_FILE, Frame


def failing_ops(observation: Observation) -> tuple[str, ...]:
    """The catalogue functions that the program called at the failing line, usually one; empty when it is not known.

    Where the instruction's own positions are known, that is the one call; else every call of the line.
    """
    frame = _program_frame(observation)
    if frame is None:
        return ()
    try:
        tree = ast.parse(frame.code.strip())
    except SyntaxError:
        return ()
    return tuple(dict.fromkeys(name for node in ast.walk(tree) if (name := _function(node)) is not None))[
        : 1 if frame.exact else None
    ]


def _program_frame(observation: Observation) -> Frame | None:
    raised = observation.raised
    stacks = [] if raised is None else [raised.traced, raised.python]
    for error in observation.exceptions:
        stacks += [error.traced, error.frames]
    innermost_first = (frame for stack in stacks for frame in reversed(stack))
    return next((frame for frame in innermost_first if frame.file == PROGRAM_FILE), None)


def _function(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func):
            dotted = ast.unparse(func)
            if dotted.startswith("torch.") or isinstance(func, ast.Name):
                return dotted
            return f"Tensor.{func.attr}" if isinstance(func, ast.Attribute) else None
        case ast.Subscript():
            return "Tensor.__getitem__"
        case ast.BinOp(op=op):
            return f"operator.{_OPERATORS.get(type(op), type(op).__name__.lower())}"
        case _:
            return None


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}
