"""Checks the key function that a target names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

import torch

from ddefuzz.errors import InputError
from ddefuzz.keycheck.drawn import KINDS, Kind
from ddefuzz.keycheck.load import load_key
from ddefuzz.keycheck.properties import MEANINGS, Checked, Property, check
from ddefuzz.speckey.options import Options


def checked(target: str, options: Options, examples: int, names: Sequence[str], tell: Callable[..., None]) -> Checked:
    """Every property of the function. `tell` gets the progress. Raises InputError for a target that has none."""
    wrong = next((name for name in names if name not in get_args(Kind)), None)
    if wrong is not None:
        raise InputError(f"--kind: found {wrong!r}, expected one of {', '.join(KINDS)}")
    kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if not names or kind in names)
    key = load_key(target)
    found: list[Property] = []
    for one in check(target, key, options, examples, kinds):
        found.append(one)
        tell(f"{len(found)} of {len(MEANINGS)} properties", is_last=len(found) == len(MEANINGS))
    return Checked(target, options, str(torch.__version__), tuple(found))
