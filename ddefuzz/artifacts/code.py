"""Reads the code that inductor generates: assertions, kernels, and calls that are left to an eager op."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

_ASSERTS = re.compile(r"\s*if not \(.+\):$")
_RAISES = re.compile(r"\s*raise (?:RuntimeError|AssertionError)\(")
_GENERATED = re.compile(r"^\s+(cpp_fused\w*|triton_\w+)(?:\.run)?\(")
_EXTERN = re.compile(r"\b(extern_kernels\.\w+)\(")
_FALLBACK = re.compile(r"\b(torch\.ops\.[\w.]+)\(|aoti_torch_\w*_(\w+)\(")
_LOADED = re.compile(r"\bat::vec::Vectorized<")
_COMMENT = re.compile(r"^\s*#")
_BODY = re.compile(r"^\s+def call\(|^def call\(")
_END = re.compile(r"^\S")
_NUMBER = re.compile(r"_\d+$")


class Kernels(NamedTuple):
    """The kernels that the code of inductor calls, with how often each is called.

    `generated` are those that inductor wrote, `extern` calls of libraries (`extern_kernels.mm`), and `fallback` the
    eager ops that it calls because it has no code of its own for them (`torch.ops.aten.sort.stable`). `vectorized` says
    how many lines of C++ use vectors.
    """

    generated: dict[str, int]
    extern: dict[str, int]
    fallback: dict[str, int]
    vectorized: int

    @property
    def number(self) -> int:
        """All calls."""
        return sum(sum(kind.values()) for kind in (self.generated, self.extern, self.fallback))


def assertions_in_code(text: str) -> tuple[int, ...]:
    """The lines that check a condition: `if not (u0 >= 0):` with a line that raises."""
    lines = list(enumerate(text.splitlines(), 1))
    return tuple(
        number
        for (number, line), (_, following) in pairwise(lines)
        if _ASSERTS.match(line) and _RAISES.match(following)
    )


def kernels_in(text: str) -> Kernels:
    """The kernels that the function `call` of the code calls, by name. Names of generated kernels lose their number."""
    generated: Counter[str] = Counter()
    extern: Counter[str] = Counter()
    fallback: Counter[str] = Counter()
    inside = False
    for line in text.splitlines():
        if _BODY.match(line):
            inside = True
        elif inside and _END.match(line):
            inside = False
        if not inside or _COMMENT.match(line):
            continue
        generated.update(_NUMBER.sub("", name) for name in _GENERATED.findall(line))
        extern.update(_EXTERN.findall(line))
        fallback.update(first or second for first, second in _FALLBACK.findall(line))
    return Kernels(dict(generated), dict(extern), dict(fallback), len(_LOADED.findall(text)))
