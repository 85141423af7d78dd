"""Compiles and times the versions of a subject, in a worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from types import FunctionType
from typing import Any, NamedTuple

import msgspec
import torch

from ddefuzz.artifacts.graph import assertions_in_code
from ddefuzz.artifacts.model import failure_of
from ddefuzz.artifacts.trace import GUARDS, Entry, part_of, traced
from ddefuzz.cost.model import SIZES, Code, Look, LookTask, Question, TimeTask, Timing, VersionName
from ddefuzz.cost.questions import Interview, interviewed, place_of, sizes_of, undecided
from ddefuzz.cost.rounds import microseconds
from ddefuzz.errors import InputError
from ddefuzz.execute.comparison import differences
from ddefuzz.execute.limit import cpu_seconds
from ddefuzz.execute.observe import captured_output, clean_slate, kept_apart, observe_in
from ddefuzz.execute.preparation import PreparedSubject, UnbackedDim, as_static, leaves_of, with_leaves
from ddefuzz.execute.protocol import Run, Semantics, Subject
from ddefuzz.execute.stages import Capture, CaptureEndedError, code_only, mark
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Answer, Place
from ddefuzz.instrument.guards import watch
from ddefuzz.internal import message_of
from ddefuzz.oracles.kernels import kernels_in

PHASES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "dynamo": (("bytecode_tracing", "build_guards"), ()),
    "AOTAutograd": (("create_aot_dispatcher_function",), ("compile_fx_inner",)),
    "inductor": (("compile_fx_inner",), ("compile_file",)),
    "C++": (("compile_file",), ()),
}
"""The phases of a compilation: entries of torch's own clock (torch/_dynamo/utils.py) whose sum each is, without those
of the phases inside of it.
"""

ANSWERED = "answered"

ROUNDING = 1e-3
"""Inductor computes in another order than eager."""


def version_of(prepared: PreparedSubject, version: VersionName) -> PreparedSubject | str:
    """The subject with its dims told to torch in this way, or why there is no such version."""
    places, sizes = prepared.unbacked, _sizes(prepared)
    plain = as_static(prepared)
    match version:
        case "static":
            return plain
        case "backed":
            return replace(plain, backed=places)
        case "unbacked":
            return replace(plain, unbacked=places, marks=prepared.marks)
        case "hints":
            return replace(
                plain, unbacked=places, marks={name: {"hint_override": size} for name, size in sizes.items()}
            )
        case "shape-id":
            shared = {size: name for name, size in reversed(sizes.items())}
            if len(shared) == len(sizes):
                return "each symbol has another size"
            joined = tuple(place._replace(symbol=shared[sizes[place.symbol]]) for place in places)
            return replace(plain, unbacked=joined, marks={})
        case "bounds":
            if min(sizes.values()) < 2:
                return "a size is less than 2"
            bounds = {name: {"min": 2, "max": 2 * size} for name, size in sizes.items()}
            return replace(plain, unbacked=places, marks=bounds)


def _sizes(prepared: PreparedSubject) -> dict[str, int]:
    """The example's sizes of the symbols."""
    leaves = leaves_of(prepared)
    return {place.symbol: int(leaves[place.leaf].shape[place.dim]) for place in reversed(prepared.unbacked)}


def scaled(prepared: PreparedSubject, places: Sequence[UnbackedDim], factor: float) -> PreparedSubject | None:
    """The subject with these dims larger or smaller, with the elements it has; None if one of them becomes empty."""
    leaves = leaves_of(prepared)
    sizes = [int(leaves[place.leaf].shape[place.dim]) for place in places]
    if factor == 1:
        return prepared
    if any(int(size * factor) < 1 for size in sizes):
        return None

    def change(at: int, leaf: Any) -> Any:
        for place, size in zip(places, sizes, strict=True):
            if place.leaf == at:
                leaf = leaf.index_select(place.dim, torch.arange(int(size * factor)) % size)
        return leaf

    args, kwargs = with_leaves(prepared.args, prepared.kwargs, change)
    return replace(prepared, args=args, kwargs=kwargs)


def look(task: LookTask) -> Look:
    """Compile a version until the C++ compiler. Whatever it raises becomes the failure of the record."""
    interview = _interview(task.answered, task.left)
    reason = ""
    code: list[str] = []
    entries: list[Entry] = []

    def make() -> PreparedSubject:
        nonlocal reason
        made = version_of(_dynamic(task.subject, task.scale), task.version)
        if isinstance(made, str):
            reason = made
            raise InputError(made)
        return made

    def stage(prepared: PreparedSubject) -> Capture | None:
        with torch.no_grad(), traced() as log, code_only(code), interviewed(interview):
            _called_once(prepared, interview)
        entries.extend(log)
        return None

    try:
        semantics = Semantics(answers=_answers(task.answered))
        observed = observe_in(stage, make, Run(task.subject, "inductor", semantics))
    except InputError:
        if not reason:
            raise
        return Look(task.version, "not-judged", reason)
    if observed.outcome != "ok" or not code:
        raised = observed.exceptions
        line = raised[-1].message.strip().partition("\n")[0] if raised else observed.reason
        return Look(task.version, observed.outcome, line or "inductor generated no code", failure_of(observed))
    questions = (*undecided(observed.guards, interview.sizes), *interview.questions.values())
    guards = sum(len(part_of("guards", "guards", entry.text).assertions) for entry in entries if entry.name == GUARDS)
    return Look(task.version, "ok", code=code_of(code, guards), questions=questions)


def _interview(answered: Sequence[Question], left: Sequence[Question]) -> Interview:
    return Interview({place_of(one) for one in answered}, {place_of(one) for one in left})


def _answers(questions: Sequence[Question]) -> tuple[Answer, ...]:
    """The answers to those questions that are guards."""
    return tuple(
        Answer(Place("Python", one.file, one.line), one.wish == "True", one.expression)
        for one in questions
        if one.kind == "guard"
    )


def _dynamic(subject: Subject, scale: int) -> PreparedSubject:
    """The subject, which has dims that can be unbacked, with these dims `scale` times as large."""
    prepared = prepare(subject)
    if not (prepared.unbacked or prepared.backed):
        raise InputError(
            "found no dim of an argument that is unbacked, expected one: --unbacked NAME:DIM, NAME_unbacked, "
            "mark_unbacked, or a program with a symbol such as u0"
        )
    prepared = prepared if prepared.unbacked else replace(prepared, unbacked=prepared.backed)
    return scaled(prepared, prepared.unbacked, scale) or prepared


def code_of(texts: Sequence[str], guards: int) -> Code:
    """What the texts of a compilation call: one of each graph that it made."""
    kernels = list(map(kernels_in, texts))
    return Code(
        sum(sum(one.generated.values()) for one in kernels),
        sum(sum(one.extern.values()) for one in kernels),
        sum(sum(one.fallback.values()) for one in kernels),
        sum(one.passes for one in kernels),
        sum(one.vectorized for one in kernels),
        guards,
        sum(len(assertions_in_code(text)) for text in texts),
    )


def _called_once(prepared: PreparedSubject, interview: Interview) -> None:
    """Let torch.compile capture the subject, and end its call when inductor has generated the code."""
    compile_graph = _inductor(interview)

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        compile_graph(graph, inputs)

        def end(*_: Any) -> Any:
            raise CaptureEndedError

        return end

    module = torch.compile(_own(prepared.call), backend=backend, fullgraph=True)
    mark(prepared)
    with suppress(CaptureEndedError):
        module(*prepared.args, **prepared.kwargs)


def _inductor(interview: Interview) -> Callable[..., Callable[..., Any]]:
    """The backend inductor, which tells the interview the sizes of a graph first."""
    inductor = torch_api.bound(torch_api.LOOKUP_BACKEND)("inductor")

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        interview.sizes |= sizes_of(graph, inputs)
        made: Callable[..., Any] = inductor(graph, inputs)
        return made

    return backend


def _own(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls the subject, with a code object of its own: dynamo finds no graph of another version."""

    def compiled(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    own = FunctionType(compiled.__code__.replace(), globals(), "compiled", None, compiled.__closure__)
    return own


def time_versions(task: TimeTask) -> tuple[Timing, ...]:
    """Compile the versions for real, and measure their calls and those of eager in turn."""
    with captured_output(), kept_apart(task.subject), clean_slate(own_settings=True), _settings():
        _warm_up()
        compiled: dict[str, tuple[Timing, Callable[..., Any]]] = {}
        made: dict[str, Callable[[], PreparedSubject]] = {}
        for name in task.versions:
            if not isinstance(version_of(_dynamic(task.subject, task.scale), name), str):
                made[name] = partial(_version, task, name)
                compiled[name] = _compiled(name, made[name]())
        if task.answered:
            made[ANSWERED] = partial(_version, task, task.versions[-1])
            compiled[ANSWERED] = _compiled(ANSWERED, made[ANSWERED](), task.answered, task.left)
        timings = {name: one for name, (one, _) in compiled.items()} | {"eager": Timing("eager")}
        for size in sorted(task.sizes, key=lambda name: SIZES[name] != 1):
            # New arguments for each size and version: a call may change them, as a model changes its cache.
            plain = _dynamic(task.subject, task.scale)
            calls = {"eager": _calls(plain.call, scaled(as_static(plain), plain.unbacked, SIZES[size]))}
            for version, (_, function) in compiled.items():
                if not timings[version].error:
                    calls[version] = _calls(function, scaled(made[version](), plain.unbacked, SIZES[size]))
            for version, rounds in _measured(calls, task.rounds).items():
                before = timings[version]
                if isinstance(rounds, str):
                    errors = {**before.errors, size: rounds}
                    timings[version] = msgspec.structs.replace(before, errors=errors)
                else:
                    timings[version] = msgspec.structs.replace(before, rounds={**before.rounds, size: rounds})
    return tuple(timings.values())


def _version(task: TimeTask, name: VersionName) -> PreparedSubject:
    made = version_of(_dynamic(task.subject, task.scale), name)
    assert not isinstance(made, str)
    return made


def _compiled(
    version: str, prepared: PreparedSubject, answered: Sequence[Question] = (), left: Sequence[Question] = ()
) -> tuple[Timing, Callable[..., Any]]:
    """Compile by a first call, with nothing in inductor's caches, and with these questions answered."""
    interview = _interview(answered, left)
    clock = torch_api.PHASE_SECONDS.get()
    function = torch.compile(_own(prepared.call), backend=_inductor(interview), fullgraph=True)
    clock.clear()
    before, own_before = cpu_seconds(), time.process_time()
    try:
        with ExitStack() as stack:
            if answered:
                stack.enter_context(interviewed(interview))
                stack.enter_context(watch("explicit", answers=_answers(answered)))
            mark(prepared)
            function(*prepared.args, **prepared.kwargs)
    except Exception as error:  # noqa: BLE001 a version that does not compile is a result
        return Timing(version, error=_line_of(error)), function
    seconds, own = cpu_seconds() - before, time.process_time() - own_before
    spent = {name: sum(seconds) for name, seconds in clock.items()}
    phases = {
        name: round(sum(spent.get(one, 0.0) for one in inside) - sum(spent.get(one, 0.0) for one in others), 3)
        for name, (inside, others) in PHASES.items()
    }
    return Timing(version, round(seconds, 3), round(seconds - own, 3), phases), function


class Calls(NamedTuple):
    """A call with arguments that are marked, as they were when it was compiled, and one with others that are not."""

    marked: Callable[[], Any]
    plain: Callable[[], Any]


def _calls(function: Callable[..., Any], prepared: PreparedSubject | None) -> Calls | None:
    if prepared is None:
        return None
    copied = as_static(prepared)
    mark(prepared)
    return Calls(lambda: function(*prepared.args, **prepared.kwargs), lambda: function(*copied.args, **copied.kwargs))


def _measured(calls: Mapping[str, Calls | None], rounds: int) -> dict[str, tuple[float, ...] | str]:
    """The microseconds of each call by round, or what is wrong with it. Only that if eager refuses the size.

    What is timed are calls with arguments that are not marked: dynamo would compare the marks in each call.
    """
    results: dict[str, tuple[float, ...] | str] = {}
    timed: dict[str, Callable[[], Any]] = {}
    expected: Any = None
    for version, both in calls.items():
        if both is None:
            return {"eager": "a dim would be empty"}
        try:
            result, again = both.marked(), both.marked()
            expected = result if version == "eager" else expected
            wrong, otherwise = _wrong(expected, result), _wrong(result, again)
            frames = torch_api.DYNAMO_FRAMES.get()
            both.plain()
            call = both.plain if frames == torch_api.DYNAMO_FRAMES.get() else both.marked
        except Exception as error:  # noqa: BLE001 what refuses a size is a result
            results[version] = _line_of(error)
            wrong = otherwise = ""
        else:
            if not (wrong or otherwise):
                timed[version] = call
        if wrong:
            results[version] = f"another result than eager: {wrong}"
        elif otherwise:
            results[version] = f"a second call ends otherwise: {otherwise}"
        if version == "eager" and version in results:
            return results
    return results | dict(zip(timed, microseconds(list(timed.values()), rounds), strict=True))


def _line_of(error: BaseException) -> str:
    """The first line of an error; of that which a backend raised, if dynamo says that one did."""
    inner = getattr(error, "inner_exception", None)
    error = inner if isinstance(inner, BaseException) else error
    return f"{type(error).__name__}: {message_of(error)}".strip().partition("\n")[0]


def _wrong(expected: Any, result: Any) -> str:
    """How a result differs from eager's, but for strides, and for floats but for `ROUNDING` of the largest value."""
    wrong = [one for one in differences(expected, result) if one.what != "strides"]
    others = [one for one in wrong if one.what != "values"]
    if not others and all(map(_close, _tensors(expected), _tensors(result))):
        return ""
    first = (others or wrong)[0]
    return f"{first.where}: {first.how}"


def _tensors(value: Any) -> list[torch.Tensor]:
    leaves = torch_api.bound(torch_api.TREE_LEAVES)(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided]


def _close(expected: torch.Tensor, result: torch.Tensor) -> bool:
    if not (expected.is_floating_point() or expected.is_complex()):
        return torch.equal(expected, result)
    wide = torch.complex128 if expected.is_complex() else torch.float64
    expected, result = expected.to(wide), result.to(wide)
    finite = expected[expected.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(expected, result, rtol=0, atol=ROUNDING * largest, equal_nan=True)


@contextmanager
def _settings() -> Iterator[None]:
    """torch's own settings, but for those without which programs are not captured whole. Static sizes stay static."""
    settings = {
        torch_api.CAPTURE_SCALARS: True,
        torch_api.CAPTURE_DYNAMIC_SHAPES: True,
        torch_api.AUTOMATIC_DYNAMIC: False,
    }
    with (
        torch_api.changed_settings(torch_api.DYNAMO_CONFIG, settings),
        torch_api.changed_settings(
            torch_api.INDUCTOR_CONFIG, {torch_api.COMPILE_THREADS: 1, torch_api.NO_INDUCTOR_CACHES: True}
        ),
        torch_api.bound(torch_api.INDUCTOR_FRESH_CACHE)(),
        torch.no_grad(),
    ):
        yield


@cache
def _warm_up() -> None:
    """Pay for what the first compilation in a process costs: imports, and C++ headers."""
    with suppress(Exception):  # what fails here fails again where it is measured
        torch.compile(torch.nn.functional.relu, fullgraph=True)(torch.randn(64, 64))
    torch_api.bound(torch_api.DYNAMO_RESET)()
