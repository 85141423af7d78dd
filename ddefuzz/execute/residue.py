"""Removes what a run leaves in torch that dynamo's `reset` does not drop.

A ShapeEnv keeps its fake inputs, which keep it through C++, where the garbage collector cannot see it. Functions with
an `lru_cache` keep the ShapeEnvs of their arguments. Graphs stay in the globals of the code that was compiled (dynamo
removes them with that code, and strict export never), and the source of each graph is kept for tracebacks.
"""

from __future__ import annotations

import linecache
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ddefuzz.instrument import torch_api
from ddefuzz.instrument.disguise import disguised


@contextmanager
def removed() -> Iterator[None]:
    """Remove what is left by the code in the block, at its end. Nothing that was captured in it may be used later."""
    environments: list[weakref.ref[Any]] = []
    installed: list[tuple[dict[str, Any], str]] = []
    make, install = torch_api.SHAPE_ENV_INIT, torch_api.INSTALL_GLOBAL
    with (
        patch.object(make.owner(), make.name, _noting(environments)),
        patch.object(install.owner(), install.name, staticmethod(_installing(installed))),
    ):
        yield
    for reference in environments:
        environment = reference()
        if environment is not None:
            environment.tracked_fakes = None
    for scope, name in installed:
        if name in scope:
            scope[name] = None  # the name stays: dynamo may still delete it
    for owner in (torch_api.SHAPE_ENV.get(), *(sys.modules[name] for name in torch_api.CACHING if name in sys.modules)):
        for value in tuple(vars(owner).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()
    sources = torch_api.GRAPH_SOURCES.get()
    for name in sources:
        linecache.cache.pop(name, None)
    sources.clear()


def _noting(environments: list[weakref.ref[Any]]) -> Callable[..., None]:
    original = torch_api.bound(torch_api.SHAPE_ENV_INIT)

    def ddefuzz_init(env: Any, *args: Any, **kwargs: Any) -> None:
        environments.append(weakref.ref(env))
        original(env, *args, **kwargs)

    return disguised(torch_api.SHAPE_ENV_INIT, ddefuzz_init)


def _installing(installed: list[tuple[dict[str, Any], str]]) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.INSTALL_GLOBAL)

    def ddefuzz_create(scope: dict[str, Any], name: str, value: Any) -> Any:
        installed.append((scope, name))
        return original(scope, name, value)

    return disguised(torch_api.INSTALL_GLOBAL, ddefuzz_create)
