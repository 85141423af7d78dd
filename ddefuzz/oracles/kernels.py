"""Reads the code that inductor generates: the kernels that it calls, and how two versions of a program differ in them.

Its text goes into scripts, from the line of dashes on.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

# ---

_GENERATED = re.compile(r"^\s+(cpp_fused\w*|triton_\w+)(?:\.run)?\(")
_EXTERN = re.compile(r"\b(extern_kernels\.\w+)\(")
_FALLBACK = re.compile(r"\b(torch\.ops\.[\w.]+)\(|aoti_torch_\w*_(\w+)\(")
_LOADED = re.compile(r"\bat::vec::Vectorized<")
_COMMENT = re.compile(r"^\s*#")
_BODY = re.compile(r"^\s+def call\(|^def call\(")
_END = re.compile(r"^\S")
_NUMBER = re.compile(r"_\d+$")
_LOOP = re.compile(r"^\s*for\(int64_t \w+=")


class Kernels(NamedTuple):
    """The kernels that the code of inductor calls, with how often each is called.

    `generated` are those that inductor wrote, `extern` calls of libraries (`extern_kernels.mm`), and `fallback` the
    eager ops that it calls because it has no code of its own for them (`torch.ops.aten.sort.stable`). `vectorized` says
    how many lines of C++ use vectors, `passes` how many loops of C++ are in no other loop: each goes over memory once.
    """

    generated: dict[str, int]
    extern: dict[str, int]
    fallback: dict[str, int]
    vectorized: int
    passes: int = 0

    @property
    def called(self) -> dict[str, int]:
        """The kernels of all kinds."""
        return {**self.generated, **self.extern, **self.fallback}

    @property
    def number(self) -> int:
        """All calls."""
        return sum(self.called.values())


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
    return Kernels(dict(generated), dict(extern), dict(fallback), len(_LOADED.findall(text)), passes_in(text))


def passes_in(text: str) -> int:
    """The loops of generated C++ that are in no other loop."""
    count, depth, inside = 0, 0, -1
    for line in text.splitlines():
        if _LOOP.match(line) and inside < 0:
            count, inside = count + 1, depth
        depth += line.count("{") - line.count("}")
        if depth <= inside and "}" in line:
            inside = -1
    return count


def worse_in(unbacked: Kernels, backed: Kernels) -> dict[str, str]:
    """In what the code for unbacked sizes is worse than that for backed sizes: kinds of findings, each with numbers."""

    def more(calls: dict[str, int], others: dict[str, int]) -> str:
        return ", ".join(sorted(name for name in calls if calls[name] > others.get(name, 0)))

    worse = {}
    if more(unbacked.fallback, backed.fallback):
        worse["falls-back"] = f"calls {more(unbacked.fallback, backed.fallback)}, not with backed sizes"
    if unbacked.number > backed.number:
        called = more(unbacked.called, backed.called)
        worse["more-kernels"] = f"{unbacked.number} calls of kernels, {backed.number} with backed sizes: {called}"
    elif unbacked.passes > backed.passes:
        worse["more-passes"] = f"{unbacked.passes} loops over memory, {backed.passes} with backed sizes"
    if backed.vectorized and not unbacked.vectorized and unbacked.generated:
        worse["not-vectorized"] = f"no vectors, {backed.vectorized} lines with vectors with backed sizes"
    return worse
