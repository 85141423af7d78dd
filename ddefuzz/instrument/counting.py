"""Counts what shape reasoning does during an export: calls, cache hits, sympy objects, and repeated evaluations."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import sympy  # type: ignore[import-untyped]

from ddefuzz.instrument.torch_api import COUNTED, EVALUATE_EXPR, SYM_NODE, Api

_INNER = (EVALUATE_EXPR.file, SYM_NODE.file, "ddefuzz/instrument/", "torch/__init__.py", "functools.py")
"""Frames that only pass a question on."""


class Counts:
    """What was counted. `questions` counts evaluate_expr calls by expression, `answers` has the answers to each.

    `callers` are the functions that lead to the calls of each method, `askers` those of evaluate_expr.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()
        self.sympy = 0
        self.questions: Counter[Any] = Counter()
        self.answers: defaultdict[Any, set[Any]] = defaultdict(set)
        self.askers: Counter[str] = Counter()
        self.callers: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def repeated(self) -> int:
        """Evaluations of an expression that was evaluated before, with the same answer each time.

        A perfect cache would save them.
        """
        return sum(number - 1 for expr, number in self.questions.items() if len(self.answers[expr]) == 1)

    def patterns(self) -> dict[str, tuple[int, int]]:
        """How often expressions of each form were evaluated, and how often again with the same answer."""
        found: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for expr, number in self.questions.items():
            entry = found[pattern(str(expr))]
            entry[0] += number
            entry[1] += number - 1 if len(self.answers[expr]) == 1 else 0
        return {name: (all_, again) for name, (all_, again) in sorted(found.items(), key=lambda one: -one[1][0])}


def pattern(expression: str) -> str:
    """The form of an expression: unbacked symbols are `u`, and a sum of several of them is `u + …`.

    >>> pattern("Eq(u0 + u1 + u12, 4)")
    'Eq(u + …, 4)'
    """
    without_names = re.sub(r"\bu\d+\b", "u", expression)
    return re.sub(r"u(?: \+ u)+", "u + …", without_names)


@contextmanager
def counting() -> Iterator[Counts]:
    """Count everything that runs in the block."""
    counts = Counts()
    with ExitStack() as stack:
        for api in COUNTED:
            stack.enter_context(patch.object(api.owner(), api.name, _counted(api, counts)))
        stack.enter_context(patch.object(EVALUATE_EXPR.owner(), EVALUATE_EXPR.name, _asked(counts)))
        stack.enter_context(patch.object(sympy.Basic, "__new__", _made(counts)))
        yield counts


def _counted(api: Api, counts: Counts) -> Callable[..., Any]:
    """A method that counts its calls, and those that its lru_cache answers."""
    inner = api.get()
    info = getattr(inner, "cache_info", None)

    def call(*args: Any, **kwargs: Any) -> Any:
        counts.calls[api.name] += 1
        counts.callers[api.name][_asker()] += 1
        if info is None:
            return inner(*args, **kwargs)
        before = info().hits
        result = inner(*args, **kwargs)
        if info().hits > before:
            counts.hits[api.name] += 1
        return result

    for name in ("cache_clear", "cache_info"):
        if hasattr(inner, name):
            setattr(call, name, getattr(inner, name))
    return call


def _asked(counts: Counts) -> Callable[..., Any]:
    inner = EVALUATE_EXPR.get()

    def call(self: Any, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        counts.calls[EVALUATE_EXPR.name] += 1
        counts.questions[orig_expr] += 1
        asker = _asker()
        counts.askers[asker] += 1
        counts.callers[EVALUATE_EXPR.name][asker] += 1
        answer = inner(self, orig_expr, *args, **kwargs)
        counts.answers[orig_expr].add(answer)
        return answer

    return call


def _asker() -> str:
    """The innermost Python function that is not shape reasoning itself: `torch/_refs/__init__.py:roll`."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename.replace("\\", "/")
        if not any(inner in file for inner in _INNER):
            return f"{file.rpartition('/site-packages/')[2]}:{frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def _made(counts: Counts) -> Any:
    inner = sympy.Basic.__new__

    def new(cls: Any, *args: Any) -> Any:
        counts.sympy += 1
        return inner(cls, *args)

    return staticmethod(new)
