"""Parsing Python in one thread at a time."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, Final, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_PARSING: Final = Lock()


def _one_at_a_time(function: Function) -> Function:
    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        with _PARSING:
            return function(*given, **named)

    return called  # type: ignore[return-value]


parse: Final = _one_at_a_time(ast.parse)
"""`ast.parse`. In two threads at once it may raise SystemError in CPython 3.11 ("AST constructor recursion depth
mismatch"): both count their depth in one place. The pages of the dashboard run in threads.
"""
