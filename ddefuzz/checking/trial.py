"""Try a change in this process: the original and the changed code in eager, then each capture, on the same inputs."""

from __future__ import annotations

import builtins
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import msgspec
import torch

from ddefuzz.checking.changes import DECIDED, Candidate, ChangedFile, Comparison, InputDim, Interface, TrialResult
from ddefuzz.checking.owner import full_path
from ddefuzz.checking.patch import CLASS
from ddefuzz.checking.variants import Variant, held_out_of, variants_of
from ddefuzz.execute.exercise import differences
from ddefuzz.execute.observe import captured_output, observe_in
from ddefuzz.execute.prepared import Prepared, leaf_names, leaves_of, parameter_names
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, Stage, Subject
from ddefuzz.execute.source_change import exchanged
from ddefuzz.execute.stages import Capture, stage_function
from ddefuzz.execute.subject import message_of, prepare, seed
from ddefuzz.instrument.events import PROGRAM_FILE

COMPARED = frozenset({"structure", "number", "dtype", "shape", "values", "mutation"})
"""The differences by which a change does not agree with the original. Strides and memory may be others."""

SAID_LIMIT = 200

UNDETERMINED = "the inputs do not determine the result"
"""What stands for the error of the original where two calls of it differ."""


class _Result(NamedTuple):
    """What a call did: its error, or its result and the arguments afterwards."""

    error: str
    value: Any = None
    args: Sequence[Any] = ()


_Expectation: TypeAlias = tuple[Variant, _Result]
"""Inputs, and what the original does with them."""


def try_change(candidate: Candidate) -> TrialResult:
    """Try a change: first in eager, then in the stages, up to the first that fails."""
    make = partial(prepare, candidate.subject)
    variants = (held_out_of if candidate.held_out else variants_of)(make(), leaf_names(make()))
    with captured_output():
        calls = [(variant, _determined(make, variant)) for variant in variants]
        sides = tuple(_sides(candidate, calls))
    changed = _changed(candidate)
    with _swapped(candidate.files):
        with captured_output():
            compared = [_compare(changed, variant, expected) for variant, expected in calls]
        eager = TrialResult((), tuple(compared), sides)
        if not eager.agrees or (any(one.refused for one in compared) and not candidate.may_refuse):
            return eager
        observations: list[Observation] = []
        for stage in candidate.stages:
            observed, compared = _captured(candidate.subject, stage, changed, calls, compared)
            observations.append(observed)
            if observed.outcome != "ok":
                break
    return TrialResult(tuple(observations), tuple(compared), sides)


def _determined(make: Callable[[], Prepared], variant: Variant) -> _Result:
    """What the original does. Inputs for which it returns memory that nothing wrote count as refused.

    The second call fills new memory with NaN or the greatest integer, so that such results differ in each run.
    """
    first = _run(make, variant.resized, _call)
    with _filled_memory():
        again = _run(make, variant.resized, _call)
    return _Result(UNDETERMINED) if not first.error and _difference(first, again, arguments=True) else first


@contextmanager
def _swapped(files: Sequence[ChangedFile]) -> Iterator[None]:
    """Functions of these files run their changed source. The text of a program is changed elsewhere."""
    with ExitStack() as stack:
        for one in files:
            if one.path != PROGRAM_FILE:
                stack.enter_context(exchanged(one.path, one.before, one.after))
        yield


@contextmanager
def _filled_memory() -> Iterator[None]:
    """Memory that torch allocates is filled (`torch.utils.deterministic.fill_uninitialized_memory`)."""
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)


def _captured(
    subject: Subject,
    stage: Stage,
    make: Callable[[], Prepared],
    calls: Sequence[_Expectation],
    compared: list[Comparison],
) -> tuple[Observation, list[Comparison]]:
    """Capture in one stage and call what was captured on all inputs that the original takes."""
    after = compared

    def call_all(capture: Capture) -> None:
        nonlocal after
        after = [_with_capture(one, capture, stage, make, call) for one, call in zip(compared, calls, strict=True)]

    observed = observe_in(stage_function(stage, called=False), make, Run(subject, stage), then=call_all)
    return observed, after


def _with_capture(
    compared: Comparison, capture: Capture, stage: Stage, make: Callable[[], Prepared], call: _Expectation
) -> Comparison:
    """What the captured program did with these inputs too."""
    variant, expected = call
    if expected.error:
        return compared
    seen = _run(make, variant.masked if capture.static_dims else variant.resized, capture.compute)
    if seen.error:
        return msgspec.structs.replace(compared, captured=(*compared.captured, (stage, seen.error)))
    difference = _difference(expected, seen, arguments=not capture.static_dims)
    return msgspec.structs.replace(compared, differs=compared.differs or (difference and f"{stage}: {difference}"))


def _compare(make: Callable[[], Prepared], variant: Variant, expected: _Result) -> Comparison:
    seen = _run(make, variant.resized, _call)
    differs = "" if seen.error or expected.error else _difference(expected, seen, arguments=True)
    return Comparison(variant.inputs, expected.error, seen.error, differs=differs)


def describe(subject: Subject) -> Interface:
    """What the inputs of a subject are called, and where its function is defined."""
    with captured_output():
        prepared = prepare(subject)
    names = leaf_names(prepared)
    symbols = {(place.leaf, place.dim): place.symbol for place in prepared.unbacked}
    dims = tuple(
        InputDim(names[at], dim, size, symbols.get((at, dim), ""))
        for at, leaf in enumerate(leaves_of(prepared))
        if isinstance(leaf, torch.Tensor)
        for dim, size in enumerate(leaf.shape)
    )
    parameters = (*parameter_names(prepared)[: len(prepared.args)], *prepared.kwargs)
    if not all(map(str.isidentifier, parameters)):
        parameters = ()  # a wrapper could not name them
    function = inspect.unwrap(_function(prepared.call))
    code = getattr(function, "__code__", None)
    file = PROGRAM_FILE if isinstance(subject, ProgramSubject) else full_path(code.co_filename) if code else ""
    positional, keywords = parameters[: len(prepared.args)], parameters[len(prepared.args) :]
    return Interface(positional, keywords, dims, file, code.co_firstlineno if code else 0)


def _function(call: Callable[..., Any]) -> Any:
    return call.forward.__func__ if isinstance(call, torch.nn.Module) and hasattr(call.forward, "__func__") else call


def _changed(candidate: Candidate) -> Callable[[], Prepared]:
    """Makes the changed subject with new arguments."""
    subject = candidate.subject
    if isinstance(subject, ProgramSubject) and candidate.files:
        subject = ProgramSubject(candidate.files[0].after, subject.backed)
    if not candidate.wrapper:
        return lambda: prepare(subject)
    scope: dict[str, Any] = {"torch": torch}
    exec(candidate.wrapper, scope)

    def make() -> Prepared:
        prepared = prepare(subject)
        return replace(prepared, call=scope[CLASS](prepared.call))

    return make


def _sides(candidate: Candidate, calls: Sequence[_Expectation]) -> Iterator[bool]:
    """The outcomes of the decisions that the change removes, over inputs that the original takes."""
    if not candidate.probed:
        return
    seen: set[bool] = set()

    def decided(value: Any) -> Any:
        seen.add(bool(value))
        return value

    make = partial(prepare, candidate.subject)
    with _builtin(DECIDED, decided), _swapped(candidate.probed):
        for variant, expected in calls:
            if not expected.error:
                _run(make, variant.resized, _call)
    yield from sorted(seen)


@contextmanager
def _builtin(name: str, value: Any) -> Iterator[None]:
    vars(builtins)[name] = value
    try:
        yield
    finally:
        del vars(builtins)[name]


def _difference(expected: _Result, seen: _Result, *, arguments: bool) -> str:
    pairs = [(expected.value, seen.value, "result"), (expected.args, seen.args, "arguments")]
    every = (one for left, right, where in pairs[: 1 + arguments] for one in differences(left, right, where))
    return next((f"{one.where}: {one.how}" for one in every if one.what in COMPARED), "")


def _call(prepared: Prepared) -> Any:
    return prepared.call(*prepared.args, **prepared.kwargs)


def _run(
    make: Callable[[], Prepared], vary: Callable[[Prepared], Prepared], compute: Callable[[Prepared], Any]
) -> _Result:
    try:
        fresh = vary(make())
        seed()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = compute(fresh)
    except Exception as error:  # noqa: BLE001 the subject is under test: that it raises is the observation
        first = message_of(error).strip().partition("\n")[0][:SAID_LIMIT]
        return _Result(f"{type(error).__name__}: {first}")
    return _Result("", value, leaves_of(fresh))
