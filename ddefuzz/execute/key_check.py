"""Checks the key function that a target names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ddefuzz.errors import InputError
from ddefuzz.execute.key_process import key_function
from ddefuzz.keys.case import KINDS, Kind
from ddefuzz.keys.options import Options
from ddefuzz.keys.properties import PROPERTIES, Checked, Property, check


def checked(target: str, options: Options, examples: int, names: Sequence[str], tell: Callable[..., None]) -> Checked:
    """Every property of the function. `tell` gets the progress. Raises InputError for a target that has none."""
    wrong = next((name for name in names if name not in KINDS), None)
    if wrong is not None:
        raise InputError(f"--kind: found {wrong!r}, expected one of {', '.join(KINDS)}")
    kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if not names or kind in names)
    found: list[Property] = []
    for one in check(key_function(target, options), examples, kinds):
        found.append(one)
        tell(f"{len(found)} of {len(PROPERTIES)} properties", is_last=len(found) == len(PROPERTIES))
    return Checked(target, options, str(torch.__version__), tuple(found))
