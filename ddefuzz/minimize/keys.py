"""Minimizes a case of a key function: simpler tensors that violate the same property in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from ddefuzz.keys.case import parse_key, print_key
from ddefuzz.keys.drawn import Tensors
from ddefuzz.keys.properties import PROPERTIES, smallest_of


class SmallestCase(NamedTuple):
    """The text of the smallest case, and how many cases were tried. `exhausted` says that the limit was reached."""

    text: str
    tensors: int
    attempts: int
    exhausted: bool


def smallest_case(text: str, accepts: Callable[[str], bool], max_attempts: int) -> SmallestCase:
    """The smallest case that `accepts` takes, with the tensors that the property's own simplifications make."""
    case, attempts = parse_key(text, "<key>"), 0

    def shows(tensors: Tensors) -> bool:
        nonlocal attempts
        if attempts >= max_attempts:
            return False
        attempts += 1
        return accepts(print_key(replace(case, tensors=tensors)))

    found = smallest_of(case.tensors, shows, PROPERTIES[case.violates].simpler)
    return SmallestCase(
        print_key(replace(case, tensors=found)), len(found), attempts, exhausted=attempts >= max_attempts
    )
