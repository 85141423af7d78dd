"""Which op of a program led to a failure: the call on the program's own line that was running."""

from __future__ import annotations

import ast
from itertools import islice

from ddefuzz.execute.protocol import Observation
from ddefuzz.instrument.events import PROGRAM_FILE, Frame


def failing_ops(observation: Observation) -> tuple[str, ...]:
    """The catalogue function that the program called at the failing line; empty when it is not known.

    Of several calls the outermost: the others make its arguments.
    """
    frame = _program_frame(observation)
    if frame is None:
        return ()
    try:
        tree = ast.parse(frame.code.strip())
    except SyntaxError:
        return ()
    # `ast.walk` goes breadth first.
    named = (name for node in ast.walk(tree) if (name := _function(node)) is not None)
    return tuple(islice(named, 1))


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
