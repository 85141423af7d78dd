"""A key function under test: what it is, how its keys and errors are shown, and the place that defines it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from inspect import unwrap
from types import CodeType
from typing import Any, Final, NamedTuple, TypeAlias

from ddefuzz.instrument.events import Frame
from ddefuzz.instrument.frames import frame_at
from ddefuzz.keys.case import Options, Tensors, TensorSpec, Violation

AnyKey: TypeAlias = Callable[[Any], Hashable]

SHOWN_KEY: Final = 300  # how many characters of a key are shown


class KeyFunction(NamedTuple):
    """A key function. `elsewhere` gives the texts of another process's keys, `options` say what a key distinguishes.

    `key` makes that of one tensor, `several` that of several arguments. It is None for a function of one argument.
    """

    key: AnyKey
    options: Options
    elsewhere: Callable[[Sequence[TensorSpec]], list[str]]
    several: Callable[..., Hashable] | None = None


def shown_key(key: object) -> str:
    """The text of a key, not too long."""
    try:
        return _short(repr(key))
    except BaseException as error:  # noqa: BLE001 the key is of the user's class
        return f"<{type(error).__name__} in __repr__>"


def error_line(error: BaseException) -> str:
    """The first line of an error, without the symbols that torch lists in any order."""
    try:
        text = str(error)
    except BaseException as failure:  # noqa: BLE001 the error is of the user's class
        text = f"<{type(failure).__name__} in __str__>"
    first = next(iter(text.strip().splitlines()), "").partition(" (Size-like symbols: ")[0]
    return _short(" ".join(f"{type(error).__name__}: {first}".split()))


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_KEY else f"{text[:SHOWN_KEY]}…"


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


def violation_of(tensors: Tensors, keys: Sequence[object], why: str, part: str = "") -> Violation:
    """The violation that these tensors show."""
    shown = tuple(key if isinstance(key, str) else shown_key(key) for key in keys)
    return Violation(tuple(one.text for one in tensors), shown, why, tensors, part=part)
