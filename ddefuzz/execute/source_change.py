"""Runs with a changed file of torch or of the user, in this process only.

Nothing is written, and no module is loaded again. The existing function objects get the code of the changed source, and
later their own code again. Decorators and registries hold the same function objects, so they need not run again.
"""

from __future__ import annotations

import ast
import gc
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from types import CodeType, FunctionType
from typing import Any

import torch

from ddefuzz.errors import InputError
from ddefuzz.execute.observe import observe, observe_in
from ddefuzz.execute.prepared import Prepared
from ddefuzz.execute.protocol import Observation, PatchedRun
from ddefuzz.execute.stages import Capture
from ddefuzz.execute.subject import prepare
from ddefuzz.files import read_text, real_path
from ddefuzz.instrument import torch_api


@contextmanager
def exchanged(path: str, before: str, after: str) -> Iterator[int]:
    """Run functions of the file with the source `after` in place of `before`. Yields their number."""
    functions = _functions(path)
    names = {function.__code__.co_filename for function in functions}
    lines = {name: linecache.cache.get(name) for name in names}
    kept = [(function, function.__code__) for function in functions]
    try:
        for name in names:
            linecache.cache[name] = (len(after), None, after.splitlines(keepends=True), name)
        yield sum(_exchange(function, before, after) for function in functions)
    finally:
        for function, code in kept:
            function.__code__ = code
        for name, known in lines.items():
            linecache.cache.pop(name, None)
            if known is not None:
                linecache.cache[name] = known


def _exchange(function: FunctionType, before: str, after: str) -> bool:
    code = function.__code__
    new = _pairs(before, after, code.co_filename).get((code.co_qualname, code.co_firstlineno))
    if new is None or len(new.co_freevars) != len(code.co_freevars):
        return False
    function.__code__ = new
    for statement in _new_imports(before, after):
        exec(statement, function.__globals__)
    return True


@lru_cache(maxsize=16)
def _pairs(before: str, after: str, name: str) -> dict[tuple[str, int], CodeType]:
    """The changed code of each function, by the qualified name and first line that it has before.

    A name whose number of functions changes is left out: which of its lambdas is new is not known.
    """
    old, new = (_by_name(compile(text, name, "exec", dont_inherit=True)) for text in (before, after))
    return {
        (qualified, one.co_firstlineno): other
        for qualified, codes in old.items()
        if len(codes) == len(new.get(qualified, ()))
        for one, other in zip(codes, new[qualified], strict=True)
    }


def _by_name(code: CodeType) -> dict[str, list[CodeType]]:
    found: dict[str, list[CodeType]] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.setdefault(constant.co_qualname, []).append(constant)
            for name, codes in _by_name(constant).items():
                found.setdefault(name, []).extend(codes)
    return found


@lru_cache(maxsize=16)
def _new_imports(before: str, after: str) -> tuple[str, ...]:
    old, new = (
        [ast.unparse(node) for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
        for text in (before, after)
    )
    return tuple(one for one in new if one not in old)


def _functions(path: str) -> list[FunctionType]:
    torch_files = str(torch_api.torch_parent() / "torch")
    return _functions_of_torch(path) if path.startswith(torch_files) else _live(path)


@cache
def _functions_of_torch(path: str) -> list[FunctionType]:
    """The functions of a file of torch, found once per process."""
    gc.unfreeze()  # the fork server froze what it imported, which hides it
    found = _live(path)
    gc.freeze()
    return found


def _live(path: str) -> list[FunctionType]:
    wanted = _resolved(path)
    return [
        one for one in gc.get_objects() if type(one) is FunctionType and _resolved(one.__code__.co_filename) == wanted
    ]


@lru_cache(maxsize=65536)
def _resolved(path: str) -> str:
    return str(real_path(path)) if path.endswith(".py") else path


def observe_patched(task: PatchedRun) -> Observation:
    """Do a run with a change of torch, as a task of a worker."""
    if not task.eager:
        with patched(task.file, task.source):
            return observe(task.run)

    def stage(_prepared: Prepared) -> Capture:
        def with_change(fresh: Prepared) -> Any:
            with patched(task.file, task.source):
                return fresh.call(*fresh.args, **fresh.kwargs)

        graph = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
        return Capture(
            graph, with_change, lambda fresh: fresh.call(*fresh.args, **fresh.kwargs), lambda _fresh: None, lambda: 1
        )

    return observe_in(stage, lambda: prepare(task.run.subject), task.run)


@contextmanager
def patched(file: str, source: str) -> Iterator[None]:
    """Run with the text `source` in place of a file of torch, named as in frames (`torch/_refs/__init__.py`)."""
    path = torch_api.torch_parent() / file
    with exchanged(str(path), read_text(path), source) as count:
        if not count:
            raise InputError(f"{file}: found no function of it in this process, expected a module that torch imports")
        yield
