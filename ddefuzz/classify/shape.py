"""The shape of a symbolic expression: what stays the same when symbols and sizes have other names and values."""

from __future__ import annotations

import re

_SYMBOL_OR_NUMBER = re.compile(r"[a-z]+\d+|\d+(?:\.\d+)?")
_KEPT = frozenset({"0", "1"})


def expression_shape(expression: str) -> str:
    """`Eq(u3*7, u0)` as `Eq(a*n, b)`: symbols by order of appearance, numbers but 0 and 1 as `n`."""
    names: dict[str, str] = {}

    def plain(match: re.Match[str]) -> str:
        text = match[0]
        if text[0].isdigit():
            return text if text in _KEPT else "n"
        return names.setdefault(text, f"x{len(names)}")

    return _SYMBOL_OR_NUMBER.sub(plain, expression)
