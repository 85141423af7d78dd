"""Runs with a changed file of torch, in this process only: nothing is written.

The functions of the file that exist get the code of the changed text, and get their own back afterwards. So
decorators and registries, which hold the same functions, need not run again.
"""

from __future__ import annotations

import gc
import linecache
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import torch

from ddefuzz.errors import InputError
from ddefuzz.execute.observe import observe, observe_in
from ddefuzz.execute.prepared import Prepared
from ddefuzz.execute.protocol import Observation, PatchedRun
from ddefuzz.execute.stages import Capture
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api


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
    path = str(torch_api.torch_parent() / file)
    new = _codes(source, path)
    changed: list[tuple[FunctionType, CodeType]] = []
    text = linecache.cache.get(path)
    try:
        for function, position in _functions(path):
            code = new.get(position)
            if code is not None and len(code.co_freevars) == len(function.__code__.co_freevars):
                changed.append((function, function.__code__))
                function.__code__ = code
        if not changed:
            raise InputError(f"{file}: found no function of it in this process, expected a module that torch imports")
        linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
        yield
    finally:
        for function, code in changed:
            function.__code__ = code
        linecache.cache.pop(path, None)
        if text is not None:
            linecache.cache[path] = text


class _Position(NamedTuple):
    """Which function of a file: its qualified name, and its place among those of this name."""

    name: str
    number: int


@lru_cache(maxsize=16)
def _codes(source: str, path: str) -> dict[_Position, CodeType]:
    """The code of each function of a text. Lambdas are left out: a change may add one."""
    found: dict[_Position, CodeType] = {}
    counts: dict[str, int] = defaultdict(int)

    def walk(code: CodeType) -> None:
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                if "<lambda>" not in inner.co_qualname:
                    found[_Position(inner.co_qualname, counts[inner.co_qualname])] = inner
                    counts[inner.co_qualname] += 1
                walk(inner)

    walk(compile(source, path, "exec", dont_inherit=True))
    return found


@cache
def _functions(path: str) -> list[tuple[FunctionType, _Position]]:
    """The functions of a file that exist in this process, with their position. Found once per process and file."""
    positions = {
        (code.co_qualname, code.co_firstlineno): position
        for position, code in _codes(Path(path).read_text(encoding="utf-8"), path).items()
    }
    found = []
    gc.unfreeze()  # the fork server froze what it imported, which hides it
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename == path:
            position = positions.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
            if position is not None:
                found.append((one, position))
    gc.freeze()
    return found
