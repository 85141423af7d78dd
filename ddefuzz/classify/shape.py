"""The shape of a symbolic expression: the expression with symbols and sizes renamed, for comparing two of them."""

from __future__ import annotations

import re

_SYMBOL_OR_NUMBER = re.compile(r"[a-z]+\d+|\d+(?:\.\d+)?")
_KEPT = frozenset({"0", "1"})


def expression_shape(expression: str) -> str:
    """`Eq(u3*7, u0)` as `Eq(a*n, b)`: symbols are named by order of appearance, and numbers other than 0 and 1
    become `n`.
    """
    names: dict[str, str] = {}

    def plain(match: re.Match[str]) -> str:
        text = match[0]
        if text[0].isdigit():
            return text if text in _KEPT else "n"
        return names.setdefault(text, f"x{len(names)}")

    return _SYMBOL_OR_NUMBER.sub(plain, expression)
