"""The part of a stand-alone script that recognizes a Python function and the expression in it that was evaluated.

The source from the line `# ---` on is copied into scripts. It is written for Python 3.9 and torch 2.6, and later.
"""

from __future__ import annotations

import ast
import linecache
import re
from types import CodeType
from typing import Any, NamedTuple


# ---
class Frame(NamedTuple):
    """A Python frame: the file, its function, and the start and end (line, column) of the code that was running."""

    path: str
    function: str
    start: tuple[int, int]
    stop: tuple[int, int]


def seen(errors: list[BaseException], expected: dict[str, str], internal: tuple[str, ...]) -> dict[str, str]:
    """The innermost function that is not internal to guards and tracing, and what it evaluated."""
    frames = [frame for error in errors for frame in frames_of(error)]
    for frame in reversed(frames):
        place = f"{frame.path.rpartition('site-packages/')[2]}:{frame.function}"
        place = frame.function if frame.path == __file__ else place
        if place == expected["function"] and evaluates(frame, expected["evaluated"]):
            return {"function": place, "evaluated": expected["evaluated"]}
        if place == expected["function"] or not place.startswith(internal):
            lines = linecache.getlines(frame.path)[frame.start[0] - 1 : frame.stop[0]]
            return {"function": place, "evaluated": " ".join("".join(lines).split())}
    return {"function": "an unknown place"}


def frames_of(error: BaseException) -> list[Frame]:
    """The frames of an exception, outermost first. If dynamo interprets code, the frame of that code follows
    dynamo's.
    """
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        spans = list(code.co_positions()) if hasattr(code, "co_positions") else []
        frames.append(frame_of(code, trace.tb_lineno, spans[trace.tb_lasti // 2] if spans else None))
        if code.co_name == "step" and code.co_filename.endswith("symbolic_convert.py"):
            traced = trace.tb_frame.f_locals["self"]
            frames.append(frame_of(traced.f_code, traced.lineno, traced.current_instruction.positions))
        trace = trace.tb_next
    return frames


def frame_of(code: CodeType, line: int, span: Any) -> Frame:
    """The frame of code at a line and, from Python 3.11 on, at a span: line, end line, column, end column."""
    first, last, left, right = (line, line, 0, 10**6) if span is None or None in tuple(span) else span
    # A comprehension counts as its function, of which it is a part from Python 3.12 on, and so does a lambda.
    name = re.sub(r"(\.<locals>\.<\w+>)+$", "", getattr(code, "co_qualname", code.co_name))
    return Frame(code.co_filename, name.rpartition(".")[2], (first, left), (last, right))


def evaluates(frame: Frame, expression: str) -> bool:
    """Whether the code that was running in a frame is the expression (or method, `.name`), contains it, or is
    part of it.
    """
    for node in ast.walk(ast.parse("".join(linecache.getlines(frame.path)))):
        at: Any = node
        if hasattr(node, "lineno") and (at.lineno, at.col_offset) < frame.stop:
            text = ast.unparse(node) if frame.start < (at.end_lineno, at.end_col_offset) else ""
            if text == expression or (expression.startswith(".") and text.endswith(expression)):
                return True
    return False
