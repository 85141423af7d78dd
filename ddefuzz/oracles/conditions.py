"""The conditions of run-time assertions: wrong ones in the forms of a captured program (by their places, their number,
their messages), and PyTorch's rule that a size that is 1 only at run time does not broadcast.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ddefuzz.execute.calls import Call
from ddefuzz.execute.protocol import Form, Observation
from ddefuzz.instrument.truth import Number, addends, clauses, parsed, sides, value_at
from ddefuzz.program.model import Program

_SYMBOL = re.compile(r"[us]\d+")
_NUMBER = re.compile(r"(?<![us\d])\d+")


def late(observation: Observation) -> Iterator[tuple[Form, str]]:
    """Conditions that come after an op that uses the sizes that they check.

    User code may check a size after it used it. So a condition is not late if the user's code made it in such a place.
    """
    own = {one.message for form in observation.forms for one in form.assertions if one.own and one.after}
    for form in observation.forms:
        if form.name == "generated" and own:  # its messages are other ones
            continue
        for one in form.assertions:
            if one.after and one.message not in own:
                yield form, one.condition


def repeated(observation: Observation) -> Iterator[tuple[Form, str]]:
    """Conditions that are checked more than once. User code may check a condition more than once."""
    own = {one.message for form in observation.forms for one in form.assertions if one.own}
    for form in observation.forms:
        users = {turned(one.condition) for one in form.assertions if one.message in own}
        others = [turned(one.condition) for one in form.assertions if one.message not in own]
        for condition, times in Counter([*users, *others]).items():
            if times > 1:
                yield form, condition


def turned(condition: str) -> str:
    """A comparison with its sides in one order: `u0 >= 2` for `2 <= u0`."""
    match parsed(condition):
        case ast.Compare(left, [ast.LtE() | ast.Lt() as less], [right]):
            more = ast.GtE() if isinstance(less, ast.LtE) else ast.Gt()
            return ast.unparse(ast.Compare(right, [more], [left]))
        case None:
            return condition
        case tree:
            return ast.unparse(tree)


def hidden(observation: Observation) -> Iterator[tuple[Form, str]]:
    """Conditions of the user's `torch._check` whose message a form does not have, or hides: an assertion before it
    fails for the same sizes and says something else.
    """
    for constraint in observation.constraints:
        if not constraint.message:
            continue
        for form in observation.forms:
            messages = [one.message for one in form.assertions]
            place = messages.index(constraint.message) if constraint.message in messages else None
            before = form.assertions[:place] if place is not None else ()
            if place is None or any(same_condition(one.condition, constraint.text) for one in before):
                yield form, constraint.text
                break


def same_condition(one: str, other: str) -> bool:
    """Whether two conditions on the same single symbol are true for the same values.

    Comparisons change their truth next to their numbers only: these are tried.
    """
    symbols = {*_SYMBOL.findall(one), *_SYMBOL.findall(other)}
    if len(symbols) != 1:
        return False
    (symbol,) = symbols
    numbers = {int(number) for text in (one, other) for number in _NUMBER.findall(text)}
    values = {number + step for number in numbers for step in (-1, 0, 1)} | {-1, 0, 1}
    pairs = [(value_at(one, {symbol: value}), value_at(other, {symbol: value})) for value in values]
    return all(left is not None and left == right for left, right in pairs)


_GUARD_OF_DYNAMO = re.compile(
    r"Guard failed on the same frame it was created\b.*?"
    r"\bargs\[(\d+)\]\.size\(\)\[(\d+)\] == args\[(\d+)\]\.size\(\)\[(\d+)\]",
    re.DOTALL,
)
"""What dynamo says of two sizes, if inputs do not fit their own capture (torch/_dynamo/guards.py)."""

_MODULO = re.compile(r"(Python)?Mod\(")
"""A remainder, as torch prints it."""


def accepted(call: Call) -> bool:
    """Whether a rejection by the captured program follows that rule. A range may follow from an assertion."""
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
