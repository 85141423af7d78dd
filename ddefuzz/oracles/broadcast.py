"""PyTorch's rule that a size that is 1 only at run time does not broadcast, recognized by the form of an assertion."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddefuzz.execute.calls import Call
from ddefuzz.instrument.truth import Number, addends, clauses, sides, value_at
from ddefuzz.program.model import Program

_GUARD_OF_DYNAMO = re.compile(
    r"Guard failed on the same frame it was created\b.*?"
    r"\bargs\[(\d+)\]\.size\(\)\[(\d+)\] == args\[(\d+)\]\.size\(\)\[(\d+)\]",
    re.DOTALL,
)
"""What dynamo says if the inputs do not fit the capture that was made with them (torch/_dynamo/guards.py), about two
sizes of inputs.
"""

_MODULO = re.compile(r"(Python)?Mod\(")
"""A remainder, as torch prints it."""


def accepted(call: Call) -> bool:
    """Whether a rejection by the captured program follows that rule. A range may follow from the assertion that says
    so.
    """
    reasons = filter(None, (call.captured.expression, call.captured.follows))
    return any(is_broadcast_of_1(reason, dict(call.symbols)) for reason in reasons)


def is_refused_example(message: str, program: Program) -> bool:
    """Whether dynamo refuses the example itself by that rule, before the captured program runs."""
    found = _GUARD_OF_DYNAMO.search(message)
    if found is None:
        return False
    places = [(int(arg), int(dim)) for arg, dim in (found.groups()[:2], found.groups()[2:])]
    if any(arg >= len(program.inputs) or dim >= len(program.inputs[arg].shape) for arg, dim in places):
        return False
    dims = [program.inputs[arg].shape[dim] for arg, dim in places]
    ones = [dim.size == 1 and dim.symbol is not None for dim in dims]
    return ones[0] != ones[1] and dims[0].size != dims[1].size


def is_broadcast_of_1(assertion: str, symbols: Mapping[str, int]) -> bool:
    """Whether an assertion that is not true at these sizes follows that rule.

    One of its clauses states that two sizes are equal, and exactly one of them is 1. That one has a symbol: a size
    that is 1 in the capture broadcasts, so an assertion that another size is the number 1 does not follow the rule.
    """
    for clause in clauses(assertion):
        pair = sides(clause)
        values = [value_at(side, symbols) for side in pair] if pair is not None else []
        if pair is None or None in values or _is_divisibility(pair):
            continue
        known = [value_at(side, {}) is not None for side in pair]
        if any(_one_is_1(values, known, shift) for shift in {0, *addends(pair[0]), *addends(pair[1])}):
            return True
    return False


def _is_divisibility(pair: tuple[str, str]) -> bool:
    """Whether an equation says that one number divides another: `Eq(Mod(n, u0), 0)`. Its sides are no sizes."""
    return any(_MODULO.match(one) and other == "0" for one, other in (pair, pair[::-1]))


def _one_is_1(values: list[Number | None], known: list[bool], shift: int) -> bool:
    """Whether exactly one of two sizes is 1, and has a symbol (is not `known` in the capture). sympy may have moved a
    term: `u0 - 1 == n` prints as `u0 == n + 1`.
    """
    ones = [value == 1 + shift for value in values]
    return ones[0] != ones[1] and not known[ones.index(True)]
