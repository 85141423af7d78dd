"""Find wrong assertions in the forms of a captured program: by their places, their number, their messages."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from ddefuzz.execute.forms import Form
from ddefuzz.execute.protocol import Observation
from ddefuzz.instrument.truth import parsed, value_at

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
