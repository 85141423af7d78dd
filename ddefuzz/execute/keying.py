"""Runs a case of a key function: whether its tensors violate the property."""

from __future__ import annotations

from ddefuzz.execute.key_process import key_function
from ddefuzz.execute.keyed import Keyed
from ddefuzz.keys.case import check_trust, parse_key
from ddefuzz.keys.definition import defined
from ddefuzz.keys.properties import violation


def keyed(text: str, *, trust: bool) -> Keyed:
    """What the key function of a case does. Raises InputError if there is no such function, or it needs `trust`."""
    check_trust(text, trust=trust)
    case = parse_key(text, "<key>")
    function = key_function(case.function, case.options)
    place = defined(function.key, case.function)
    found = violation(case.violates, function, case.tensors)
    if found is None:
        return Keyed(case.violates, place)
    return Keyed(case.violates, place, found.why, found.part, found.tensors, found.keys, found.asked)
