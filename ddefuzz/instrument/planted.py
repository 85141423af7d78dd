"""Hooks that plant wrong assumptions about unbacked symbols, to measure whether the oracles find them.

Without a fault they do nothing. Like the other hooks they have torch's file name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import sympy  # type: ignore[import-untyped]

from ddefuzz.instrument import torch_api
from ddefuzz.instrument.disguise import disguised
from ddefuzz.instrument.events import Place
from ddefuzz.instrument.recorder import Recorder
from ddefuzz.instrument.torch_api import Api

MESSAGE = "planted by ddefuzz"

SMALLEST, NUMBERS = 2, 3
"""A symbol is made a number from 2 to 4."""


def dropping(recorder: Recorder) -> Iterator[tuple[Api, Callable[..., Any]]]:
    """The hook that drops assertions, if a fault of that kind is planted."""
    places = frozenset(fault.place for fault in recorder.faults if fault.kind == "drop assertion")
    if places:
        yield torch_api.DEFER_ASSERTION, _dropping(recorder, places)


def _dropping(recorder: Recorder, places: frozenset[Place]) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.DEFER_ASSERTION)

    def ddefuzz_drop_assertion(env: Any, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        is_unbacked = any(map(env.is_unbacked_symint, orig_expr.free_symbols))
        if is_unbacked and recorder.place_at(sys._getframe()) in places:
            truth = torch_api.bound(torch_api.EVALUATE_STATIC)(env, orig_expr)
            return True if truth is None else bool(truth)
        return original(env, orig_expr, *args, **kwargs)

    return disguised(torch_api.DEFER_ASSERTION, ddefuzz_drop_assertion)


def planting(recorder: Recorder) -> Callable[..., Any]:
    """The hook that runs after a guard fell back: it plants the other faults of the guard's place."""

    def ddefuzz_plant(env: Any, expression: Any, fallback: bool, fx_node: Any, place: Place) -> None:
        for fault in recorder.faults:
            if fault.place != place:
                continue
            if fault.kind == "add assertion":
                asserted = expression if fallback == (fault.number % 2 == 0) else sympy.Not(expression)
                torch_api.bound(torch_api.DEFER_ASSERTION)(env, asserted, MESSAGE, fx_node)
            elif fault.kind == "specialize":
                symbols = sorted(filter(env.is_unbacked_symint, expression.free_symbols), key=str)
                if len(symbols) > 1 and fault.number % 2:
                    torch_api.bound(torch_api.SET_REPLACEMENT)(env, symbols[0], symbols[1], MESSAGE)
                elif symbols:
                    number = sympy.Integer(SMALLEST + fault.number % NUMBERS)
                    torch_api.bound(torch_api.SET_REPLACEMENT)(env, symbols[0], number, MESSAGE)

    return disguised(torch_api.EVALUATE_EXPR, ddefuzz_plant)
