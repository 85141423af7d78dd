"""ddefuzz: find framework data-dependent errors in PyTorch before its users do.

The public names are those of `__all__` (docs/api.md). Each is imported when it is first used.
"""

from __future__ import annotations

import random
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddefuzz import strategies
    from ddefuzz.api import (
        Database,
        Finding,
        KeyReport,
        OpReport,
        Report,
        Summary,
        assert_captures,
        check,
        check_key,
        check_op,
        open_database,
        run,
    )

__version__ = "0.1.0"

__all__ = [
    "Database",
    "Finding",
    "KeyReport",
    "OpReport",
    "Report",
    "Summary",
    "assert_captures",
    "check",
    "check_key",
    "check_op",
    "open_database",
    "run",
    "strategies",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'ddefuzz' has no attribute {name!r}")
        state = random.getstate()  # importing rich draws
        try:
            # Importing a module of the package makes it an attribute.
            if name == "strategies":
                return import_module("ddefuzz.strategies")
            return getattr(import_module("ddefuzz.api"), name)
        finally:
            random.setstate(state)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
