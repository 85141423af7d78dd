"""Words for people: a guard's expression, what an exception means, and lines that are cut to fit a title."""

from __future__ import annotations

import re

MOST = 72
"""The maximum number of characters of an expression or a message in a title."""

COMPARISONS = {"Eq": "==", "Ne": "!="}
"""How sympy prints comparisons as functions, and the operator in Python."""

FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

_NUMBER_FIRST = re.compile(r"(-?\d+) (<|<=|>|>=) ([^<>=&|]+)")
_COMPARISON = re.compile(r"(\w+)\((.*)\)")
_END = re.compile(r"[\s,&|)]+(?=\S)")
"""Where an expression or a message may be cut."""


def question(expression: str) -> str:
    """A guard's expression for people. `Eq(u1, 0)` becomes `u1 == 0`. Symbols keep the names of torch's
    message. Long expressions are cut.
    """
    return shortened(_compared(expression))


def _compared(expression: str) -> str:
    """The outermost comparison as Python writes it, with a number on its right."""
    flipped = _NUMBER_FIRST.fullmatch(expression)
    if flipped is not None:
        return f"{flipped[3]} {FLIPPED[flipped[2]]} {flipped[1]}"
    match = _COMPARISON.fullmatch(expression)
    operator = COMPARISONS.get(match[1]) if match else None
    if match is None or operator is None:
        return expression
    depth, commas = 0, []
    for at, char in enumerate(match[2]):
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return expression  # `Eq(…) | Eq(…)`
        if char == "," and depth == 0:
            commas.append(at)
    if len(commas) != 1:
        return expression
    return f"{match[2][: commas[0]].strip()} {operator} {match[2][commas[0] + 1 :].strip()}"


def shortened(text: str) -> str:
    """One line of at most `MOST` characters, cut at the end of a word or a term."""
    line = " ".join(text.split())
    if len(line) <= MOST:
        return line
    ends = [match.start() for match in _END.finditer(line, 0, MOST) if match.start() > MOST // 2]
    return f"{line[: ends[-1] if ends else MOST - 2].rstrip()} …"
