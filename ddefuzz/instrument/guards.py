"""Watching every guard that torch decides: which fell back, what the old mechanism would have said, which raised.

The hooks sit at the door, `ShapeEnv.evaluate_expr`: below it an lru_cache hides every second site that asks the same
expression, and inductor, which holds sympy expressions, comes in there. A hook wears the file name of what it
replaces, because torch names the first frame outside its own plumbing in "Caused by:".
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, Protocol
from unittest import mock

from ddefuzz.instrument import frames, torch_api
from ddefuzz.instrument.events import SIZES_FOR_CXX, Counterfactual, Guard, Mechanism, Place, Raised, SymbolOrigin
from ddefuzz.instrument.frames import Stacks
from ddefuzz.instrument.torch_api import Api

_AGGRESSIVE: dict[Mechanism, int] = {"aggressive-1": 1, "aggressive-2": 2}

_PLUMBING = frozenset(
    str(torch_api.torch_parent() / file)
    for file in (
        "torch/__init__.py",  # SymBool.__bool__, SymInt.__index__ …, torch._check
        "torch/fx/experimental/symbolic_shapes.py",
        "torch/fx/experimental/sym_node.py",
        "torch/fx/experimental/recording.py",
        "torch/fx/experimental/_size_hinting.py",
        "torch/utils/_stats.py",  # the counting wrapper of SymNode methods
        "torch/utils/_config_module.py",
    )
)
"""The door's own files: the frame that asked is the first outside them."""

_INDUCTOR_PLUMBING = str(torch_api.torch_parent() / "torch/_inductor/sizevars.py")
_INDUCTOR_DOORS = frozenset({"evaluate_expr", "guard_or_false", "guard_or_true"})
"""Inductor's own way to the door; other functions of that file ask themselves."""

_DYNAMO = str(torch_api.torch_parent() / "torch/_dynamo/_")[:-1]

_OP_NAMES = {"_local_scalar_dense": "item", "_unique2": "unique"}
"""Ops whose users know them by another name."""


class _Asked(NamedTuple):
    """A SymNode method in progress; `file` is empty when Python asked."""

    method: str
    file: str
    line: int


class _GuardKey(NamedTuple):
    """What makes two fallbacks one `Guard`; the place is a code object and line, or C++'s file and line."""

    where: CodeType | str
    line: int
    method: str
    expression: Any
    fallback: bool
    counterfactual: Counterfactual


class _Origin(NamedTuple):
    op: str
    stacks: Stacks


class _RawRaise(NamedTuple):
    """A data-dependent error before anything of it is rendered; `native` only where C++ asked."""

    expression: Any
    asked: _Asked
    place: Place
    stacks: Stacks
    native: Any
    withheld: bool
    origins: tuple[tuple[str, _Origin], ...]


class Listener(Protocol):
    """Told of things as they happen, by who watches a whole process and not one run."""

    def fell(self, place: Place, function: str, call: str, fallback: bool) -> None:
        """A guard fell back, for the first time with this expression at this place; `function` is empty for C++."""

    def raised(self, error: BaseException) -> None:
        """A data-dependent error was made, which torch may still catch."""


@dataclass(slots=True)
class Recorder:
    """What one watched run asked; read it before the `watch` that yielded it ends."""

    without: frozenset[Place] = frozenset()
    root: CodeType | None = None
    listener: Listener | None = None
    _asked: _Asked | None = None
    _fell_back: bool = False
    _withholding: bool = False
    _fallen: weakref.WeakKeyDictionary[Any, set[tuple[Any, bool]]] = field(default_factory=weakref.WeakKeyDictionary)
    _oblivious: weakref.WeakKeyDictionary[Any, dict[Any, bool | None]] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    _guards: dict[_GuardKey, int] = field(default_factory=dict)
    _places: dict[tuple[CodeType, int], Place] = field(default_factory=dict)
    _origins: dict[Any, _Origin] = field(default_factory=dict)
    _raises: weakref.WeakKeyDictionary[BaseException, _RawRaise] = field(default_factory=weakref.WeakKeyDictionary)
    _told: dict[str, _RawRaise] = field(default_factory=dict)

    def guards(self) -> tuple[Guard, ...]:
        """The guards that fell back, in order of first visit."""
        text: dict[Any, str] = {}
        found: dict[Guard, int] = {}
        for key, count in self._guards.items():
            if key.expression not in text:
                text[key.expression] = str(key.expression)
            if isinstance(key.where, str):
                place, function = Place("C++", key.where, key.line), ""
            else:
                place, function = self._place(key.where, key.line), key.where.co_name
            guard = Guard(place, key.method, text[key.expression], key.fallback, key.counterfactual, function)
            found[guard] = found.get(guard, 0) + count
        return tuple(
            Guard(g.place, g.method, g.expression, g.fallback, g.counterfactual, g.function, n)
            for g, n in found.items()
        )

    def raised(self, chain: Sequence[BaseException]) -> Raised | None:
        """The first exception of `chain` that was seen being made, with its stacks; symbolizes where C++ asked.

        C++ that catches it and raises another leaves no chain, but quotes it (`unflatten got an unexpected error: …` in
        torch's aten/src/ATen/native/TensorShape.cpp): what is quoted whole counts as well.
        """
        raw = next(filter(None, map(self._seen, chain)), None) or next(filter(None, map(self._quoted, chain)), None)
        if raw is None:
            return None
        return Raised(
            expression=str(raw.expression),
            method=raw.asked.method,
            place=raw.place,
            python=frames.python_frames(raw.stacks.real),
            traced=frames.traced_frames(raw.stacks.traced),
            native=frames.native_frames(raw.native) if raw.native is not None else (),
            symbols=tuple(
                SymbolOrigin(symbol, origin.op, frames.user_frame(origin.stacks)) for symbol, origin in raw.origins
            ),
            withheld=raw.withheld,
            asked=frames.header_line(raw.place.file, raw.place.line) if raw.place.language == "C++" else "",
        )

    def _seen(self, error: BaseException) -> _RawRaise | None:
        # Only an error that was seen can be looked up: others may refuse weak references or a hash.
        return self._raises[error] if any(error is seen for seen in self._raises) else None

    def _quoted(self, error: BaseException) -> _RawRaise | None:
        if not isinstance(error, RuntimeError):
            return None
        message = str(error)
        return next((raw for told, raw in self._told.items() if told in message), None)

    # What follows is called by the hooks.

    def fell(self, env: Any, expression: Any, fallback: bool, frame: FrameType) -> Place:
        """Note that the asker under `frame` was answered with its fallback."""
        asked, where, line = self._who(frame, "guard_or_true" if fallback else "guard_or_false")
        key = _GuardKey(where, line, asked.method, expression, fallback, self._old_answer(env, expression, fallback))
        place = Place("C++", where, line) if isinstance(where, str) else self._place(where, line)
        if self.listener is not None and key not in self._guards:
            self.listener.fell(place, "" if isinstance(where, str) else where.co_name, asked.method, fallback)
        self._guards[key] = self._guards.get(key, 0) + 1
        return place

    def made(self, error: BaseException, expression: Any, frame: FrameType) -> None:
        """Remember a data-dependent error and everything needed to explain it, should it reach the end."""
        asked, where, line = self._who(frame, "")
        place = Place("C++", where, line) if isinstance(where, str) else self._place(where, line)
        raw = _RawRaise(
            expression=expression,
            asked=asked,
            place=place,
            stacks=frames.take(frame, self.root),
            native=frames.native_backtrace() if place.language == "C++" or place.file == SIZES_FOR_CXX else None,
            withheld=self._withholding,
            origins=tuple(
                (str(symbol), self._origins[symbol])
                for symbol in sorted(expression.free_symbols, key=str)
                if symbol in self._origins
            ),
        )
        self._raises[error] = raw
        if place.language == "C++" and asked.method == "guard_bool":
            self._told[str(error).partition("\n")[0]] = raw
        if self.listener is not None:
            self.listener.raised(error)

    def born(self, symbols: Iterable[Any], from_input: bool, frame: FrameType) -> None:
        """Remember which op made a symbol, and who called it."""
        stacks = frames.take(frame, self.root)
        origin = _Origin("input" if from_input or frames.is_from_own(stacks) else _making_op(frame), stacks)
        for symbol in symbols:
            self._origins[symbol] = origin

    def _who(self, frame: FrameType | None, direct: str) -> tuple[_Asked, CodeType | str, int]:
        """The method used, and the place that asked: C++'s file and line, or a code object and its line."""
        asked = self._asked
        if asked is not None and asked.file:
            return asked, frames.display_cpp_file(asked.file), asked.line
        method = direct
        while frame is not None and _is_plumbing(frame.f_code):
            if not frame.f_code.co_name.startswith(frames.HOOK_PREFIX):
                method = frame.f_code.co_name
            frame = frame.f_back
        if frame is None:
            raise AssertionError("a guard was asked by no frame at all")
        code, line = frame.f_code, frame.f_lineno
        if code.co_filename.startswith(_DYNAMO):
            # Dynamo asks on behalf of the code that it interprets, which export runs for real.
            traced = frames.take(frame, self.root).traced
            if traced:
                code, line = traced[0].code, traced[0].line
        return asked or _Asked(method, "", 0), code, line

    def _place(self, code: CodeType, line: int) -> Place:
        key = (code, line)
        if key not in self._places:
            self._places[key] = Place("Python", frames.display_file(code.co_filename), line)
        return self._places[key]

    def _old_answer(self, env: Any, expression: Any, fallback: bool) -> Counterfactual:
        # Once an expression, as the old mechanism's own lru_cache at the door would have answered it.
        known = self._oblivious.setdefault(env, {})
        if expression not in known:
            answer = torch_api.bound(torch_api.EVALUATE_STATIC)(env, expression, size_oblivious=True)
            known[expression] = None if answer is None else bool(answer)
        old = known[expression]
        return "undecided" if old is None else "same" if old is fallback else "other"


@contextmanager
def watch(
    mechanism: Mechanism = "explicit", without: Iterable[Place] = (), listener: Listener | None = None
) -> Iterator[Recorder]:
    """Answer guards by `mechanism`, except that the fallback is withheld at the places `without`, and record them.

    Only for one thread at a time. Raises UnsupportedError where this torch lacks a private API.
    """
    recorder = Recorder(frozenset(without), sys._getframe(2).f_code, listener)
    config = torch_api.SHAPES_CONFIG
    with ExitStack() as stack:
        for api, hook in _hooks(recorder, mechanism):
            stack.enter_context(mock.patch.object(api.owner(), api.name, hook))
        if mechanism in _AGGRESSIVE:
            stack.enter_context(mock.patch.object(config.owner(), config.name, _AGGRESSIVE[mechanism]))
        yield recorder


def _is_plumbing(code: CodeType) -> bool:
    file = code.co_filename
    return file in _PLUMBING or (file == _INDUCTOR_PLUMBING and code.co_name in _INDUCTOR_DOORS)


def _hooks(recorder: Recorder, mechanism: Mechanism) -> Iterator[tuple[Api, Callable[..., Any]]]:
    yield torch_api.DOOR, _door(recorder, mechanism == "size-oblivious")
    yield torch_api.LOG_SUPPRESSED, _log_suppressed(recorder)
    yield torch_api.DATA_DEPENDENT_INIT, _data_dependent_error(recorder)
    for api in torch_api.DOOR_METHODS:
        yield api, _door_method(recorder, api)
    for api in torch_api.SYMBOL_MAKERS:
        yield api, _symbol_maker(recorder, api)


def _disguised(api: Api, hook: Callable[..., Any]) -> Callable[..., Any]:
    """`hook` with the file name of the function that it replaces."""
    if not isinstance(hook, FunctionType):
        raise TypeError(f"a hook is a function, not {hook!r}")
    hook.__code__ = hook.__code__.replace(co_filename=sys.modules[api.path.partition(":")[0]].__file__ or "")
    return hook


def _door(recorder: Recorder, size_oblivious_only: bool) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.DOOR)

    def ddefuzz_evaluate_expr(
        env: Any,
        orig_expr: Any,
        hint: Any = None,
        fx_node: Any = None,
        size_oblivious: bool = False,
        fallback_value: bool | None = None,
        **options: Any,
    ) -> Any:
        if fallback_value is None:
            return original(env, orig_expr, hint, fx_node, size_oblivious, None, **options)
        if size_oblivious_only:
            return original(env, orig_expr, hint, fx_node, True, None, **options)
        recorder._fell_back = False
        answer = original(env, orig_expr, hint, fx_node, size_oblivious, fallback_value, **options)
        # torch's lru_cache answers a repeated question without falling back again: the memory makes it count.
        fallen = recorder._fallen.setdefault(env, set())
        question = (orig_expr, fallback_value)
        if recorder._fell_back:
            fallen.add(question)
        elif question not in fallen:
            return answer
        place = recorder.fell(env, orig_expr, fallback_value, sys._getframe())
        if place not in recorder.without:
            return answer
        recorder._withholding = True
        try:
            return original(env, orig_expr, hint, fx_node, size_oblivious, None, **options)
        finally:
            recorder._withholding = False

    return _disguised(torch_api.DOOR, ddefuzz_evaluate_expr)


def _log_suppressed(recorder: Recorder) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.LOG_SUPPRESSED)

    def ddefuzz_log_suppressed_dde(env: Any, expr: Any, assumed_value: bool) -> Any:
        recorder._fell_back = True
        return original(env, expr, assumed_value)

    return _disguised(torch_api.LOG_SUPPRESSED, ddefuzz_log_suppressed_dde)


def _data_dependent_error(recorder: Recorder) -> Callable[..., Any]:
    original = torch_api.bound(torch_api.DATA_DEPENDENT_INIT)

    def ddefuzz_error_init(error: BaseException, cond: Any, *args: Any) -> None:
        original(error, cond, *args)
        recorder.made(error, cond, sys._getframe())

    return _disguised(torch_api.DATA_DEPENDENT_INIT, ddefuzz_error_init)


def _door_method(recorder: Recorder, api: Api) -> Callable[..., Any]:
    original = torch_api.bound(api)
    method = api.name

    def ddefuzz_door_method(node: Any, file: str, line: int) -> Any:
        outer = recorder._asked
        recorder._asked = _Asked(method, file, line)
        try:
            return original(node, file, line)
        finally:
            recorder._asked = outer

    return _disguised(api, ddefuzz_door_method)


def _symbol_maker(recorder: Recorder, api: Api) -> Callable[..., Any]:
    original = torch_api.bound(api)

    def ddefuzz_create_unbacked(env: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(env, *args, **kwargs)
        from_input = any(source is not None for source in (*args, *kwargs.values()))
        recorder.born(made.node.expr.free_symbols, from_input, sys._getframe())
        return made

    return _disguised(api, ddefuzz_create_unbacked)


def _making_op(frame: FrameType | None) -> str:
    """The op in whose fake kernel `frame` is: `nonzero`, `item`; empty where no op is being run."""
    dispatch = torch_api.bound(torch_api.FAKE_DISPATCH).__code__
    while frame is not None:
        if frame.f_code is dispatch:
            # An OpOverload prints as namespace.op.overload.
            name = str(frame.f_locals["func"]).removeprefix("aten.").rpartition(".")[0]
            return _OP_NAMES.get(name, name)
        frame = frame.f_back
    return ""
