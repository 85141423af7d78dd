"""Keeps what the hooks of `guards` report during one watched run.

It keeps the guards that took their fallback, the data-dependent errors, the constraints, and the ops that made
unbacked symbols. They are kept raw, because most of them are discarded. Source is read and C++ is symbolized only
for the failure that is reported.

`Inputs` is what is known of the inputs of a subject: their names, for symbols that are their dims, and the sizes by
which a run that continues after undecided guards answers them.
"""

from __future__ import annotations

import os
import re
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FrameType, MappingProxyType, TracebackType
from typing import Any, NamedTuple, Protocol

import msgspec
import sympy  # type: ignore[import-untyped]
import torch

from ddefuzz.errors import is_of
from ddefuzz.instrument import frames, torch_api
from ddefuzz.instrument.events import (
    Answer,
    AnsweredGuard,
    Constraint,
    ConstraintKind,
    Counterfactual,
    Fault,
    Frame,
    Guard,
    Place,
    RaisedError,
    SymbolOrigin,
)
from ddefuzz.instrument.frames import Stacks
from ddefuzz.internal import message_of

MASK_FUNCTION = "_kept"
"""The function of a stage whose local `symbol` names the size that it makes unbacked."""

_DIM = re.compile(r"L\['(?P<name>\w+)'\](?P<path>.*)\.size\(\)\[(?P<dim>\d+)\]")
"""A dim of an input as dynamo's sources are named: `L['batch']['ids'].size()[1]`."""


_SYMBOL = re.compile(r"\b[usz]\d+\b")
"""A symbol in an expression as torch prints it."""


def _empty() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Inputs:
    """`masked` are the dims (`dim 0 of ids`) of each symbol that masks make unbacked. `leaves` are the names of all
    leaves of the arguments, `positional` those of the positional arguments: a stage may pass them as `args`, and
    strict export numbers the leaves. `written` is how the user writes a leaf, by torch's name of it. Torch numbers the
    symbols in order of the dims; of a DTensor, also the dims of its shard (`has_shards`).
    """

    masked: Mapping[str, str] = field(default_factory=_empty)
    positional: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    written: Mapping[str, str] = field(default_factory=_empty)
    has_shards: bool = False

    def names(self, dims: Mapping[str, str]) -> Mapping[str, str]:
        """The subject's names of torch's symbols, where torch numbers others, too. `dims` are those of each symbol.

        Empty if two symbols would have one name.
        """
        own = {dim: symbol for symbol, listed in self.masked.items() for dim in listed.split(", ")}
        names = {symbol: own.get(dim.partition(", ")[0], symbol) for symbol, dim in dims.items()}
        return names if self.has_shards and len(set(names.values())) == len(names) else {}

    def dim(self, source: str, frame: FrameType | None) -> str:
        """The dim of an input that a new symbol stands for, from torch's name of the symbol or from the mask that makes
        it.

        Empty if it is not known.
        """
        named = _DIM.fullmatch(source)
        if named is not None:
            name = self._name(named["name"], named["path"])
            return f"dim {named['dim']} of {self.written.get(name, name)}"
        while frame is not None and frame.f_code.co_name != MASK_FUNCTION:
            frame = frame.f_back
        if frame is not None:
            return self.masked.get(str(frame.f_locals.get("symbol")), "")
        return next(iter(self.masked.values())) if len(self.masked) == 1 else ""

    def _name(self, name: str, path: str) -> str:
        index = re.match(r"\[(\d+)\]", path)
        numbered = {"args": self.positional, "flat_args": self.leaves}.get(name, ())
        if index is not None and int(index[1]) < len(numbered):
            return numbered[int(index[1])] + path[index.end() :]
        key = re.match(r"\['(\w+)'\]", path)
        return key[1] + path[key.end() :] if name == "kwargs" and key is not None else name + path


SAMPLE = 4
"""The value of a symbol that is not a dim of an input."""

MOST_ROUNDS = 12
"""How often one line of the user's code gets the same truth value. This ends loops over data."""


class AssumedSizes:
    """The value of each unbacked symbol. All guards are answered by the same values, so no two answers contradict.

    A dim of an input has its size in the example; `sizes` has these by name (`dim 1 of ids`). Any other symbol has
    the value `SAMPLE`. Each round of a loop makes new symbols, so `while kept.numel() > 0` would not end. A line of
    the user's code that got one answer `MOST_ROUNDS` times therefore gets the other answer.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._values: dict[Any, int] = {}
        self._rounds: Counter[tuple[Place, bool]] = Counter()

    def note(self, symbol: Any, dim: str) -> None:
        """Choose the value of a new symbol. `dim` names the dim of an input, and is empty for any other symbol."""
        self._values[symbol] = self._sizes.get(dim, SAMPLE)

    def value(self, expression: Any, line: Place | None = None) -> Any:
        """The value of an expression: a sympy truth value or number. False if it is unknown.

        `line` is that of the user's code that branches on the expression.
        """
        simplified = sympy.sympify(expression).xreplace(
            {symbol: sympy.Integer(self._values.get(symbol, SAMPLE)) for symbol in expression.free_symbols}
        )
        simplified = sympy.simplify(simplified) if simplified.free_symbols else simplified
        value = simplified if simplified in (sympy.true, sympy.false) or simplified.is_number else sympy.false
        if line is None or value not in (sympy.true, sympy.false):
            return value
        self._rounds[line, bool(value)] += 1
        return sympy.Not(value) if self._rounds[line, bool(value)] > MOST_ROUNDS else value


def plain_value(value: Any) -> bool | int | float:
    """A sympy truth value or number as Python's."""
    if value in (sympy.true, sympy.false):
        return bool(value)
    return int(value) if value.is_Integer else float(value)


_TORCH_PARENT = torch_api.torch_parent()
_DYNAMO = tuple(f"{_TORCH_PARENT / path}{os.sep}" for path in torch_api.DYNAMO_FILES.paths)

MOST_ANSWERED = 200
"""How many answered guards of a run are recorded."""
TRUTHS = frozenset({"guard_bool", "guard_or_false", "guard_or_true"})
"""The SymNode methods that return a truth value, unlike `guard_int` and `guard_float`."""


MAKERS = 8
"""How many of the last ops are remembered with their results, to find the op that made another op's argument."""


class NodeCall(NamedTuple):
    """A call of a SymNode method in progress. `file` is empty if Python called it."""

    method: str
    file: str
    line: int


class _GuardKey(NamedTuple):
    """The identity of a `Guard` within a run. The place is a code object and line, or C++'s file and line."""

    where: CodeType | str
    line: int
    method: str
    expression: Any
    fallback: bool
    counterfactual: Counterfactual


class _Origin(NamedTuple):
    op: str
    stacks: Stacks
    source: str


class _Refusal(NamedTuple):
    """An error of an op whose output is data. `maker` is the op that made its first argument."""

    error: weakref.ref[BaseException]
    native: Any
    maker: str


class _RawRaise(NamedTuple):
    """A data-dependent error before it is rendered. `native` is set only if C++ evaluated the guard."""

    expression: Any
    call: NodeCall
    place: Place
    stacks: Stacks
    native: Any
    withheld: bool
    origins: tuple[tuple[str, _Origin], ...]
    module: str
    variables: tuple[tuple[str, str], ...]


class _RawConstraint(NamedTuple):
    """A constraint before it is rendered. `native` is set only if C++ made it."""

    kind: ConstraintKind
    text: str
    call: NodeCall
    place: Place
    stacks: Stacks
    native: Any
    follows: str
    message: str
    origins: tuple[str, ...]


class Listener(Protocol):
    """Gets events as they happen, for observing a whole process rather than one run."""

    def on_fallback(self, place: Place, function: str, call: str, fallback: bool) -> None:
        """A guard took its fallback, first with this expression at this place. `function` is empty for C++."""

    def on_error(self, error: BaseException) -> None:
        """A data-dependent error was made. torch may still catch it."""


NO_SHARDING = "does not have a sharding strategy registered"  # torch/distributed/tensor/_sharding_prop.py


@dataclass(slots=True)
class Recorder:
    """What one watched run recorded. It has to be read before the `watch` that yielded it ends.

    The hooks also keep state for each other here. `node_call` is the call of a SymNode method in progress. `fell_back`
    and `withholding` describe the `evaluate_expr` call in progress. `held` are expressions that become clauses of the
    next assertion of an experiment. `fallbacks` has the expressions that took their fallback, by ShapeEnv. `arguments`
    are those of the op that runs on fake tensors. `makers` has the last ops, by the `id` of their result. `asserting`
    is the assertion that torch is making. `explains` says that errors are recorded with the user's variables.
    """

    without: frozenset[Place] = frozenset()
    root: CodeType | None = None
    listener: Listener | None = None
    answers: tuple[Answer, ...] = ()
    faults: tuple[Fault, ...] = ()
    assumed: AssumedSizes | None = None
    inputs: Inputs = field(default_factory=Inputs)
    node_call: NodeCall | None = None
    asserting: str = ""
    fell_back: bool = False
    withholding: bool = False
    explains: bool = False
    held: list[Any] = field(default_factory=list)
    arguments: Sequence[Any] = ()
    makers: deque[tuple[int, Any]] = field(default_factory=partial(deque, maxlen=MAKERS))
    fallbacks: weakref.WeakKeyDictionary[Any, set[tuple[Any, bool]]] = field(default_factory=weakref.WeakKeyDictionary)
    _oblivious: weakref.WeakKeyDictionary[Any, dict[Any, bool | None]] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    _guards: dict[_GuardKey, int] = field(default_factory=dict)
    _places: dict[tuple[CodeType, int], Place] = field(default_factory=dict)
    _origins: dict[Any, _Origin] = field(default_factory=dict)
    _forced: dict[tuple[CodeType | str, int, Any], frames.Stacks] = field(default_factory=dict)
    _raises: weakref.WeakKeyDictionary[BaseException, _RawRaise] = field(default_factory=weakref.WeakKeyDictionary)
    _quotable: dict[str, _RawRaise] = field(default_factory=dict)
    _caught: _RawRaise | None = None
    _constraints: dict[tuple[int, str, str], _RawConstraint] = field(default_factory=dict)
    _environments: weakref.WeakKeyDictionary[Any, int] = field(default_factory=weakref.WeakKeyDictionary)
    _refusals: list[_Refusal] = field(default_factory=list)
    _answered: dict[tuple[Place, str], tuple[_RawRaise, bool | int | float]] = field(default_factory=dict)

    def guards(self) -> tuple[Guard, ...]:
        """The guards that took their fallback, in order of first visit."""
        text: dict[Any, str] = {}
        counts: dict[Guard, int] = {}
        for key, count in self._guards.items():
            if key.expression not in text:
                text[key.expression] = str(key.expression)
            place, function = self._place(key.where, key.line), frames.function_of(key.where)
            code = "" if isinstance(key.where, str) else frames.line_text(key.where.co_filename, key.line)
            expression = text[key.expression]
            path = frames.whole_frames(self._forced.get((key.where, key.line, key.expression)))
            guard = Guard(place, key.method, expression, key.fallback, key.counterfactual, function, 1, code, path)
            counts[guard] = counts.get(guard, 0) + count
        return tuple(msgspec.structs.replace(guard, count=count) for guard, count in counts.items())

    def raised(self, chain: Sequence[BaseException]) -> RaisedError | None:
        """The first exception of `chain` that was recorded, with its stacks. Symbolizes them if C++
        evaluated the guard.

        C++ may catch the error and raise another that quotes it, without a chain (`unflatten got an unexpected error`
        in torch's aten/src/ATen/native/TensorShape.cpp). An error that is quoted in full counts, too. DTensor tries
        ways to shard an op, catches these errors, and says that the op has no strategy.
        """
        raw = next(filter(None, map(self.seen, chain)), None) or next(filter(None, map(self._quoted, chain)), None)
        raw = raw or (self._caught if any(NO_SHARDING in message_of(error) for error in chain) else None)
        return None if raw is None else self._rendered(raw)

    def answered(self) -> tuple[AnsweredGuard, ...]:
        """The guards that were answered so that the capture continued, in order, with the stacks of their errors."""
        return tuple(AnsweredGuard(self._rendered(raw), value) for raw, value in self._answered.values())

    def symbols(self) -> int:
        """How many unbacked symbols were made."""
        return len(self._origins)

    def _rendered(self, raw: _RawRaise) -> RaisedError:
        names = self.inputs.names({symbol: origin.source for symbol, origin in raw.origins})
        return RaisedError(
            expression=_SYMBOL.sub(lambda one: names.get(one[0], one[0]), str(raw.expression)),
            method=raw.call.method,
            place=raw.place,
            python=frames.python_frames(raw.stacks.real),
            traced=frames.traced_frames(raw.stacks.traced),
            native=frames.native_frames(raw.native) if raw.native is not None else (),
            symbols=tuple(
                SymbolOrigin(names.get(symbol, symbol), origin.op, frames.user_frame(origin.stacks), origin.source)
                for symbol, origin in raw.origins
            ),
            withheld=raw.withheld,
            header_line=frames.header_line(raw.place.file, raw.place.line) if raw.place.language == "C++" else "",
            module=raw.module,
            variables=raw.variables,
        )

    def _text(self, expression: Any) -> str:
        origins = {one: self._origins[one] for one in getattr(expression, "free_symbols", ()) if one in self._origins}
        names = self.inputs.names({str(symbol): origin.source for symbol, origin in origins.items()})
        return _SYMBOL.sub(lambda one: names.get(one[0], one[0]), str(expression))

    def constraints(self, wanted: Callable[[str, str], bool], env: Any = None) -> tuple[Constraint, ...]:
        """The constraints that `wanted` selects by text and message, in order, with the code that made each first.

        With `env`, a ShapeEnv of which something was recorded: those on its symbols. `torch.cond` captures its branches
        in another one, whose symbols have the same names.
        """
        number = None if env is None else self._environments.get(env)
        return tuple(
            Constraint(
                raw.kind,
                raw.text,
                raw.call.method,
                raw.place,
                frames.python_frames(raw.stacks.real),
                frames.traced_frames(raw.stacks.traced),
                frames.native_frames(raw.native) if raw.native is not None else (),
                raw.follows,
                raw.message,
                raw.origins,
            )
            for (environment, _, _), raw in self._constraints.items()
            if number in (None, environment) and wanted(raw.text, raw.message)
        )

    def refused(self, error: BaseException) -> tuple[tuple[Frame, ...], str]:
        """The native frames below an op that raised because its output is data, and the op that made its
        first argument.

        Symbolizes the frames.
        """
        # Compared by identity, because the class is a dataclass without a hash.
        refusal = next((one for one in self._refusals if one.error() is error), None)
        return (frames.native_frames(refusal.native), refusal.maker) if refusal is not None else ((), "")

    def seen(self, error: BaseException) -> _RawRaise | None:
        """The error of an undecided guard as it was recorded; None for another error."""
        # Only a recorded error can be looked up: others may not support weak references or a hash.
        return self._raises[error] if any(error is seen for seen in self._raises) else None

    def _quoted(self, error: BaseException) -> _RawRaise | None:
        if not is_of(error, RuntimeError):
            return None
        message = message_of(error)
        return next((raw for message_line, raw in self._quotable.items() if message_line in message), None)

    # The methods below are called by the hooks.

    def record_fallback(self, env: Any, expression: Any, fallback: bool, frame: FrameType) -> Place:
        """Record that a guard under `frame` takes its fallback, or an experiment's value in its place."""
        call, where, line = self._evaluated_at(frame, "guard_or_true" if fallback else "guard_or_false")
        place = self._place(where, line)
        forced = self.answer_at(place, expression)
        if forced is not None and forced.value is not None:
            fallback = forced.value
            self._forced.setdefault((where, line, expression), frames.take(frame, self.root))
        key = _GuardKey(where, line, call.method, expression, fallback, self._counterfactual(env, expression, fallback))
        if self.listener is not None and key not in self._guards:
            self.listener.on_fallback(place, frames.function_of(where), call.method, fallback)
        self._guards[key] = self._guards.get(key, 0) + 1
        return place

    def answer_at(self, place: Place, expression: Any) -> Answer | None:
        """The experiment's value for an undecided guard at a place, if it has one."""
        text = self._text(expression) if self.answers else ""
        return next((one for one in self.answers if one.fits(place, text)), None)

    def answer_to_error(self, error: BaseException) -> tuple[Answer | None, Any]:
        """The experiment's value for a guard that raised this error, if it has one, and the expression."""
        raw = self.seen(error)
        return (None, None) if raw is None else (self.answer_at(raw.place, raw.expression), raw.expression)

    def record_error(self, error: BaseException, expression: Any, frame: FrameType) -> None:
        """Record a data-dependent error with everything needed to explain it, in case it becomes the final failure."""
        call, where, line = self._evaluated_at(frame, "")
        place = self._place(where, line)
        raw = _RawRaise(
            expression=expression,
            call=call,
            place=place,
            stacks=frames.take(frame, self.root),
            native=frames.native_backtrace()
            if place.language == "C++" or place.file in torch_api.SIZES_FOR_CXX
            else None,
            withheld=self.withholding,
            origins=tuple(
                (str(symbol), self._origins[symbol])
                for symbol in sorted(expression.free_symbols, key=str)
                if symbol in self._origins
            ),
            module=module_path(frame),
            variables=frames.variables(frame) if self.explains else (),
        )
        self._raises[error] = raw
        if place.language == "C++" and call.method in TRUTHS:
            self._quotable[str(error).partition("\n")[0]] = raw
        if any(code.co_filename.endswith(torch_api.SHARDING_BY_DECOMPOSITION.path) for code, _, _ in raw.stacks.real):
            self._caught = raw
        if self.listener is not None:
            self.listener.on_error(error)

    def record_answer(self, error: BaseException, value: Any) -> None:
        """Record the value that was given in place of an error. Another visit of the same guard counts once."""
        raw = self.seen(error)
        if raw is not None and len(self._answered) < MOST_ANSWERED:
            self._answered.setdefault((raw.place, str(raw.expression)), (raw, plain_value(value)))

    def record_constraint(
        self,
        kind: ConstraintKind,
        text: str,
        symbols: Iterable[Any],
        frame: FrameType,
        message: str = "",
        *,
        env: Any = None,
    ) -> None:
        """Record the code that made a constraint on these symbols of a ShapeEnv first. `message` counts for the user's
        code alone.
        """
        number = 0 if env is None else self._environments.setdefault(env, len(self._environments) + 1)
        key = (number, kind, text)
        if key in self._constraints:
            return
        call, where, line = self._evaluated_at(frame, "")
        place = self._place(where, line)
        native = frames.native_backtrace() if place.language == "C++" or kind == "guard" else None
        stacks = frames.take(frame, self.root)
        follows = "" if kind == "assertion" else self.asserting
        message = "" if place.file.startswith("torch/") else message
        origins = tuple(sorted({self._origins[symbol].op for symbol in symbols if symbol in self._origins}))
        self._constraints[key] = _RawConstraint(kind, text, call, place, stacks, native, follows, message, origins)

    def source_of(self, range_: str) -> str:
        """The assertion that torch derived a range from; empty if there is none."""
        made = (raw.follows for (_, kind, text), raw in self._constraints.items() if (kind, text) == ("range", range_))
        return next(made, "")

    def place_at(self, frame: FrameType) -> Place:
        """The place of the code under `frame` that evaluates a guard or makes an assertion."""
        return self._place(*self._evaluated_at(frame, "")[1:])

    def record_refusal(self, error: BaseException) -> None:
        """Record the caller of an op whose output is data."""
        first = id(self.arguments[0]) if self.arguments else None
        maker = next((str(op) for made, op in reversed(self.makers) if made == first), "")
        self._refusals.append(_Refusal(weakref.ref(error), frames.native_backtrace(), maker))

    def record_symbols(self, symbols: Iterable[Any], source: str, frame: FrameType) -> None:
        """Record the op that made a symbol, and its caller. `source` is torch's name of an input's dim, or empty."""
        stacks = frames.take(frame, self.root)
        own = frames.is_from_own(stacks)
        dim = self.inputs.dim(source, frame) if source or own else ""
        origin = _Origin("input" if source or own else frames.making_op(frame), stacks, dim)
        for symbol in symbols:
            self._origins[symbol] = origin
            if self.assumed is not None:
                self.assumed.note(symbol, dim)

    def _evaluated_at(self, frame: FrameType | None, direct: str) -> tuple[NodeCall, CodeType | str, int]:
        """The method, and the place that evaluated the guard: C++'s file and line, or a code object and its line."""
        call = self.node_call
        if call is not None and call.file:
            return call, frames.display_cpp_file(call.file), call.line
        method = direct
        while frame is not None and frames.passes_on(frame.f_code):
            if not frame.f_code.co_name.startswith(frames.HOOK_PREFIX):
                method = frame.f_code.co_name
            frame = frame.f_back
        if frame is None:
            raise AssertionError("a guard was evaluated by no frame at all")
        code, line = frame.f_code, frame.f_lineno or 0
        if code.co_filename.startswith(_DYNAMO):
            # Dynamo guards for the code that it interprets; non-strict export runs that code directly.
            traced = frames.take(frame, self.root).traced
            if traced:
                code, line = traced[0].code, traced[0].line
        return call or NodeCall(method, "", 0), code, line

    def _place(self, code: CodeType | str, line: int) -> Place:
        if isinstance(code, str):
            return Place("C++", code, line)
        if (code, line) not in self._places:
            self._places[code, line] = Place("Python", frames.display_file(code.co_filename), line)
        return self._places[code, line]

    def _counterfactual(self, env: Any, expression: Any, fallback: bool) -> Counterfactual:
        # Evaluated once per expression, as the lru_cache of size-oblivious semantics would do.
        known = self._oblivious.setdefault(env, {})
        if expression not in known:
            answer = torch_api.bound(torch_api.EVALUATE_STATIC)(env, expression, size_oblivious=True)
            known[expression] = None if answer is None else bool(answer)
        value = known[expression]
        return "undecided" if value is None else "same" if value is fallback else "other"


_CHILD = re.compile(r"\._modules\['([^']+)'\]|\['([^']+)'\]|\[(\d+)\]")
_WRAPPERS = ("ddefuzz.", "torch.export", "torch._")
"""The start of the names of modules whose classes are put around a user's model."""
_ROOT = re.compile(r"L\['\w+'\]\.?")


def module_path(frame: FrameType | None) -> str:
    """The path of the innermost module under a frame, as `named_modules` has it; empty for none and for the model."""
    running: list[Any] = []
    traced = ""
    while frame is not None:
        if frame.f_code is frames.step_code():
            traced = traced or _traced_path(frame.f_locals["self"])
        owner = frame.f_locals.get("self") if "self" in frame.f_code.co_varnames else None
        if isinstance(owner, torch.nn.Module) and not type(owner).__module__.startswith(_WRAPPERS):
            running.append(owner)
        frame = frame.f_back
    return traced or _path(running)


def module_in(traceback: TracebackType | None) -> str:
    """The same for the innermost frame of a traceback."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return module_path(traceback.tb_frame) if traceback is not None else ""


def _path(running: list[Any]) -> str:
    """The path of the first of these modules in the outermost that contains it."""
    for root in reversed(running):
        for name, module in modules_in(root):
            if module is running[0]:
                return name
    return ""


def modules_in(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules in a module, as `named_modules` has them. That needs their hash, which may be the user's."""
    known = set[int]()
    following = [("", root)]
    while following:
        path, module = following.pop()
        if module is None or id(module) in known:
            continue
        known.add(id(module))
        yield path, module
        children = reversed(vars(module).get("_modules", {}).items())
        following += [(f"{path}.{name}" if path else name, child) for name, child in children]


def _traced_path(translator: Any) -> str:
    """The path that dynamo has for the module whose code it interprets."""
    stack = list(getattr(translator, torch_api.MODULE_STACK, {}).values())
    if not stack:
        return ""
    path = _ROOT.sub("", str(stack[-1][0]), count=1)
    return ".".join(_parts(path))


def _parts(path: str) -> Iterator[str]:
    for part in _CHILD.sub(lambda match: "." + "".join(filter(None, match.groups())), path).split("."):
        if part and part != torch_api.EXPORT_ROOT:
            yield part
