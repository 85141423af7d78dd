"""Measures each kernel of the code that inductor makes of a subject. Runs in a worker."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from statistics import median
from types import ModuleType
from typing import Any

from ddefuzz.artifacts.model import Kernel
from ddefuzz.execute.preparation import PreparedSubject
from ddefuzz.execute.stages import inductor_to_call
from ddefuzz.instrument import torch_api

CALLS = 20
"""The calls of which the median counts, after a first one."""

_OWN = re.compile(r"cpp_fused\w*")
_LIBRARY = "extern_kernels"
"""The name by which the code calls kernels of libraries."""

Times = dict[str, list[float]]
"""The microseconds of all calls of a kernel, by its name."""


def time_kernels(prepared: PreparedSubject, make: Callable[[], PreparedSubject]) -> tuple[Kernel, ...]:
    """The kernels of the forward code, with the CPU microseconds of one call of the subject. What torch raises is
    raised. `make` makes the subject again, for calls.
    """
    times: Times = {}
    load = torch_api.bound(torch_api.INDUCTOR_LOADING)

    def timed(graph: Any, wrapper_code: Any) -> Any:
        module = load(graph, wrapper_code)
        _measure(module, times)
        return module

    with torch_api.INDUCTOR_LOADING.replaced(timed):
        capture = inductor_to_call(prepared)
    if capture is None:
        return ()
    rounds: list[Mapping[str, list[float]]] = []
    for number in range(CALLS + 1):
        times.clear()
        capture.compute(make())
        rounds += [dict(times)] if number else []
    return tuple(
        Kernel(name, len(calls), round(median(sum(one.get(name, ())) for one in rounds), 1))
        for name, calls in rounds[-1].items()
    )


def _measure(module: ModuleType, times: Times) -> None:
    """Let the kernels of generated code note their times."""
    names = vars(module)
    for name in [one for one in names if _OWN.fullmatch(one)]:
        names[name] = _timed(name, names[name], times)
    if _LIBRARY in names:
        names[_LIBRARY] = _Library(names[_LIBRARY], times)


class _Library:
    """The kernels of libraries, each of which notes its times."""

    def __init__(self, library: Any, times: Times) -> None:
        self._library, self._times = library, times

    def __getattr__(self, name: str) -> Any:
        return _timed(f"{_LIBRARY}.{name}", getattr(self._library, name), self._times)


def _timed(name: str, kernel: Callable[..., Any], times: Times) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        before = time.thread_time_ns()
        try:
            return kernel(*args, **kwargs)
        finally:
            times.setdefault(name, []).append((time.thread_time_ns() - before) / 1000)

    return call
