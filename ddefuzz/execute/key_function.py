"""Finds the key function that MODULE:FUNCTION or FILE:FUNCTION names. The module is executed."""

from __future__ import annotations

from ddefuzz.errors import InputError
from ddefuzz.execute.user_code import load_module
from ddefuzz.keys.violation import AnyKey


def load_key(target: str) -> AnyKey:
    """The key function. Raises InputError if there is none."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise InputError(f"found {target!r}, expected MODULE:FUNCTION or FILE:FUNCTION")
    module = load_module(place)
    function = getattr(module, name, None)
    if not callable(function):
        found = f"{type(function).__name__}" if hasattr(module, name) else "no such name"
        raise InputError(f"{target}: found {found}, expected a function of one tensor that returns its key")
    made: AnyKey = function
    return made
