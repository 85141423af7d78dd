"""Finds the op of a program that led to a failure: the call on the program's own line that was running.

A backward graph or inductor has no frame of the program. Then the line that torch quotes in its message is used,
else the call whose backward formula runs, else the program's only call.
"""

from __future__ import annotations

import ast
import re

from ddefuzz import syntax
from ddefuzz.classify.cxx import function_name
from ddefuzz.execute.protocol import Observation
from ddefuzz.instrument.events import PROGRAM_FILE, Frame

GRADIENTS = frozenset({"torch.autograd.grad", "Tensor.backward"})
"""The calls that run the backward formulas of other calls."""

_QUOTED_LINE = re.compile(rf'File "{re.escape(PROGRAM_FILE)}", line \d+, in \w+\s*?\n\s*(?P<code>[^\s~^].*)')
_BACKWARD = re.compile(r"^torch::autograd::generated::(?P<op>\w+)Backward\w*::apply$")


def failing_ops(observation: Observation, program: str = "") -> tuple[str, ...]:
    """The catalogue function that the program called at the failing line; empty if it is not known.

    Of several calls on the line, the outermost is taken, because the others make its arguments. `program` is
    the program's text, for failures without a line of it.
    """
    frame = _program_frame(observation)
    calls = called(frame.code, exact=frame.exact) if frame is not None else _quoted(observation)
    if calls and calls[0] in GRADIENTS:
        # The backward formula of another call fails, if it is known which.
        others = tuple(call for call in called(program) if call not in GRADIENTS)
        return _of_backward(observation, others) or calls[:1]
    return calls[:1] or _of_backward(observation, called(program))


def _program_frame(observation: Observation) -> Frame | None:
    raised = observation.raised
    stacks = [] if raised is None else [raised.traced, raised.python]
    for error in observation.exceptions:
        stacks += [error.traced, error.frames]
    innermost_first = (frame for stack in stacks for frame in reversed(stack))
    return next((frame for frame in innermost_first if frame.file == PROGRAM_FILE), None)


def _quoted(observation: Observation) -> tuple[str, ...]:
    lines = (match["code"] for error in observation.exceptions for match in _QUOTED_LINE.finditer(error.message))
    return next(filter(None, map(called, lines)), ())


def _of_backward(observation: Observation, calls: tuple[str, ...]) -> tuple[str, ...]:
    """The call whose name is that of the running backward formula, or an alias of it; else the only call."""
    native = observation.raised.native if observation.raised is not None else ()
    formulas = (_BACKWARD.match(function_name(frame.function)) for frame in reversed(native))
    formula = next((match["op"].lower() for match in formulas if match), "")
    names = {call: call.rpartition(".")[2].replace("_", "") for call in calls}
    # `LinalgPinvBackward0` is the formula of torch.linalg.pinv, and of torch.pinverse.
    short = re.sub("^(linalg|special|fft)", "", formula)
    for call, name in names.items():
        if formula and name in (formula, short):
            return (call,)
    for call, name in names.items():
        if short != formula and name.startswith(short):
            return (call,)
    return calls if len(calls) == 1 else ()


def called(code: str, *, exact: bool = False) -> tuple[str, ...]:
    """The functions that the code calls, the outermost first. `exact` says that the outermost is the one that runs."""
    try:
        tree = syntax.parse(code.strip())
    except SyntaxError:
        return ()
    # The body of a function only: types of its parameters are subscripts too. `ast.walk` is breadth first.
    statements = [body for one in tree.body for body in (one.body if isinstance(one, ast.FunctionDef) else [one])]
    nodes = (node for statement in statements for node in ast.walk(statement))
    return tuple(name for node in nodes if (name := _function(node, exact=exact)) is not None)


def _function(node: ast.AST, *, exact: bool) -> str | None:
    match node:
        case ast.Call(func):
            dotted = ast.unparse(func)
            if isinstance(func, ast.Attribute) and not (dotted.startswith("torch.") and _is_path(func)):
                return f"Tensor.{func.attr}"
            return dotted
        case ast.Subscript(ast.Tuple() | ast.List()) | ast.Subscript(ast.Attribute(attr="shape")):
            return None  # not a tensor's
        case ast.Subscript(ast.Call(), ast.Constant(int())) if not exact:
            return None
        case ast.Subscript():
            return "Tensor.__getitem__"
        case ast.BinOp(op=op):
            return f"operator.{_OPERATORS.get(type(op), type(op).__name__.lower())}"
        case _:
            return None


def _is_path(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


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
