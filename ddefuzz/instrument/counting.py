"""Counts what shape reasoning does during an export: calls, sympy objects, and repeated evaluations."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import sympy  # type: ignore[import-untyped]

from ddefuzz.instrument.torch_api import COUNTED, EVALUATE_EXPR, GUARD_FILES, Api

_INNER = ("ddefuzz/instrument/", "functools.py")
"""Files besides those of `GUARD_FILES` that only pass an evaluation on."""

DEEPEST = 16
"""The functions of a stack that are kept at most."""

Stack = tuple[tuple[str, str], ...]
"""File and name of each function, outermost first."""


class Counts:
    """What was counted, by method: the calls, their expressions and their stacks. `answers` has the answers of
    evaluate_expr to each expression, and `askers` the innermost functions that called it.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.sympy = 0
        self.expressions: defaultdict[str, Counter[Any]] = defaultdict(Counter)
        self.answers: defaultdict[Any, set[Any]] = defaultdict(set)
        self.askers: Counter[str] = Counter()
        self.callers: defaultdict[str, Counter[Stack]] = defaultdict(Counter)

    def repeated(self) -> int:
        """Evaluations of an expression that was evaluated before, with the same answer each time.

        A perfect cache would save them.
        """
        return sum(number - 1 for expr, number in self._evaluated().items() if len(self.answers[expr]) == 1)

    def patterns(self) -> dict[str, tuple[int, int]]:
        """How often expressions of each form were evaluated, and how often again with the same answer."""
        counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for expr, number in self._evaluated().items():
            entry = counts[pattern(str(expr))]
            entry[0] += number
            entry[1] += number - 1 if len(self.answers[expr]) == 1 else 0
        return {name: (all_, again) for name, (all_, again) in sorted(counts.items(), key=lambda one: -one[1][0])}

    def most(self, method: str) -> str:
        """The form of expression that a method was called with most."""
        counts: Counter[str] = Counter()
        for expr, number in self.expressions[method].items():
            counts[pattern(str(expr))] += number
        return max(sorted(counts), key=lambda form: counts[form], default="")

    def _evaluated(self) -> Counter[Any]:
        return self.expressions[EVALUATE_EXPR.name]


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
            stack.enter_context(api.replaced(_counted(api, counts)))
        stack.enter_context(EVALUATE_EXPR.replaced(_asked(counts)))
        stack.enter_context(patch.object(sympy.Basic, "__new__", _made(counts)))
        yield counts


def _counted(api: Api, counts: Counts) -> Callable[..., Any]:
    """A method that counts its calls."""
    inner = api.get()

    def call(self: Any, expr: Any, *args: Any, **kwargs: Any) -> Any:
        counts.calls[api.name] += 1
        counts.expressions[api.name][expr] += 1
        counts.callers[api.name][_stack(_is_wrapper)] += 1
        return inner(self, expr, *args, **kwargs)

    for name in ("cache_clear", "cache_info"):
        if hasattr(inner, name):
            setattr(call, name, getattr(inner, name))
    return call


def _asked(counts: Counts) -> Callable[..., Any]:
    inner = EVALUATE_EXPR.get()

    def call(self: Any, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        counts.calls[EVALUATE_EXPR.name] += 1
        counts.expressions[EVALUATE_EXPR.name][orig_expr] += 1
        stack = _stack(_is_inner)
        counts.askers[":".join(stack[-1]) if stack else ""] += 1
        counts.callers[EVALUATE_EXPR.name][stack] += 1
        answer = inner(self, orig_expr, *args, **kwargs)
        counts.answers[orig_expr].add(answer)
        return answer

    return call


def _stack(passes_on: Callable[[str, str], bool]) -> Stack:
    """The innermost functions, without this hook and without those at the end that only pass the call on."""
    callers: list[tuple[str, str]] = []
    frame: Any = sys._getframe(2)
    while frame is not None and len(callers) < DEEPEST:
        file = frame.f_code.co_filename.replace("\\", "/").rpartition("/site-packages/")[2]
        is_hook = frame.f_code.co_filename == __file__
        if not is_hook and (callers or not passes_on(file, frame.f_code.co_name)):
            callers.append((file, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(reversed(callers))


def _is_inner(file: str, name: str) -> bool:
    """Whether a function is part of shape reasoning, which evaluates an expression for its caller."""
    return _is_wrapper(file, name) or any(file in guards for guards in GUARD_FILES)


def _is_wrapper(file: str, name: str) -> bool:
    """Whether a function is a decorator's, around a method of shape reasoning."""
    inner = any(file in guards for guards in GUARD_FILES)
    return (inner and name == "wrapper") or any(part in file for part in _INNER)


def _made(counts: Counts) -> Any:
    inner = sympy.Basic.__new__

    def new(cls: Any, *args: Any) -> Any:
        counts.sympy += 1
        return inner(cls, *args)

    return staticmethod(new)
