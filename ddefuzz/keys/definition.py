"""The source of a key function: where it is defined, and its line that raised."""

from __future__ import annotations

import linecache
from inspect import unwrap
from types import CodeType
from typing import Any

from ddefuzz.instrument.events import Frame
from ddefuzz.instrument.frames import display_file


def code_of(key: object) -> CodeType | None:
    """The code of a key function, of the function that it wraps, or of its class's `__call__`. None if C++ has it."""
    function: Any = unwrap(key) if callable(key) else key
    function = getattr(function, "func", function)
    made = function if hasattr(function, "__code__") else vars(type(function)).get("__call__")
    code = getattr(made, "__code__", None)
    return code if isinstance(code, CodeType) else None


def raising_line(code: CodeType | None, error: BaseException) -> Frame | None:
    """The line of the key function that raised."""
    traceback, line = error.__traceback__, None
    while traceback is not None:
        if traceback.tb_frame.f_code is code:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return None if line is None or code is None else frame_at(code, line)


def defined(key: object, target: str) -> Frame:
    """The definition of a key function."""
    code = code_of(key)
    module, _, name = target.rpartition(":")
    return frame_at(code, code.co_firstlineno) if code is not None else Frame(module, 0, name)


def frame_at(code: CodeType, line: int) -> Frame:
    text = linecache.getline(code.co_filename, line).strip()
    return Frame(display_file(code.co_filename), line, code.co_name, text)
