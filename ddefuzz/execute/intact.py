"""Detect and undo what user code does to ddefuzz in its worker: modules and functions that it removes or replaces."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from ddefuzz.errors import InputError

OWN = "ddefuzz"


@contextmanager
def kept_intact(path: str) -> Iterator[None]:
    """Run user code of the file `path`. Raises `InputError` if it removes or replaces a part of ddefuzz.

    What was removed is put back first. Otherwise the worker could not even report it.
    """
    modules = dict(sys.modules)
    own = {name: module for name, module in modules.items() if name.partition(".")[0] == OWN}
    functions = {name: _functions(module) for name, module in own.items()}
    try:
        yield
    finally:
        harmed = [name for name, module in own.items() if sys.modules.get(name) is not module]
        if harmed:
            sys.modules.update(modules)
        for name, module in own.items():
            now = vars(module)
            replaced = [key for key, function in functions[name].items() if now.get(key) is not function]
            now.update((key, functions[name][key]) for key in replaced)
            harmed += [f"{name}.{key}" for key in replaced]
        if harmed:
            raise InputError(
                f"{path}: found code that removes or replaces {min(harmed)} in its worker, "
                "expected code that leaves ddefuzz as it is"
            )


def _functions(module: ModuleType) -> dict[str, object]:
    """The module's own functions and classes. Names with two underscores are dynamo's: it compiles into a module, and
    removes that again.
    """
    return {key: value for key, value in vars(module).items() if callable(value) and not key.startswith("__")}
