"""Counts the compilations of one function over a sequence of calls, and keeps the guards that its graphs have."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import sympy  # type: ignore[import-untyped]
import torch

from ddefuzz.execute.exercise import resized
from ddefuzz.execute.observe import Stopwatch
from ddefuzz.execute.preparation import PreparedSubject, leaves_of, parameter_names, with_leaves
from ddefuzz.execute.protocol import (
    Call,
    CallableSubject,
    CallEnd,
    Observation,
    ProgramSubject,
    Run,
    Subject,
    measured,
    not_judged,
)
from ddefuzz.execute.stages import eager
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.guards import disguised, watch
from ddefuzz.instrument.recorder import Recorder
from ddefuzz.internal import exception_chain, message_of
from ddefuzz.keys.case import Options
from ddefuzz.keys.key import Key, paths
from ddefuzz.oracles.recompilation import MODE_OF, CallSequence, Mode
from ddefuzz.program.sizes import CallSize

_SIZE: Final = re.compile(r"^L\['(\w+)'\]\.(size|stride)\(\)\[(\d+)\]$")
_OFFSET: Final = re.compile(r"^L\['(\w+)'\]\.storage_offset\(\)$")

POLICY: Final = Options(sizes="01", strides="pattern", alignment=False)
"""What torch.compile has to tell apart. Other sizes can share a graph whose sizes are symbols."""

WHOLE: Final = Options(alignment=False)

MESSAGE: Final = 300


class GuardNote(NamedTuple):
    """A guard that a compilation added: the call, the expression, and where its symbols come from."""

    call: int
    expression: Any
    sources: dict[Any, str]
    name: str


@dataclass(slots=True)
class _Notes:
    call: int = 0
    guards: list[GuardNote] = field(default_factory=list)


def run(task: Run) -> Observation:
    """Compile a subject and call it at each of the sizes. It is not judged if eager or torch.compile raises."""
    refused = refusal(prepare(task.subject)) if isinstance(task.subject, CallableSubject) else ""
    sized = at_sizes(task.subject, task.calls) if not refused else []
    if not sized:
        return not_judged(task, refused or "its inputs cannot have these sizes")
    try:
        for _, make in sized:
            eager(make())
    except Exception as error:  # noqa: BLE001 the subject is under test
        return not_judged(task, f"eager: {message_of(error)}".partition("\n")[0])
    stopwatch = Stopwatch()
    prepared = [make() for _, make in sized]
    names = parameter_names(prepared[0])
    counted = count(prepared[0].call, names, [one.args for one in prepared], MODE_OF[task.stage])
    if counted.is_above and counted.failed is not None:
        calls = [make() for _, make in sized]
        keys = [_keys(POLICY, one.args) for one in calls]
        equal = _duck_sized(names, [one.args for one in calls], keys, counted.compiled[: counted.allowed + 1])
        if equal:  # the guard that failed may follow from two sizes that are one symbol
            duck = {torch_api.DUCK_SHAPE: False}
            with torch_api.changed_settings(torch_api.SHAPES_PATCH, duck):
                told_apart = count(calls[0].call, names, [one.args for one in calls], MODE_OF[task.stage])
            if not told_apart.is_above and not told_apart.error:
                counted = msgspec.structs.replace(counted, guard=equal, failed=None)
    return stopwatch.read(
        Observation(
            task.stage,
            task.semantics,
            "not-judged" if counted.error else "ok",
            counted.error,
            calls=tuple(
                Call(size, CallEnd(), CallEnd(), recompiled=at in counted.compiled)
                for at, (size, _) in enumerate(sized)
            ),
            compiles=len(counted.compiled),
            measured=measured(counted),
        )
    )


def count(call: Callable[..., Any], names: Sequence[str], calls: Sequence[tuple[Any, ...]], mode: Mode) -> CallSequence:
    """Call the function compiled with a backend that counts. `names` are those of its parameters."""
    keys = [_keys(POLICY, args) for args in calls]
    allowed = _allowed(keys, [_keys(WHOLE, args) for args in calls], mode)
    groups = [tuple(at for at, one in enumerate(keys) if one == key) for key in dict.fromkeys(keys)]
    shareable = tuple(group for group in groups if len(group) > 1)
    compiled: list[int] = []
    notes = _Notes()

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        del inputs
        compiled.append(notes.call)
        return graph.forward

    limit = len(calls) + 8
    limits = torch_api.changed_settings(torch_api.DYNAMO_CONFIG, dict.fromkeys(torch_api.RECOMPILE_LIMITS, limit))
    torch_api.bound(torch_api.DYNAMO_RESET)()
    with limits, watch() as recorder, _noting(notes, recorder):
        # An error would otherwise become a graph break, and the unbacked function would silently run in eager.
        whole, dynamic = mode == "unbacked", True if mode == "dynamic" else None
        function = torch.compile(call, backend=backend, dynamic=dynamic, fullgraph=whole)
        error: BaseException | None = None
        for at, args in enumerate(calls):
            notes.call = at
            _mark(calls, args, mode)
            try:
                function(*args)
            except Exception as failure:  # noqa: BLE001 what compiling raises is the result
                error = failure
                break
        at_calls = tuple(dict.fromkeys(compiled))
        # The first one too many has a reason already. Later calls would change which guard is named.
        first = at_calls[: allowed + 1]
        culprit = _culprit(notes, names, calls, keys, first) if len(at_calls) > allowed else None
        raised = None if error is None else recorder.raised(exception_chain(error))
        duck = _duck_sized(names, calls, keys, first) if len(at_calls) > allowed and culprit is None else ""
        stacks = recorder.constraints(lambda text, _message: culprit is not None and text == culprit.name)
    return CallSequence(
        at_calls,
        allowed,
        shareable,
        duck if culprit is None else str(culprit.expression),
        msgspec.structs.replace(stacks[0], text=str(culprit.expression)) if culprit is not None and stacks else None,
        "" if error is None else " ".join(f"{type(error).__name__}: {message_of(error)}".split())[:MESSAGE],
        raised,
    )


def _keys(options: Options, args: tuple[Any, ...]) -> tuple[Key, ...]:
    return tuple(paths(options).key(arg) for arg in args if isinstance(arg, torch.Tensor))


def _allowed(keys: list[tuple[Key, ...]], whole: list[tuple[Key, ...]], mode: Mode) -> int:
    """One graph for each key; with default settings one more if sizes differ, because the first graph is static."""
    needed = 0
    for key in set(keys):
        exact = {one for one, other in zip(whole, keys, strict=True) if other == key}
        needed += 2 if mode == "default" and len(exact) > 1 else 1
    return needed


def varying(calls: Sequence[tuple[Any, ...]]) -> list[tuple[int, int]]:
    """The dims that differ between the calls, as argument and dim."""
    return [
        (position, dim)
        for position, arg in enumerate(calls[0])
        if isinstance(arg, torch.Tensor)
        for dim in range(arg.dim())
        if len({args[position].shape[dim] for args in calls}) > 1
    ]


def _mark(calls: Sequence[tuple[Any, ...]], args: tuple[Any, ...], mode: Mode) -> None:
    for position, dim in varying(calls) if mode in ("marked", "unbacked") else ():
        if mode == "marked":
            torch_api.bound(torch_api.MARK_BACKED)(args[position], dim)
        else:
            sizes = "-".join(str(one[position].shape[dim]) for one in calls)
            torch_api.bound(torch_api.MARK_UNBACKED)(args[position], dim, shape_id=sizes)


@contextmanager
def _noting(notes: _Notes, recorder: Recorder) -> Iterator[None]:
    """Note every guard that is added, with its stacks."""
    api = torch_api.EVALUATE_EXPR
    original = torch_api.bound(api)

    def ddefuzz_note_guard(env: Any, *args: Any, **kwargs: Any) -> Any:
        before = len(env.guards)
        answer = original(env, *args, **kwargs)
        if len(env.guards) > before:
            expression = env.guards[-1].expr
            name = f"{len(notes.guards)}: {expression}"
            symbols = env.var_to_sources
            sources = {one: _name_of(symbols[one][0]) for one in expression.free_symbols if symbols.get(one)}
            notes.guards.append(GuardNote(notes.call, expression, sources, name))
            recorder.record_constraint("guard", name, (), sys._getframe())
        return answer

    with api.replaced(disguised(api, ddefuzz_note_guard)):
        yield


def _name_of(source: Any) -> str:
    """A source's name, which some versions of torch have as a method."""
    return str(source.name() if callable(source.name) else source.name)


def _culprit(
    notes: _Notes,
    names: Sequence[str],
    calls: Sequence[tuple[Any, ...]],
    keys: list[tuple[Key, ...]],
    compiled: tuple[int, ...],
) -> GuardNote | None:
    """The guard that failed first in the newest graph at a call that should have reused it.

    The first graph of a key is static with default settings and has no guards, so later calls are looked at first.
    """
    for at in reversed(compiled):
        values = dict(zip(names, calls[at], strict=False))
        for earlier in reversed([one for one in compiled if one < at and keys[one] == keys[at]]):
            of_graph = [one for one in notes.guards if one.call == earlier]
            guard = next((one for one in of_graph if _is_false(one, values)), None)
            if guard is not None:
                return guard
    return None


def _duck_sized(
    names: Sequence[str], calls: Sequence[tuple[Any, ...]], keys: list[tuple[Key, ...]], compiled: tuple[int, ...]
) -> str:
    """The equality of two sizes that is false in a later call: `ShapeEnv.create_symbol` gives equal ones one symbol."""
    for at in reversed(compiled):
        for earlier in reversed([one for one in compiled if one < at and keys[one] == keys[at]]):
            before, now = _sizes(names, calls[earlier]), _sizes(names, calls[at])
            for (first, size), (second, other) in combinations(before.items(), 2):
                if size == other > 1 and now[first] != now[second]:
                    return f"Eq({second}, {first})"
    return ""


def _sizes(names: Sequence[str], args: tuple[Any, ...]) -> dict[str, int]:
    tensors = [(name, arg) for name, arg in zip(names, args, strict=False) if isinstance(arg, torch.Tensor)]
    return {f"{name}.size()[{dim}]": size for name, arg in tensors for dim, size in enumerate(arg.shape)}


def _is_false(guard: GuardNote, values: dict[str, Any]) -> bool:
    known = {}
    for symbol, source in guard.sources.items():
        value = _value(source, values)
        if value is not None:
            known[symbol] = sympy.Integer(value)
    return bool(guard.expression.xreplace(known) == sympy.false)


def _value(source: str, values: dict[str, Any]) -> int | None:
    """The number that a source names, such as `L['x'].size()[0]`."""
    sized, offset = _SIZE.match(source), _OFFSET.match(source)
    if sized is not None and isinstance(values.get(sized[1]), torch.Tensor):
        numbers = values[sized[1]].shape if sized[2] == "size" else values[sized[1]].stride()
        return int(numbers[int(sized[3])])
    if offset is not None and isinstance(values.get(offset[1]), torch.Tensor):
        return int(values[offset[1]].storage_offset())
    return None


Sized: TypeAlias = tuple[CallSize, Callable[[], PreparedSubject]]
"""A size, and a function that prepares a new subject of that size."""


def at_sizes(subject: Subject, sizes: Iterable[CallSize]) -> list[Sized]:
    """The subject at each size that its inputs can have. The sizes of user code must be numbers."""
    if isinstance(subject, ProgramSubject):
        subjects = ((size, resized(subject, size)) for size in sizes)
        return [(size, partial(prepare, at)) for size, at in subjects if at is not None]
    return [(size, partial(_with_size, subject, int(size))) for size in sizes]


def refusal(prepared: PreparedSubject) -> str:
    """Why user code cannot be called at other sizes; empty if it can."""
    tensors = [leaf for leaf in leaves_of(prepared) if isinstance(leaf, torch.Tensor)]
    if prepared.kwargs or len(tensors) > sum(isinstance(one, torch.Tensor) for one in prepared.args):
        return "only tensors that are positional arguments can get other sizes"
    if not prepared.unbacked:
        return "no dim of its arguments is said to be unbacked (--unbacked, NAME_unbacked)"
    if any(not leaves_of(prepared)[place.leaf].shape[place.dim] for place in prepared.unbacked):
        return "an unbacked dim of its example arguments has the size 0"
    return ""


def _with_size(subject: Subject, size: int) -> PreparedSubject:
    """The subject with this size in each of its unbacked dims: the example's values, repeated or cut."""
    prepared = prepare(subject)

    def sized(at: int, leaf: Any) -> Any:
        places = [place for place in prepared.unbacked if place.leaf == at]
        if not places:
            return leaf
        grows = leaf.requires_grad
        for place in places:
            leaf = leaf.detach().index_select(place.dim, torch.arange(size) % leaf.shape[place.dim])
        return leaf.requires_grad_(grows)

    args, kwargs = with_leaves(prepared.args, prepared.kwargs, sized)
    return replace(prepared, args=args, kwargs=kwargs)
