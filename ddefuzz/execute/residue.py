"""Removes what a run leaves in torch that dynamo's `reset` does not drop.

A ShapeEnv keeps its fake inputs, which keep it through C++, where the garbage collector cannot see it. Functions with
an `lru_cache` keep the ShapeEnvs of their arguments. Graphs stay in the globals of the code that was compiled (dynamo
removes them with that code, and strict export never), and the source of each graph is kept for tracebacks.

User code may leave modes on, and so does non-strict export of transforms of torch.func.
"""

from __future__ import annotations

import linecache
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

import torch

from ddefuzz.instrument import torch_api
from ddefuzz.instrument.disguise import disguised


@contextmanager
def unwound() -> Iterator[None]:
    """Leave the modes that the code in the block leaves on, at its end: those of dispatch and functions, the default
    device, the transforms of torch.func, autocast, gradients and inference mode. In the block, gradients are on.
    """
    dispatch, function = (torch_api.bound(row) for row in (torch_api.DISPATCH_MODES, torch_api.FUNCTION_MODES))
    device, current = torch_api.DEFAULT_DEVICE.get(), torch_api.CURRENT_DEVICE
    before, on, context = dispatch(), function(), getattr(device, "device_context", None)
    place, depth = current.get(), torch_api.bound(torch_api.FUNCTORCH_DEPTH)()
    autocast = torch.is_autocast_enabled("cpu")
    with torch.inference_mode(mode=False):  # it restores the modes of gradients and inference, whatever they are then
        try:
            yield
        finally:
            torch_api.bound(torch_api.FUNCTORCH_UNDO)(depth)
            for mode in reversed(dispatch()):
                if not any(mode is one for one in before):
                    kind = torch_api.FAKE_MODE.get()
                    kind = kind if isinstance(mode, kind) else torch_api.DISPATCH_MODE.get()
                    with suppress(Exception):  # the mode is the user's
                        kind.__exit__(mode, None, None, None)
            for _ in function():
                torch_api.bound(torch_api.POP_FUNCTION_MODE)()
            for mode in on:
                torch_api.bound(torch_api.PUSH_FUNCTION_MODE)(mode)
            device.device_context = context
            setattr(current.owner(), current.name, place)
            torch.set_autocast_enabled("cpu", autocast)


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
