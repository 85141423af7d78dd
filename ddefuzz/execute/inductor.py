"""Inductor without the C++ compiler: lowering, scheduling and code generation, without its caches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from ddefuzz.instrument import torch_api

_SETTINGS: dict[str, Any] = {
    # A graph that was seen before would be taken from memory or disk, without evaluating its guards.
    torch_api.NO_INDUCTOR_CACHES.key: True,
    # Whether the machine has vector instructions is tried by compiling a file. No guard depends on it.
    torch_api.VECTOR_ISA.key: True,
    torch_api.COMPILE_THREADS.key: 1,
}


@contextmanager
def code_only(code: list[str]) -> Iterator[None]:
    """Let inductor generate its code, and replace the loading of that code by a module that cannot be called.

    Its Python part is added to `code`. The C++ compiler runs when that module is loaded: 9 s per program. Files that
    inductor writes go to a temporary folder that is removed afterwards.
    """
    loading, vectors = torch_api.INDUCTOR_LOADING, torch_api.INDUCTOR_TRIES_VECTORS

    def loaded(graph: Any, wrapper_code: Any) -> Any:
        # What `GraphLowering._compile_to_module_lines` returns, without a file.
        code.append(str(wrapper_code.value))
        graph.cache_key, graph.cache_path, graph.cache_linemap = "", "", []
        return SimpleNamespace(__file__="", call=not_compiled)

    with ExitStack() as stack:
        stack.enter_context(torch_api.bound(torch_api.INDUCTOR_FRESH_CACHE)())
        stack.enter_context(torch_api.bound(torch_api.INDUCTOR_CONFIG)(_SETTINGS))
        stack.enter_context(mock.patch.object(loading.owner(), loading.name, loaded))
        stack.enter_context(mock.patch.object(vectors.owner(), vectors.name, lambda *_: False))
        yield


@contextmanager
def whole(code: list[str]) -> Iterator[None]:
    """Let inductor compile its code, without caches from earlier programs. The files stay until the process ends: the
    code is called later. Its Python part is added to `code`.
    """
    loading = torch_api.INDUCTOR_LOADING
    load = torch_api.bound(loading)

    def keep(graph: Any, wrapper_code: Any) -> Any:
        code.append(str(wrapper_code.value))
        return load(graph, wrapper_code)

    with (
        torch_api.bound(torch_api.INDUCTOR_CONFIG)(_SETTINGS | {torch_api.VECTOR_ISA.key: None}),
        mock.patch.object(loading.owner(), loading.name, keep),
    ):
        yield


def not_compiled(*_: Any) -> Any:
    """Stands for code that was not compiled."""
    raise NotImplementedError("the inductor stage ends before the C++ compiler")
