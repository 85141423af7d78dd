"""Try a change in this process: the original and the changed code in eager, then each capture, on the same inputs."""

from __future__ import annotations

import builtins
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

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


def try_change(candidate: Candidate) -> TrialResult:
    """Try a change: first in eager, then in the stages, up to the first that fails."""

    def make() -> Prepared:
        return prepare(candidate.subject)

    variants = (held_out_of if candidate.held_out else variants_of)(make(), leaf_names(make()))
    with captured_output():
        expected = [_determined(make, one) for one in variants]
        compared = [Comparison(one.inputs, original=two.error) for one, two in zip(variants, expected, strict=True)]
        sides = tuple(_sides(candidate, variants, expected))
    changed = _changed(candidate)
    with _swapped(candidate.files):
        with captured_output():
            compared = [
                _compare(one, _run(changed, variant.resized, _call), result)
                for one, variant, result in zip(compared, variants, expected, strict=True)
            ]
        seen = TrialResult((), tuple(compared), sides)
        refuses = any(one.refused for one in compared)
        if not seen.agrees or (refuses and not candidate.may_refuse):
            return seen
        observations: list[Observation] = []
        for stage in candidate.stages:
            observed, compared = _captured(candidate.subject, stage, changed, variants, expected, compared)
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
    variants: tuple[Variant, ...],
    expected: list[_Result],
    compared: list[Comparison],
) -> tuple[Observation, list[Comparison]]:
    """Capture in one stage and call what was captured on all inputs that the original takes."""
    results: dict[int, tuple[str, str]] = {}
    observed = observe_in(
        stage_function(stage, called=False),
        make,
        Run(subject, stage),
        then=lambda capture: results.update(_exercised(capture, make, variants, expected)),
    )
    return observed, [_with_stage(one, stage, results.get(at)) for at, one in enumerate(compared)]


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


def _sides(candidate: Candidate, variants: tuple[Variant, ...], expected: list[_Result]) -> Iterator[bool]:
    """The outcomes of the decisions that the change removes, over inputs that the original takes."""
    if not candidate.probed:
        return
    seen: set[bool] = set()

    def decided(value: Any) -> Any:
        seen.add(bool(value))
        return value

    make = _changed(
        Candidate(candidate.subject, (), candidate.probed if candidate.probed[0].path == PROGRAM_FILE else ())
    )
    with _builtin(DECIDED, decided), _swapped(candidate.probed):
        for variant, result in zip(variants, expected, strict=True):
            if not result.error:
                _run(make, variant.resized, _call)
    yield from sorted(seen)


@contextmanager
def _builtin(name: str, value: Any) -> Iterator[None]:
    vars(builtins)[name] = value
    try:
        yield
    finally:
        del vars(builtins)[name]


def _exercised(
    capture: Capture, make: Callable[[], Prepared], variants: tuple[Variant, ...], expected: list[_Result]
) -> dict[int, tuple[str, str]]:
    """The error and the first difference of the captured program, by the number of the inputs."""
    found = {}
    for at, (variant, result) in enumerate(zip(variants, expected, strict=True)):
        if result.error:
            continue
        seen = _run(make, variant.masked if capture.static_dims else variant.resized, capture.compute)
        found[at] = (seen.error, "" if seen.error else _difference(result, seen, arguments=not capture.static_dims))
    return found


def _with_stage(compared: Comparison, stage: Stage, result: tuple[str, str] | None) -> Comparison:
    error, difference = result or ("", "")
    captured = (*compared.captured, (stage, error)) if error else compared.captured
    differs = compared.differs or (f"{stage}: {difference}" if difference else "")
    return msgspec.structs.replace(compared, captured=captured, differs=differs)


def _compare(compared: Comparison, seen: _Result, expected: _Result) -> Comparison:
    differs = "" if seen.error or expected.error else _difference(expected, seen, arguments=True)
    return msgspec.structs.replace(compared, changed=seen.error, differs=differs)


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
