"""Try a change in this process: the original and the changed code in eager, then each capture, on the same inputs."""

from __future__ import annotations

import builtins
import inspect
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import msgspec
import torch

import ddefuzz
from ddefuzz.checking.patch import (
    CLASS,
    DECIDED,
    Candidate,
    ChangedFile,
    Comparison,
    InputDim,
    Interface,
    Notes,
    TrialResult,
)
from ddefuzz.checking.problems import YOURS, full_path, owner_of
from ddefuzz.checking.variants import (
    MOST_LONG,
    SMALL,
    Variant,
    function_of,
    held_out_of,
    is_integer,
    like,
    optional_of,
    signature_of,
    variants_of,
)
from ddefuzz.errors import InputError
from ddefuzz.execute.comparison import (
    NUMBERS,
    PLAIN,
    comparable,
    differences,
    gradients_of,
    is_inexact,
    lacks_values,
    parts_of,
)
from ddefuzz.execute.exercise import filled_memory
from ddefuzz.execute.isolation import folder_kept
from ddefuzz.execute.observe import captured_output, exchanged, observe_in
from ddefuzz.execute.preparation import (
    PreparedSubject,
    leaf_names,
    leaves_of,
    parameter_names,
    with_leaves,
)
from ddefuzz.execute.protocol import CallableSubject, Observation, ProgramSubject, Run, Stage, Subject
from ddefuzz.execute.retraces import function_to_call
from ddefuzz.execute.stages import Capture
from ddefuzz.execute.subject import is_live, prepare, reloaded, seed
from ddefuzz.files import real_path
from ddefuzz.instrument.events import PROGRAM_FILE
from ddefuzz.internal import message_of

DEEPEST = 8  # how deep values are compared


COMPARED = frozenset({"structure", "number", "dtype", "shape", "values", "mutation"})
"""The differences by which a change does not agree with the original. Strides and memory may be others."""

SAID_LIMIT = 200

MOST_NUMBERS = 4  # with so many numbers of the code, one less and one more, other inputs are made

ROUNDING = 1e-3

FEW = 8  # an input of integers with at most so many is taken for counts or lengths

UNDETERMINED = "the inputs do not determine the result"
"""What stands for the error of the original where two calls of it differ."""


class _Result(NamedTuple):
    """What a call did: its error, or its result, the arguments afterwards, and gradients if the model trains."""

    error: str
    value: Any = None
    args: Sequence[Any] = ()
    gradients: Sequence[Any] = ()


_Expectation: TypeAlias = tuple[Variant, _Result]
"""Inputs, and what the original does with them."""


def try_change(candidate: Candidate) -> TrialResult:
    """Try a change as it would be in the user's files: in eager, then in the stages, up to the first that fails."""
    started = time.process_time()
    make = partial(prepare, candidate.subject)
    with folder_kept():
        example, names = make(), leaf_names(make())
    variants = held_out_of(example, names) if candidate.held_out else variants_of(example, names, candidate.numbers)
    variants = tuple({variant.inputs: variant for variant in variants}.values())
    with captured_output():
        calls = [(variant, _expected(candidate.subject, variant)) for variant in variants]
        sides = tuple(_sides(candidate, calls))
        live = not _can_reload(candidate.subject)
    changed = _changed(candidate)
    tried = partial(TrialResult, sides=sides, is_live=live and any(map(_is_own, (one.path for one in candidate.files))))
    observations: list[Observation] = []
    with _applied(candidate.files, live=live):
        compared: list[Comparison] = []
        agrees = True
        with captured_output():
            for variant, expected in calls:
                compared.append(_compare(changed, variant, expected))
                agrees = tried((), tuple(compared)).agrees and (candidate.may_refuse or not compared[-1].refused)
                if not agrees and not candidate.held_out:
                    break
        if agrees:
            for stage in candidate.stages:
                observed, compared = _captured(candidate, stage, changed, calls, compared)
                observations.append(observed)
                if observed.outcome != "ok":
                    break
    return tried(tuple(observations), tuple(compared), cpu_seconds=time.process_time() - started)


def notes(candidate: Candidate) -> Notes:
    """What there is to say of code that is captured in the stages: what was captured is called on other inputs, and the
    code is called twice. Of the candidate no file is changed.
    """
    with captured_output(), folder_kept():
        prepared = prepare(candidate.subject)
    compared = try_change(msgspec.structs.replace(candidate, numbers=_numbers_of(prepared))).compared
    lines = list(note_lines(compared))
    with captured_output(), folder_kept():
        first, second = (_run(lambda: prepared, _copied, _call) for _ in range(2))
    if not first.error and not compared[0].original:
        difference = second.error or _difference(first, second, arguments=False)
        if difference:
            where = difference.partition(":")[0]
            lines.append(f"a second call of the same object does something else ({where}); what is captured does not")
    return Notes(tuple(lines))


def note_lines(compared: Sequence[Comparison]) -> Iterator[str]:
    """The first inputs with which a captured program is wrong, refuses what eager takes, or takes what it refuses."""
    wrong = next((one for one in compared if one.differs), None)
    refused = next((one for one in compared if one.captured and not one.original), None)
    accepted = next((one for one in compared if one.accepted), None)
    if wrong is not None:
        stage, _, difference = wrong.differs.partition(": ")
        yield f"what {stage} captured computes something else than eager with {wrong.inputs}: {difference}"
    if refused is not None:
        stage, error = refused.captured[0]
        yield f"what {stage} captured refuses inputs that eager takes, such as {refused.inputs}: {error}"
    if accepted is not None:
        stage, error = accepted.accepted[0], accepted.original
        yield f"what {stage} captured takes inputs that eager refuses, such as {accepted.inputs}: {error}"


def _numbers_of(prepared: PreparedSubject) -> tuple[int, ...]:
    """Numbers that the code may treat apart: those in its text and, if it takes integers, the lengths of its inputs."""
    code = getattr(inspect.unwrap(function_of(prepared.call)), "__code__", None)
    written = [one for one in (code.co_consts if code else ()) if type(one) is int]
    tensors = [leaf for leaf in leaves_of(prepared) if isinstance(leaf, torch.Tensor)]
    takes = any(is_integer(tensor) and tensor.numel() <= FEW for tensor in tensors)
    lengths = [size for tensor in tensors for size in tensor.shape] if takes else []
    usual = (number for number in (*written, *lengths) if number not in SMALL and 0 < number <= MOST_LONG)
    return tuple(dict.fromkeys(usual))[:MOST_NUMBERS]


def _copied(prepared: PreparedSubject) -> PreparedSubject:
    """The same callable with new arguments."""

    def new(_: int, leaf: Any) -> Any:
        return like(leaf, leaf) if isinstance(leaf, torch.Tensor) else leaf

    args, kwargs = with_leaves(prepared.args, prepared.kwargs, new)
    return replace(prepared, args=args, kwargs=kwargs)


_KNOWN: dict[tuple[Subject, str], _Result] = {}
"""What the original does, of the last subject."""


def _expected(subject: Subject, variant: Variant) -> _Result:
    key = (subject, variant.inputs)
    if key not in _KNOWN:
        if any(one != subject for one, _ in _KNOWN):
            _KNOWN.clear()
        _KNOWN[key] = _determined(partial(prepare, subject), variant)
    return _KNOWN[key]


@lru_cache(maxsize=8192)
def _is_own(file: str) -> bool:
    """Whether a file is the user's."""
    return owner_of(file) == YOURS and not real_path(file).is_relative_to(_OWN)


_OWN = real_path(ddefuzz.__file__ or "").parent


def _can_reload(subject: Subject) -> bool:
    """Whether the user's code can be imported again. What lives in this process only cannot, and what puts names into
    a registry, such as `torch.library.define`, that takes each once.
    """
    if not isinstance(subject, CallableSubject):
        return False
    if subject.path not in _RELOADS:
        _RELOADS[subject.path] = not is_live(subject.path) and _imports_again(subject)
    return _RELOADS[subject.path]


def _imports_again(subject: Subject) -> bool:
    with suppress(InputError), reloaded({}, _is_own):
        with folder_kept():
            prepare(subject)
        return True
    return False


_RELOADS: dict[str, bool] = {}


def _determined(make: Callable[[], PreparedSubject], variant: Variant) -> _Result:
    """What the original does. Inputs for which it returns memory that nothing wrote count as refused.

    The second call fills new memory with NaN or the greatest integer, so that such results differ in each run.
    """
    first = _run(make, variant.resized, _call, trains=True)
    with filled_memory():
        again = _run(make, variant.resized, _call, trains=True)
    return _Result(UNDETERMINED) if not first.error and _difference(first, again, arguments=True) else first


@contextmanager
def _applied(files: Sequence[ChangedFile], *, live: bool) -> Iterator[None]:
    """Files have their changed texts. The user's modules are imported from them; functions of installed packages, and
    those that cannot be imported again, get their new code where they are. The text of a program is changed elsewhere.
    """
    files = [one for one in files if one.path != PROGRAM_FILE]
    own = {one.path: one.after for one in files if not live and _is_own(one.path)}
    with ExitStack() as stack:
        if own:
            stack.enter_context(reloaded(own, _is_own))
        for changed in files:
            if changed.path not in own:
                stack.enter_context(exchanged(changed.path, changed.before, changed.after))
        yield


def _captured(
    candidate: Candidate,
    stage: Stage,
    make: Callable[[], PreparedSubject],
    calls: Sequence[_Expectation],
    compared: list[Comparison],
) -> tuple[Observation, list[Comparison]]:
    """Capture in one stage and call what was captured on all inputs that the original takes, and if nothing is changed,
    on those that it refuses, too.
    """
    after = compared

    changes = bool(candidate.files or candidate.wrapper)

    def call_all(capture: Capture) -> None:
        nonlocal after
        pairs = zip(compared, calls, strict=True)
        after = [_with_capture(one, capture, stage, make, call, changes=changes) for one, call in pairs]

    observed = observe_in(function_to_call(stage), make, Run(candidate.subject, stage), then=call_all)
    return observed, after


def _with_capture(
    compared: Comparison,
    capture: Capture,
    stage: Stage,
    make: Callable[[], PreparedSubject],
    call: _Expectation,
    *,
    changes: bool,
) -> Comparison:
    variant, expected = call
    is_judged = expected.error != UNDETERMINED and not (expected.error and changes)
    if not is_judged or variant.omitted or (capture.static_dims and variant.longer):
        return compared
    vary = variant.masked if capture.static_dims else variant.resized
    seen = _run(make, vary, capture.compute, trains=capture.backward, module=capture.module)
    if expected.error:
        accepted = compared.accepted if seen.error else (*compared.accepted, stage)
        return msgspec.structs.replace(compared, accepted=accepted)
    if seen.error:
        return msgspec.structs.replace(compared, captured=(*compared.captured, (stage, seen.error)))
    difference = _difference(expected, seen, arguments=not capture.static_dims, exact=changes)
    return msgspec.structs.replace(compared, differs=compared.differs or (difference and f"{stage}: {difference}"))


def _compare(make: Callable[[], PreparedSubject], variant: Variant, expected: _Result) -> Comparison:
    seen = _run(make, variant.resized, _call, trains=True)
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
    function = inspect.unwrap(function_of(prepared.call))
    code = getattr(function, "__code__", None)
    file = PROGRAM_FILE if isinstance(subject, ProgramSubject) else full_path(code.co_filename) if code else ""
    positional, keywords = parameters[: len(prepared.args)], parameters[len(prepared.args) :]
    return Interface(
        positional,
        keywords,
        dims,
        file,
        code.co_firstlineno if code else 0,
        optional_of(prepared),
        signature_of(prepared) if parameters else (),
    )


def _changed(candidate: Candidate) -> Callable[[], PreparedSubject]:
    subject = candidate.subject
    if isinstance(subject, ProgramSubject) and candidate.files:
        subject = ProgramSubject(candidate.files[0].after, subject.backed)
    if not candidate.wrapper:
        return lambda: prepare(subject)
    scope: dict[str, Any] = {"torch": torch}
    exec(candidate.wrapper, scope)

    def make() -> PreparedSubject:
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
    live = not _can_reload(candidate.subject)
    with _builtin(DECIDED, decided), _applied(candidate.probed, live=live):
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


def _difference(expected: _Result, seen: _Result, *, arguments: bool, exact: bool = True) -> str:
    """The first difference of two calls. Unless it is `exact`, values that rounding may explain are none."""
    pairs = [(expected.value, seen.value, "result")]
    if arguments:
        pairs.append((expected.args, seen.args, "arguments"))
    if expected.gradients and seen.gradients:
        both = [_as_zeros(*pair) for pair in zip(expected.gradients, seen.gradients, strict=False)]
        pairs += [(left, right, f"gradient {place}") for place, (left, right) in enumerate(both)]
    for left, right, where in pairs:
        is_judged = exact or not is_rounding(left, right)
        unequal = (one for one in differences(_plain(left), _plain(right), where) if one.what in COMPARED)
        first = next((one for one in unequal if is_judged or one.what != "values"), None)
        if first is not None:
            return f"{first.where}: {first.how}"
    return ""


def is_rounding(left: Any, right: Any) -> bool:
    """Whether floats differ by less than a thousandth of the largest of their tensor, and nothing else differs."""
    for place, expected in parts_of(left).items():
        actual = parts_of(right).get(place)
        if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor) or not expected.numel():
            continue
        if lacks_values(actual) or expected.shape != actual.shape or expected.dtype != actual.dtype:
            return False
        wanted, got = comparable(expected, actual)
        finite = wanted[wanted.isfinite()] if is_inexact(wanted) else wanted.new_empty(0)
        absolute = ROUNDING * max(float(finite.abs().max()), 1.0) if finite.numel() else 0.0
        if not torch.allclose(wanted, got, rtol=0, atol=absolute, equal_nan=True):
            return False
    return True


def _as_zeros(left: Any, right: Any) -> tuple[Any, Any]:
    """Two gradients. None stands for zeros: a branch that is not taken has none, and AOTAutograd makes zeros of it."""
    if left is None and right is not None:
        return torch.zeros_like(right), right
    return left, torch.zeros_like(left) if right is None and left is not None else right


def _plain(value: Any, depth: int = 0) -> Any:
    """A value with the objects in it as their attributes: modules that were imported again have other classes."""
    if value is None or isinstance(value, (torch.Tensor, *NUMBERS, *PLAIN)) or depth > DEEPEST:
        return value
    if isinstance(value, list | tuple):
        return [_plain(one, depth + 1) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one, depth + 1) for key, one in value.items()}
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    is_data = not isinstance(value, torch.nn.Module | type) and not callable(value)
    return {name: _plain(vars(value), depth + 1)} if is_data and hasattr(value, "__dict__") else name


def _gradients(call: Callable[..., Any], leaves: Sequence[Any], value: Any) -> Sequence[Any]:
    """Those of the inputs that require them, and of the parameters of modules that train."""
    modules = call.modules() if isinstance(call, torch.nn.Module) else ()
    parameters = [one for module in modules if module.training for one in module.parameters(recurse=False)]
    wanted = tuple(one for one in (*leaves, *parameters) if isinstance(one, torch.Tensor))
    try:
        return gradients_of(value, wanted)
    except Exception:  # noqa: BLE001 what has no gradients is compared without them
        return ()
    finally:
        for tensor in wanted:
            tensor.grad = None


def _call(prepared: PreparedSubject) -> Any:
    return prepared.call(*prepared.args, **prepared.kwargs)


def _run(
    make: Callable[[], PreparedSubject],
    vary: Callable[[PreparedSubject], PreparedSubject],
    compute: Callable[[PreparedSubject], Any],
    *,
    trains: bool = False,
    module: torch.nn.Module | None = None,
) -> _Result:
    """One call. With `trains` it has gradients, also of the parameters of the module, by default the subject itself."""
    try:
        with warnings.catch_warnings(), folder_kept():
            fresh = vary(make())
            seed()
            warnings.simplefilter("ignore")
            value = compute(fresh)
            gradients = _gradients(module or fresh.call, leaves_of(fresh), value) if trains else ()
    except Exception as error:  # noqa: BLE001 the subject is under test: that it raises is the observation
        first = message_of(error).strip().partition("\n")[0][:SAID_LIMIT]
        return _Result(f"{type(error).__name__}: {first}")
    return _Result("", value, leaves_of(fresh), gradients)
