"""The examples of torch's ExportDB, each as a factory: `ddefuzz check ddefuzz.checking.exportdb:NAME`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ddefuzz.instrument import torch_api


def names() -> tuple[str, ...]:
    """The names of all examples."""
    return tuple(torch_api.bound(torch_api.EXPORTDB)())


def __getattr__(name: str) -> Callable[[], dict[str, Any]]:
    examples = torch_api.bound(torch_api.EXPORTDB)()
    if name not in examples:
        raise AttributeError(name)
    example = examples[name]

    def factory() -> dict[str, Any]:
        return {
            "callable": copy.deepcopy(example.model),
            "args": copy.deepcopy(tuple(example.example_args)),
            "kwargs": copy.deepcopy(dict(example.example_kwargs)),
            "dynamic_shapes": example.dynamic_shapes,
        }

    return factory
