"""Hooks that record what a capture assumes about unbacked symbols: run-time assertions, replacements and ranges.

torch keeps the expression of an assertion in the graph, but not the code that made it. So the stack is recorded
when a constraint is made. The hooks have torch's file name, like those of `guards`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from ddefuzz.instrument import torch_api
from ddefuzz.instrument.disguise import disguised
from ddefuzz.instrument.recorder import Recorder
from ddefuzz.instrument.torch_api import Api


def constraint_hooks(recorder: Recorder) -> Iterator[tuple[Api, Callable[..., Any]]]:
    """The hooks, each with the function that it replaces."""
    yield torch_api.DEFER_ASSERTION, _assertion(recorder)
    yield torch_api.SET_REPLACEMENT, _replacement(recorder)
    yield torch_api.UPDATE_RANGE, _range(recorder)


def _assertion(recorder: Recorder) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.DEFER_ASSERTION)

    def ddefuzz_defer_assertion(env: Any, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        before = {symbol: len(made) for symbol, made in env.deferred_runtime_asserts.items()}
        outer, recorder.asserting = recorder.asserting, str(orig_expr)
        try:
            answer = original(env, orig_expr, *args, **kwargs)
        finally:
            recorder.asserting = outer
        # In the form that the graph will have.
        made = (made[-1] for symbol, made in env.deferred_runtime_asserts.items() if len(made) > before.get(symbol, 0))
        newest = next(made, None)
        if newest is not None:
            # A variable for this function's own frame would be a cycle. Until a collection it would keep the caller's
            # fake tensors alive, and the next export would take them for constants.
            said = _message(sys._getframe())
            recorder.record_constraint("assertion", str(newest.expr), newest.expr.free_symbols, sys._getframe(), said)
        return answer

    return disguised(torch_api.DEFER_ASSERTION, ddefuzz_defer_assertion)


def _message(frame: FrameType | None) -> str:
    """The constant message that the `torch._check` in progress gives; empty if there is none.

    It is read from the frame. A hook in place of torch's function would change what dynamo traces: dynamo knows such
    functions by their identity.
    """
    check = torch_api.bound(torch_api.CHECK).__code__
    while frame is not None and frame.f_code is not check:
        frame = frame.f_back
    return "" if frame is None else _constant(frame.f_locals["message"])


def _constant(message: Any) -> str:
    """The text that a function always returns; empty if it may depend on anything."""
    code = getattr(message, "__code__", None)
    if code is None or code.co_argcount or code.co_names or code.co_freevars:
        return ""
    said = message()
    return said if isinstance(said, str) else ""


def _replacement(recorder: Recorder) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.SET_REPLACEMENT)

    def ddefuzz_set_replacement(env: Any, a: Any, tgt: Any, *args: Any, **kwargs: Any) -> Any:
        before = env.replacements.get(a)
        answer = original(env, a, tgt, *args, **kwargs)
        after = env.replacements.get(a)
        if after is not None and after != before and env.is_unbacked_symint(a):
            recorder.record_constraint("replacement", f"{a} = {after}", [a], sys._getframe())
        return answer

    return disguised(torch_api.SET_REPLACEMENT, ddefuzz_set_replacement)


def _range(recorder: Recorder) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.UPDATE_RANGE)

    def ddefuzz_update_range(env: Any, symbol: Any, *args: Any, **kwargs: Any) -> Any:
        before = env.var_to_range.get(symbol)
        answer = original(env, symbol, *args, **kwargs)
        after = env.var_to_range.get(symbol)
        if before is not None and after != before and env.is_unbacked_symint(symbol):
            if after.lower != before.lower:
                recorder.record_constraint("range", f"{symbol} >= {after.lower}", [symbol], sys._getframe())
            if after.upper != before.upper:
                recorder.record_constraint("range", f"{symbol} <= {after.upper}", [symbol], sys._getframe())
        return answer

    return disguised(torch_api.UPDATE_RANGE, ddefuzz_update_range)
