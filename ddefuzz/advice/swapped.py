"""Run functions with other source, without loading their module again: the code of live functions is exchanged."""

from __future__ import annotations

import ast
import gc
import linecache
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType

from ddefuzz.advice.model import ChangedFile


@contextmanager
def swapped(files: Sequence[ChangedFile]) -> Iterator[None]:
    """Functions of these files run their changed source inside of this context."""
    with ExitStack() as stack:
        for one in files:
            stack.enter_context(_swapped(one))
        yield


@contextmanager
def _swapped(file: ChangedFile) -> Iterator[None]:
    functions = _functions_of(file.path)
    names = {function.__code__.co_filename for function in functions}
    kept_lines = {name: linecache.cache.get(name) for name in names}
    kept = [(function, function.__code__) for function in functions]
    try:
        for name in names:
            lines = file.after.splitlines(keepends=True)
            linecache.cache[name] = (len(file.after), None, lines, name)
        for function in functions:
            _exchange(function, file)
        yield
    finally:
        for function, code in kept:
            function.__code__ = code
        for name, lines_before in kept_lines.items():
            if lines_before is None:
                linecache.cache.pop(name, None)
            else:
                linecache.cache[name] = lines_before


def _exchange(function: FunctionType, file: ChangedFile) -> None:
    code = function.__code__
    new = _pairs(file.before, file.after, code.co_filename).get((code.co_qualname, code.co_firstlineno))
    if new is None or len(new.co_freevars) != len(code.co_freevars):
        return
    function.__code__ = new
    for statement in _new_imports(file.before, file.after):
        exec(statement, function.__globals__)


@lru_cache(maxsize=8)
def _pairs(before: str, after: str, name: str) -> dict[tuple[str, int], CodeType]:
    """The changed code of each function, by the qualified name and first line that it has before."""
    old, new = (
        _by_name(compile(before, name, "exec", dont_inherit=True)),
        _by_name(compile(after, name, "exec", dont_inherit=True)),
    )
    return {
        (name, one.co_firstlineno): other
        for name, codes in old.items()
        for one, other in zip(codes, new.get(name, []), strict=False)
    }


def _by_name(code: CodeType) -> dict[str, list[CodeType]]:
    found: dict[str, list[CodeType]] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.setdefault(constant.co_qualname, []).append(constant)
            for name, codes in _by_name(constant).items():
                found.setdefault(name, []).extend(codes)
    return found


@lru_cache(maxsize=8)
def _new_imports(before: str, after: str) -> tuple[str, ...]:
    """The imports of a module that its changed source has in addition."""
    old, new = (
        [ast.unparse(node) for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
        for text in (before, after)
    )
    return tuple(one for one in new if one not in old)


def _functions_of(path: str) -> list[FunctionType]:
    """The live functions that a file defines."""
    wanted = _resolved(path)
    return [
        one for one in gc.get_objects() if type(one) is FunctionType and _resolved(one.__code__.co_filename) == wanted
    ]


@lru_cache(maxsize=65536)
def _resolved(path: str) -> str:
    return str(Path(path).resolve()) if path.endswith(".py") else path
