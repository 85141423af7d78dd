"""PyTorch's rule that a size that is 1 only at run time does not broadcast, recognized by the form of an assertion."""

from __future__ import annotations

from collections.abc import Mapping

from ddefuzz.instrument.truth import Number, addends, clauses, sides, value_at


def is_broadcast_of_1(assertion: str, symbols: Mapping[str, int]) -> bool:
    """Whether an assertion that is not true at these sizes follows that rule.

    One of its clauses states that two sizes are equal, and exactly one of them is 1.
    """
    for clause in clauses(assertion):
        pair = sides(clause)
        values = [value_at(side, symbols) for side in pair] if pair is not None else []
        shifts = {0, *(shift for side in pair or () for shift in addends(side))}
        if len(values) == 2 and None not in values and any(_one_is_1(values, shift) for shift in shifts):
            return True
    return False


def _one_is_1(values: list[Number | None], shift: int) -> bool:
    """Whether just one of two sizes is 1. sympy may have moved a term: `u0 - 1 == n` prints as `u0 == n + 1`."""
    return (values[0] == 1 + shift) != (values[1] == 1 + shift)
