"""Hooks that record every guard that torch evaluates over unbacked symbols.

They record which guards took their fallback, what size-oblivious semantics would have returned, and which guards
raised. `Recorder` keeps the records.

The main hook is on `ShapeEnv.evaluate_expr`. Below it, an lru_cache hides every further site that evaluates the
same expression. Inductor, which holds sympy expressions, calls it too. A hook has the file name of the function
that it replaces, because torch names the first frame outside its own files in "Caused by:".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any

import sympy  # type: ignore[import-untyped]

from ddefuzz.instrument import frames, torch_api
from ddefuzz.instrument.events import Answer, Fault, Mechanism, Place
from ddefuzz.instrument.recorder import AssumedSizes, Inputs, Listener, NodeCall, Recorder
from ddefuzz.instrument.torch_api import Api


def disguised(api: Api, hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return `hook` with the file name of the function that it replaces, in its nested functions too.

    torch's error messages name the first frame outside its own files in "Caused by:". Without this, that would
    be the hook.
    """
    if not isinstance(hook, FunctionType):
        raise TypeError(f"a hook is a function, not {hook!r}")
    hook.__code__ = _of_file(hook.__code__, sys.modules[api.here().partition(":")[0]].__file__ or "")
    return hook


def _of_file(code: CodeType, file: str) -> CodeType:
    inner = tuple(_of_file(one, file) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=file, co_consts=inner)


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
            message = _message(sys._getframe())
            recorder.record_constraint(
                "assertion", str(newest.expr), newest.expr.free_symbols, sys._getframe(), message, env=env
            )
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
    text = message()
    return text if isinstance(text, str) else ""


def _replacement(recorder: Recorder) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.SET_REPLACEMENT)

    def ddefuzz_set_replacement(env: Any, a: Any, tgt: Any, *args: Any, **kwargs: Any) -> Any:
        before = env.replacements.get(a)
        answer = original(env, a, tgt, *args, **kwargs)
        after = env.replacements.get(a)
        if after is not None and after != before and env.is_unbacked_symint(a):
            recorder.record_constraint("replacement", f"{a} = {after}", [a], sys._getframe(), env=env)
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
                recorder.record_constraint("range", f"{symbol} >= {after.lower}", [symbol], sys._getframe(), env=env)
            if after.upper != before.upper:
                recorder.record_constraint("range", f"{symbol} <= {after.upper}", [symbol], sys._getframe(), env=env)
        return answer

    return disguised(torch_api.UPDATE_RANGE, ddefuzz_update_range)


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


_AGGRESSIVE: dict[Mechanism, int] = {"aggressive-1": 1, "aggressive-2": 2}


@contextmanager
def watch(
    mechanism: Mechanism = "explicit",
    without: Iterable[Place] = (),
    listener: Listener | None = None,
    answers: Iterable[Answer] = (),
    faults: Iterable[Fault] = (),
    assumed: AssumedSizes | None = None,
    inputs: Inputs | None = None,
) -> Iterator[Recorder]:
    """Record guards while `mechanism` decides them.

    At the places `without`, the fallback is withheld and the guard raises. Undecided guards that `answers` name get the
    value given there. With `assumed`, all others are answered by these sizes, and recorded. `faults` are planted.

    Only one thread at a time may use this. Raises UnsupportedError if this torch lacks a private API.
    """
    root = sys._getframe(2).f_code
    recorder = Recorder(frozenset(without), root, listener, answers=tuple(answers), faults=tuple(faults))
    recorder.assumed, recorder.inputs = assumed, inputs or Inputs()
    config = torch_api.SHAPES_CONFIG
    with ExitStack() as stack:
        for api, hook in _hooks(recorder, mechanism):
            stack.enter_context(api.replaced(hook))
        if mechanism in _AGGRESSIVE:
            stack.enter_context(config.replaced(_AGGRESSIVE[mechanism]))
        yield recorder


def _hooks(recorder: Recorder, mechanism: Mechanism) -> Iterator[tuple[Api, Callable[..., Any]]]:
    yield from constraint_hooks(recorder)
    yield from dropping(recorder)
    yield torch_api.EVALUATE_EXPR, _evaluate_expr(recorder, mechanism == "size-oblivious")
    yield torch_api.LOG_SUPPRESSED, _log_suppressed(recorder)
    yield torch_api.DATA_DEPENDENT_INIT, _data_dependent_error(recorder)
    yield torch_api.REFUSED_INIT, _refusal(recorder)
    yield torch_api.FAKE_DISPATCH_IMPL, _fake_dispatch(recorder)
    for api in torch_api.GUARD_METHODS:
        yield api, _guard_method(recorder, api)
    for api in torch_api.SYMBOL_MAKERS:
        yield api, _symbol_maker(recorder, api)


def _evaluate_expr(recorder: Recorder, size_oblivious_only: bool) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.EVALUATE_EXPR)
    plant = planting(recorder)

    def ddefuzz_evaluate_expr(
        env: Any,
        orig_expr: Any,
        hint: Any = None,
        fx_node: Any = None,
        size_oblivious: bool = False,
        fallback_value: bool | None = None,
        **options: Any,
    ) -> Any:
        def ddefuzz_decide(size_oblivious: bool, expression: Any = orig_expr) -> Any:
            try:
                return original(env, expression, hint, fx_node, size_oblivious, None, **options)
            except RuntimeError as error:
                forced, undecided = recorder.answer_to_error(error) if recorder.answers else (None, None)
                if forced is not None:
                    value = _forced(recorder, env, undecided, forced, fx_node)
                    if forced.clause:
                        value = _with_clause(undecided, forced.clause, value)
                elif recorder.assumed is not None and (raw := recorder.seen(error)) is not None:
                    value = recorder.assumed.value(orig_expr, frames.own_line(raw.place, raw.stacks.traced))
                else:
                    raise
                if recorder.assumed is not None:
                    recorder.record_answer(error, value)
            # What is left of a conjunction is evaluated in turn.
            rest = forced is not None and forced.clause and value not in (sympy.true, sympy.false)
            return ddefuzz_decide(size_oblivious, value) if rest else value

        if fallback_value is None:
            return ddefuzz_decide(size_oblivious)
        if size_oblivious_only:
            return ddefuzz_decide(True)
        recorder.fell_back = False
        answer = original(env, orig_expr, hint, fx_node, size_oblivious, fallback_value, **options)
        # torch's lru_cache returns a repeated fallback without calling `_log_suppressed_dde` again: count it too.
        known = recorder.fallbacks.setdefault(env, set())
        evaluation = (orig_expr, fallback_value)
        if recorder.fell_back:
            known.add(evaluation)
        elif evaluation not in known:
            return answer
        place = recorder.record_fallback(env, orig_expr, fallback_value, sys._getframe())
        plant(env, orig_expr, fallback_value, fx_node, place)
        forced = recorder.answer_at(place, orig_expr)
        if forced is not None:
            return _forced(recorder, env, orig_expr, forced, fx_node)
        if place not in recorder.without:
            return answer
        recorder.withholding = True
        try:
            return original(env, orig_expr, hint, fx_node, size_oblivious, None, **options)
        finally:
            recorder.withholding = False

    return disguised(torch_api.EVALUATE_EXPR, ddefuzz_evaluate_expr)


def _forced(recorder: Recorder, env: Any, expression: Any, answer: Answer, fx_node: Any) -> Any:
    """The value that an experiment gives to a guard, or to a clause of it."""
    decided = expression if not answer.clause else _clause(expression, answer.clause)
    if answer.held:
        recorder.held.append(decided)
    if answer.value is not None:
        return sympy.sympify(answer.value)
    asserted = sympy.Not(decided) if answer.negated else sympy.Or(*recorder.held, decided)
    recorder.held.clear()
    torch_api.bound(torch_api.DEFER_ASSERTION)(env, asserted, "answered by ddefuzz", fx_node)
    return sympy.sympify(not answer.negated)


def _clause(expression: Any, text: str) -> Any:
    """The clause of a conjunction or disjunction with this text; the whole expression if there is none."""
    return next((one for one in expression.args if str(one) == text), expression)


def _with_clause(expression: Any, text: str, value: Any) -> Any:
    """The expression with a value in place of one clause."""
    if not any(str(one) == text for one in expression.args):
        return value
    return expression.func(*(value if str(one) == text else one for one in expression.args))


def _log_suppressed(recorder: Recorder) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.LOG_SUPPRESSED)

    def ddefuzz_log_suppressed_dde(env: Any, expr: Any, assumed_value: bool) -> Any:
        recorder.fell_back = True
        return original(env, expr, assumed_value)

    return disguised(torch_api.LOG_SUPPRESSED, ddefuzz_log_suppressed_dde)


def _data_dependent_error(recorder: Recorder) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.DATA_DEPENDENT_INIT)

    def ddefuzz_error_init(error: BaseException, cond: Any, *args: Any) -> None:
        original(error, cond, *args)
        recorder.record_error(error, cond, sys._getframe())

    return disguised(torch_api.DATA_DEPENDENT_INIT, ddefuzz_error_init)


def _refusal(recorder: Recorder) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.REFUSED_INIT)

    def ddefuzz_refusal_init(error: BaseException, func: Any) -> None:
        original(error, func)
        recorder.record_refusal(error)

    return disguised(torch_api.REFUSED_INIT, ddefuzz_refusal_init)


def _fake_dispatch(recorder: Recorder) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.FAKE_DISPATCH_IMPL)

    def ddefuzz_dispatch_impl(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        outer, recorder.arguments = recorder.arguments, args
        try:
            made = original(mode, func, types, args, kwargs)
        finally:
            recorder.arguments = outer
        recorder.makers.append((id(made), func))
        return made

    return disguised(torch_api.FAKE_DISPATCH_IMPL, ddefuzz_dispatch_impl)


def _guard_method(recorder: Recorder, api: Api) -> Callable[..., Any]:
    original = torch_api.bound(api)
    method = api.name

    def ddefuzz_guard_method(node: Any, file: str, line: int) -> Any:
        outer = recorder.node_call
        # Python may pass its own file: `torch._check` (torch/__init__.py, `expect_true`).
        recorder.node_call = NodeCall(method, "" if file.endswith(".py") else file, line)
        try:
            return original(node, file, line)
        finally:
            recorder.node_call = outer

    return disguised(api, ddefuzz_guard_method)


def _symbol_maker(recorder: Recorder, api: Api) -> Callable[..., Any]:
    original = torch_api.bound(api)

    def ddefuzz_create_unbacked(env: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(env, *args, **kwargs)
        source = next((str(one.name) for one in (*args, *kwargs.values()) if one is not None), "")
        recorder.record_symbols(made.node.expr.free_symbols, source, sys._getframe())
        return made

    return disguised(api, ddefuzz_create_unbacked)
