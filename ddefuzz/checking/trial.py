"""Try a change in this process: the original and the changed code in eager, then each capture, on the same inputs."""

from __future__ import annotations

import builtins
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import msgspec
import torch

from ddefuzz.checking.patch import CLASS, DECIDED, Candidate, ChangedFile, Comparison, InputDim, Interface, TrialResult
from ddefuzz.checking.problems import full_path
from ddefuzz.execute.comparison import differences
from ddefuzz.execute.exercise import filled_memory
from ddefuzz.execute.observe import captured_output, exchanged, observe_in
from ddefuzz.execute.preparation import (
    PreparedSubject,
    UnbackedDim,
    leaf_names,
    leaves_of,
    parameter_names,
    with_leaves,
)
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, Stage, Subject
from ddefuzz.execute.stages import Capture, stage_function
from ddefuzz.execute.subject import prepare, seed
from ddefuzz.instrument.events import PROGRAM_FILE
from ddefuzz.internal import message_of

SMALL = (0, 1, 2)  # the sizes that decisions of torch and of users are about
HELD_OUT = 12  # the number of sets of inputs that are kept for the study
MOST_ALONE = 4  # up to this many symbols or tensors are varied each alone; more of them only together

Values: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Variant:
    """Inputs in words, the sizes of symbols, and what is made of the values of leaves of the arguments by number."""

    inputs: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[int, Values] = field(default_factory=dict)

    def resized(self, prepared: PreparedSubject) -> PreparedSubject:
        """The subject with these values, and with shorter arguments."""
        return self._made(prepared, shorter=True)

    def masked(self, prepared: PreparedSubject) -> PreparedSubject:
        """The subject with these values, whose symbols the masks of a stage make as short."""
        return replace(self._made(prepared, shorter=False), kept=self.sizes)

    def _made(self, prepared: PreparedSubject, *, shorter: bool) -> PreparedSubject:
        places = [place for place in prepared.unbacked if shorter and place.symbol in self.sizes]

        def leaf_of(at: int, leaf: Any) -> Any:
            made = self.values[at](leaf.detach()) if at in self.values else leaf
            for place in places:
                if place.leaf == at:
                    made = made.narrow(place.dim, 0, self.sizes[place.symbol])
            return leaf if made is leaf else _like(leaf, made)

        args, kwargs = with_leaves(prepared.args, prepared.kwargs, leaf_of)
        return replace(prepared, args=args, kwargs=kwargs)


def variants_of(prepared: PreparedSubject, names: tuple[str, ...]) -> tuple[Variant, ...]:
    """The example itself, and other inputs. `names` are those of the leaves."""
    return (
        Variant("the example"),
        *_of_sizes(prepared, names),
        *_of_values(prepared, names),
        *_of_both(prepared, names),
    )


def held_out_of(prepared: PreparedSubject, names: tuple[str, ...]) -> tuple[Variant, ...]:
    """Inputs that no search uses: random values, with the sizes of the example, one less, 0, 1 and 2."""
    leaves = leaves_of(prepared)
    tensors = {at: leaf for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.numel()}
    lengths = {place.symbol: leaves[place.leaf].shape[place.dim] for place in prepared.unbacked}
    variants = [Variant("the example")]
    for number in range(HELD_OUT):
        values = {at: partial(_random_like, number=number) for at in tensors}
        small = SMALL[number // 4 % len(SMALL)]
        sizes = {
            symbol: length - 1 if number % 4 == 1 else min(small, length)
            for symbol, length in lengths.items()
            if length and number % 2
        }
        of_sizes = f" with sizes {', '.join(map(str, sizes.values()))}" if sizes else ""
        variants.append(Variant(f"random values {number}{of_sizes}", sizes, values))
    return tuple(variants)


def _random_like(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """Random values between the least and the greatest of a tensor; a mask has every share of true elements."""
    generator = torch.Generator().manual_seed(number + 100)
    drawn = torch.rand(tensor.shape, generator=generator)
    if tensor.dtype == torch.bool:
        return drawn < number / max(HELD_OUT - 1, 1)
    if tensor.is_floating_point():
        return (drawn * 4 - 2).to(tensor.dtype)
    if tensor.is_complex():
        return torch.complex(drawn, drawn).to(tensor.dtype)
    least, greatest = int(tensor.min()), int(tensor.max())
    return (least + (drawn * (greatest - least + 1)).floor()).to(tensor.dtype)


def _of_sizes(prepared: PreparedSubject, names: tuple[str, ...]) -> Iterator[Variant]:
    by_symbol: dict[str, list[UnbackedDim]] = {}
    for place in prepared.unbacked:
        by_symbol.setdefault(place.symbol, []).append(place)
    leaves = leaves_of(prepared)
    lengths = {symbol: leaves[dims[0].leaf].shape[dims[0].dim] for symbol, dims in by_symbol.items()}
    groups: list[tuple[str, ...]] = [(symbol,) for symbol in by_symbol] if len(by_symbol) <= MOST_ALONE else []
    for length in dict.fromkeys(lengths.values()):
        groups.append(tuple(symbol for symbol in by_symbol if lengths[symbol] == length))
    groups.append(tuple(by_symbol))
    for group in dict.fromkeys(groups):
        for size in SMALL:
            if group and all(size < lengths[symbol] for symbol in group):
                dims = [f"{names[dim.leaf]}.shape[{dim.dim}]" for symbol in group for dim in by_symbol[symbol]]
                yield Variant(f"{' = '.join(dims)} = {size}", dict.fromkeys(group, size))


def _of_values(prepared: PreparedSubject, names: tuple[str, ...]) -> Iterator[Variant]:
    for is_kind, recipes in _RECIPES:
        tensors = [at for at, arg in enumerate(leaves_of(prepared)) if isinstance(arg, torch.Tensor) and is_kind(arg)]
        groups = [(at,) for at in tensors] if len(tensors) <= MOST_ALONE else []
        for group in dict.fromkeys([*groups, tuple(tensors)]):
            for words, make in recipes:
                if group:
                    yield Variant(f"{', '.join(names[at] for at in group)} {words}", values=dict.fromkeys(group, make))


def _of_both(prepared: PreparedSubject, names: tuple[str, ...]) -> Iterator[Variant]:
    """All unbacked dims of size 1 or 2, and integers one more: a branch for one element may not look at its value."""
    integers = [
        at for at, leaf in enumerate(leaves_of(prepared)) if isinstance(leaf, torch.Tensor) and _is_integer(leaf)
    ]
    values: dict[int, Values] = dict.fromkeys(integers, lambda tensor: tensor + 1)
    for sizes in _of_sizes(prepared, names) if integers else ():
        if len(sizes.sizes) == len({place.symbol for place in prepared.unbacked}) and 0 not in sizes.sizes.values():
            yield Variant(f"{sizes.inputs}, {', '.join(names[at] for at in integers)} one more", sizes.sizes, values)


def _is_integer(tensor: torch.Tensor) -> bool:
    return tensor.dtype != torch.bool and not tensor.is_floating_point() and not tensor.is_complex()


def _first_only(tensor: torch.Tensor) -> torch.Tensor:
    flat = torch.zeros(tensor.numel(), dtype=torch.bool)
    flat[:1] = True
    return flat.view(tensor.shape)


def _first_positive(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(_first_only(tensor), 1.0, -1.0).to(tensor.dtype)


_RECIPES: tuple[tuple[Callable[[torch.Tensor], bool], tuple[tuple[str, Values], ...]], ...] = (
    (
        lambda tensor: tensor.dtype == torch.bool,
        (
            ("all true", torch.ones_like),
            ("all false", torch.zeros_like),
            ("true in its first element only", _first_only),
            ("negated", torch.logical_not),
        ),
    ),
    (
        _is_integer,
        (
            ("all 0", torch.zeros_like),
            ("all 1", torch.ones_like),
            ("all 2", lambda tensor: torch.full_like(tensor, 2)),
            ("one more", lambda tensor: tensor + 1),
        ),
    ),
    (
        torch.is_floating_point,
        (
            ("all positive", lambda tensor: tensor.abs() + 0.5),
            ("all negative", lambda tensor: -tensor.abs() - 0.5),
            ("positive in its first element only", _first_positive),
            ("all 0", torch.zeros_like),
            ("negated", torch.neg),
        ),
    ),
)
"""Other values, in words, by the kind of a tensor."""


def _like(example: Any, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(example.requires_grad)


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


def _determined(make: Callable[[], PreparedSubject], variant: Variant) -> _Result:
    """What the original does. Inputs for which it returns memory that nothing wrote count as refused.

    The second call fills new memory with NaN or the greatest integer, so that such results differ in each run.
    """
    first = _run(make, variant.resized, _call)
    with filled_memory():
        again = _run(make, variant.resized, _call)
    return _Result(UNDETERMINED) if not first.error and _difference(first, again, arguments=True) else first


@contextmanager
def _swapped(files: Sequence[ChangedFile]) -> Iterator[None]:
    """Functions of these files run their changed source. The text of a program is changed elsewhere."""
    with ExitStack() as stack:
        for changed in files:
            if changed.path != PROGRAM_FILE:
                stack.enter_context(exchanged(changed.path, changed.before, changed.after))
        yield


def _captured(
    subject: Subject,
    stage: Stage,
    make: Callable[[], PreparedSubject],
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
    compared: Comparison, capture: Capture, stage: Stage, make: Callable[[], PreparedSubject], call: _Expectation
) -> Comparison:
    variant, expected = call
    if expected.error:
        return compared
    seen = _run(make, variant.masked if capture.static_dims else variant.resized, capture.compute)
    if seen.error:
        return msgspec.structs.replace(compared, captured=(*compared.captured, (stage, seen.error)))
    difference = _difference(expected, seen, arguments=not capture.static_dims)
    return msgspec.structs.replace(compared, differs=compared.differs or (difference and f"{stage}: {difference}"))


def _compare(make: Callable[[], PreparedSubject], variant: Variant, expected: _Result) -> Comparison:
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


def _call(prepared: PreparedSubject) -> Any:
    return prepared.call(*prepared.args, **prepared.kwargs)


def _run(
    make: Callable[[], PreparedSubject],
    vary: Callable[[PreparedSubject], PreparedSubject],
    compute: Callable[[PreparedSubject], Any],
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
