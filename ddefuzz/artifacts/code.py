"""Reads the code that inductor generates: assertions."""

from __future__ import annotations

import re
from itertools import pairwise

_ASSERTS = re.compile(r"\s*if not \(.+\):$")
_RAISES = re.compile(r"\s*raise (?:RuntimeError|AssertionError)\(")


def assertions_in_code(text: str) -> tuple[int, ...]:
    """The lines that check a condition: `if not (u0 >= 0):` with a line that raises."""
    lines = list(enumerate(text.splitlines(), 1))
    return tuple(
        number
        for (number, line), (_, following) in pairwise(lines)
        if _ASSERTS.match(line) and _RAISES.match(following)
    )
