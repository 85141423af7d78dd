"""Capture a program and its variants, call both on the same inputs, and say in what they differ."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import torch

from ddefuzz.classify.chain import op_name
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.classify.site import USER_SITE
from ddefuzz.execute.comparison import ROUNDED, CallResult, Unequal, compared, gradients_of, is_rounding
from ddefuzz.execute.exercise import SMALL_FLOATS, filled_memory
from ddefuzz.execute.graphs import forms_of
from ddefuzz.execute.observe import Stopwatch, observe_again
from ddefuzz.execute.preparation import PreparedSubject
from ddefuzz.execute.protocol import (
    CHEAP_TO_CALL,
    Call,
    CallEnd,
    Observation,
    ProgramSubject,
    Run,
    Semantics,
    Stage,
    measured,
    not_judged,
)
from ddefuzz.execute.stages import Capture
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.internal import message_of
from ddefuzz.oracles import capture as captures
from ddefuzz.oracles.blame import OracleInput, prefixes
from ddefuzz.oracles.relations import OUT_OF_BOUNDS, SIZES, Aspect, Relation, RelationDifference, relation_of
from ddefuzz.program.equivalents import Value, Variant, symbols_in
from ddefuzz.program.evaluate import materialize, run_step
from ddefuzz.program.model import Program
from ddefuzz.program.recipes import fault_of
from ddefuzz.program.sizes import MARKED, CallSize, at_data_size, masked_at_size
from ddefuzz.program.text import print_program

MOST_SHORTER: Final = 12  # how many shorter programs are compared, to find the op after which the two differ

ORIGINAL: Final = "the original"
BEYOND: Final = "takes more"  # what a variant does that takes a size out of its bounds


def run(task: Run) -> Observation:
    """Compare a program with its variants under the relation of the stage. It is not judged if there is none."""
    if not isinstance(task.subject, ProgramSubject):
        return not_judged(task, "only programs have variants")
    stopwatch, relation = Stopwatch(), relation_of(task.stage)
    program = task.subject.program()
    pair = _Pair(relation, program, task.semantics)
    reason = pair.reason()
    if reason:
        return not_judged(task, reason)
    difference = pair.difference()
    observation = Observation(task.stage, task.semantics, "ok")
    if difference is not None:
        observation = Observation(task.stage, task.semantics, "ok", measured=measured(_located(pair, difference)))
    return stopwatch.read(observation)


InEager: TypeAlias = Literal["same", "differs", "raises", "undetermined"]
"""
same          a variant returns what the original returns
differs       it does not mean the same
raises        both raise: what a capture does with dead code that eager refuses is not determined
undetermined  the original's result depends on random numbers or uninitialized memory
"""


class _Difference(NamedTuple):
    """In what a variant differs: `what` is one word for it, `expected` what a script finds, and `place` that of the
    capture that failed.
    """

    capture: Stage
    variant: Variant
    aspect: Aspect
    what: str
    how: str
    expected: Mapping[str, str]
    size: CallSize | None = None
    place: Signature | None = None


class _CallResult(NamedTuple):
    result: CallResult
    again: bool = False  # torch captured again, or tried to


class _CaptureResult(NamedTuple):
    """What a capture did: the place where it failed, or the assertions of each form, and the calls by size."""

    observation: Observation
    place: Signature | None
    assertions: Mapping[str, int]
    calls: Mapping[CallSize, _CallResult]


class _Pair:
    """A program and its variants. What eager and each capture do with the program is computed once."""

    def __init__(self, relation: Relation, program: Program, semantics: Semantics) -> None:
        self.relation, self.program, self.semantics = relation, program, semantics
        self.eager: dict[CallSize, CallResult | None] = {}
        self.captured: dict[Stage, _CaptureResult] = {}
        values = dense_values(program)
        made = () if values is None else relation.make(program, values)
        self.variants = tuple(one for one in made if self._in_eager(one, "example") in ("same", "undetermined"))
        self.runs, self.has_place = values is not None, bool(made)

    def reason(self) -> str:
        """Why there is nothing to compare; empty if there is."""
        if not self.runs:
            return "eager raises"
        if not self.has_place:
            return f"found no place where {self.relation.changes}"
        if not self.variants:
            return f"it does not mean the same in eager if {self.relation.changes}"
        known = inspect.signature(torch_api.bound(torch_api.MARK_UNBACKED)).parameters
        lacking = {name for one in self.variants for marks in one.marks.values() for name in marks} - known.keys()
        return f"mark_unbacked of this torch has no {', '.join(sorted(lacking))}" if lacking else ""

    def difference(self, only: _Difference | None = None) -> _Difference | None:
        """The first difference; with `only`, the first in the same aspect of the same capture."""
        for stage in self.relation.captures if only is None else (only.capture,):
            for variant in self.variants:
                difference = self._of(stage, variant)
                if difference is not None and (only is None or difference.aspect == only.aspect):
                    return next(filter(None, (self._alike(difference, part) for part in variant.parts)), difference)
        return None

    def _alike(self, difference: _Difference, part: Variant) -> _Difference | None:
        other = self._of(difference.capture, part)
        return (
            other
            if other is not None and (other.aspect, other.place) == (difference.aspect, difference.place)
            else None
        )

    def _of(self, stage: Stage, variant: Variant) -> _Difference | None:
        """In what a variant differs from the original in a capture."""
        if stage not in MARKED and not _has_masks(self.program, variant) and _is_laid_out(self.program):
            return None  # a mask makes a contiguous copy of the input, which the variant lacks
        if stage not in self.captured:
            self.captured[stage] = self._capture(stage, Variant(self.program, ORIGINAL))
        ours, theirs = self.captured[stage], self._capture(stage, variant)
        if "not-judged" in (ours.observation.outcome, theirs.observation.outcome):
            return None
        if ours.place is not None or theirs.place is not None:
            return self._of_verdicts(stage, variant, ours, theirs)
        if "fail" in (ours.observation.outcome, theirs.observation.outcome):
            return None  # by an accepted rule
        return self._of_assertions(stage, variant, ours, theirs) or self._of_results(stage, variant, ours, theirs)

    def _of_verdicts(
        self, stage: Stage, variant: Variant, ours: _CaptureResult, theirs: _CaptureResult
    ) -> _Difference | None:
        either = (ours.place is None) != (theirs.place is None)
        differs = {"same": _place(ours) != _place(theirs), "captured": either, "if-original": ours.place is None}
        if not differs[self.relation.verdict]:
            return None
        how = f"in {stage}, {_said(ours.place)}; with {variant.form}, {_said(theirs.place)}"
        expected = {"original": _ending(ours), "variant": _ending(theirs), "alike": "False"}
        what = "fails" if theirs.place is not None else "is captured"
        return _Difference(stage, variant, "verdict", what, how, expected, place=theirs.place or ours.place)

    def _of_assertions(
        self, stage: Stage, variant: Variant, ours: _CaptureResult, theirs: _CaptureResult
    ) -> _Difference | None:
        forms = sorted(ours.assertions.keys() | theirs.assertions.keys(), reverse=True)
        for form in forms if self.relation.assertions != "any" else ():
            before, after = ours.assertions.get(form, 0), theirs.assertions.get(form, 0)
            if after < before or (after > before and self.relation.assertions == "same"):
                how = f"in {stage}, the {form} program has {before} assertions; with {variant.form}, {after}"
                what = "fewer" if after < before else "more"
                return _Difference(stage, variant, "assertions", what, how, {"assertions": what})
        return None

    def _of_results(
        self, stage: Stage, variant: Variant, ours: _CaptureResult, theirs: _CaptureResult
    ) -> _Difference | None:
        for size, their in theirs.calls.items():
            our = ours.calls.get(size)
            what, how = self._of_calls(variant, size, our, their) if our is not None else ("", "")
            if what:
                told = f"in {stage} at size {size}, with {variant.form}: {how}"
                ways = [
                    "returns" if call.result.error is None else "raises" for call in (our, their) if call is not None
                ]
                expected = {"original": ways[0], "variant": ways[1]}
                if ways == ["returns", "returns"]:
                    expected["differs"] = what
                if what == BEYOND:
                    expected = {"taken": size, "variant": "returns"}
                return _Difference(stage, variant, "result", what, told, expected, size)
        return None

    def _of_calls(self, variant: Variant, size: CallSize, our: _CallResult, their: _CallResult) -> tuple[str, str]:
        ended = [one.result.error for one in (our, their)]
        outside = self.relation.result == "in-bounds" and _is_outside(variant, self.program, size)
        if outside:
            return (BEYOND, "it takes a size that is out of its bounds") if ended[1] is None else ("", "")
        in_eager = self._in_eager(variant, size)
        if our.again or their.again or None not in ended or in_eager in ("differs", "raises"):
            return "", ""
        if ended != [None, None]:
            # What torch knows by a bound may make an assertion needless.
            if self.relation.result == "if-both" or (self.relation.result == "in-bounds" and ended[1] is None):
                return "", ""
            raised = next(one for one in ended if one is not None)
            line = f"{type(raised).__name__}: {message_of(raised)}".partition("\n")[0][:200]
            what = "takes" if ended[1] is None else "refuses"
            return what, f"it {what} what {ORIGINAL} {'refuses' if what == 'takes' else 'takes'}: {line}"
        if in_eager == "undetermined":
            return "", ""
        unequal = [one for one in compared(our.result, their.result) if one.what not in self.relation.ignores]
        unequal = self._without_rounding(unequal, size, our.result, their.result)
        if not unequal:
            return "", ""
        first = unequal[0]
        return first.what, f"{first.where} differs in {first.what}: {first.how.replace('eager has', f'{ORIGINAL} has')}"

    def _without_rounding(
        self, unequal: list[Unequal], size: CallSize, ours: CallResult, theirs: CallResult
    ) -> list[Unequal]:
        if not any(one.what in ROUNDED for one in unequal):
            return unequal
        wide = tuple(replace(one, dtype="float64") if one.dtype in SMALL_FLOATS else one for one in self.program.inputs)
        original = replace(self.program, inputs=wide)
        exact = _call_eager(prepared(original, Variant(original, ORIGINAL), size))
        return [one for one in unequal if not all(is_rounding(one, exact, call) for call in (ours, theirs))]

    def _in_eager(self, variant: Variant, size: CallSize) -> InEager:
        """How a variant and the original compare in eager at a size."""
        if size not in self.eager:
            self.eager[size] = _determined(self.program, size)
        ours = self.eager[size]
        fresh = prepared(self.program, variant, size)
        if ours is None or fresh is None:
            return "undetermined"
        theirs = ours if variant.program == self.program else _call_eager(fresh, variant.inputs)
        if ours.error is not None or theirs.error is not None:
            return "differs" if (ours.error is None) != (theirs.error is None) else "raises"
        unequal = [one for one in compared(ours, theirs) if one.what not in self.relation.ignores]
        return "differs" if unequal else "same"

    def _prepared(self, variant: Variant, size: CallSize, *, static_dims: bool = False) -> PreparedSubject | None:
        """A variant to capture or to call. Without numbers among its inputs, the program needs no wrapper. Then torch
        sees the names of its inputs, and makes symbols as they are used.
        """
        fresh = prepared(self.program, variant, size, static_dims=static_dims)
        wrapped = self.relation.in_order or any(not item.shape for item in self.program.inputs)
        return None if fresh is None else replace(fresh, numbers_unbacked=wrapped and fresh.numbers_unbacked)

    def _example(self, variant: Variant) -> PreparedSubject:
        example = self._prepared(variant, "example")
        assert example is not None
        return example

    def _capture(self, stage: Stage, variant: Variant) -> _CaptureResult:
        """Capture a variant, and call it at each size."""
        calls: dict[CallSize, _CallResult] = {}
        assertions: dict[str, int] = {}

        def then(captured: Capture) -> None:
            assertions.update(Counter(form.name for form in forms_of(captured) for _ in form.assertions))
            sizes = (*SIZES, OUT_OF_BOUNDS) if self.relation.result == "in-bounds" else SIZES
            for size in sizes if stage in CHEAP_TO_CALL else ():
                fresh = self._prepared(variant, size, static_dims=captured.static_dims)
                if fresh is not None:
                    before = captured.captures()
                    result = _call(captured.compute, fresh, variant.inputs, backward=captured.backward)
                    calls[size] = _CallResult(result, captured.captures() != before)

        text = print_program(variant.program)
        task = Run(ProgramSubject(text, variant.backed), stage, self.semantics)
        seen = observe_again(stage, task, then, lambda: self._example(variant))
        failures = captures.judge_seen(OracleInput(text, seen))
        place = captures.classify(failures[0]).signature if failures else None
        return _CaptureResult(seen, place, assertions, calls)


def _place(result: _CaptureResult) -> tuple[object, ...]:
    """Where a capture failed, if it did. The anchor of a place in the user's code has names of the program."""
    place = result.place
    if place is None:
        return ()
    return (place.kind, place.site, "" if place.site == USER_SITE else place.anchor)


def _ending(result: _CaptureResult) -> str:
    """How a capture ended, as scripts say it: the class of the first exception of its chain."""
    raised = result.observation.exceptions
    return raised[-1].name if raised else "captured"


def _said(place: Signature | None) -> str:
    return "it is captured" if place is None else f"it fails: {place}"


def _is_outside(variant: Variant, program: Program, size: CallSize) -> bool:
    sizes = ((dim.symbol or "", dim.size) for item in at_data_size(program, size).inputs for dim in item.shape)
    bounds = ((variant.marks[symbol], number) for symbol, number in sizes if symbol in variant.marks)
    return any(not given["min"] <= number <= given["max"] for given, number in bounds)


def _located(pair: _Pair, difference: _Difference) -> RelationDifference:
    """The difference with its place: that of the failed capture, or the op after which the two differ."""
    variant = difference.variant
    site, anchor = Site("op", None, None), f"{difference.what} with {variant.form.partition(':')[0]}"
    if difference.place is not None:
        site, anchor = difference.place.site, difference.place.anchor
        anchor += " of the original" if difference.what == "is captured" else ""
    else:
        for shorter, name in islice(prefixes(pair.program, Call("example", CallEnd(), CallEnd())), MOST_SHORTER):
            other = _Pair(pair.relation, shorter, pair.semantics)
            if name and not other.reason() and other.difference(difference) is not None:
                site = Site("op", None, op_name(name))
                break
    return RelationDifference(
        difference.capture,
        difference.aspect,
        difference.how,
        site,
        anchor,
        variant.form,
        print_program(variant.program),
        dict(difference.expected),
        difference.size,
        variant.inputs,
        dict(variant.symbols),
        {symbol: dict(marks) for symbol, marks in variant.marks.items()},
        variant.backed,
    )


DENSE: Final = (torch.Tensor, torch.nn.Parameter)
"""Subclasses refuse some views: DTensor those of a sharded dim."""


def dense_values(program: Program) -> dict[str, Value] | None:
    """The dense tensors of a program in eager, by name; None if it raises. What is no tensor at the size 0 is left out:
    Python's `sum` of nothing is a number.
    """
    values = _values_at(program)
    if values is None:
        return None
    at_zero = _values_at(at_data_size(program, "0"))
    return {name: value for name, value in values.items() if at_zero is None or name in at_zero}


def _values_at(program: Program) -> dict[str, Value] | None:
    env: dict[str, Any] = dict(materialize(program))
    try:
        for step in program.steps:
            env |= run_step(step, env)
    except Exception:  # noqa: BLE001 the subject is under test
        return None
    return {
        name: Value(str(value.dtype).removeprefix("torch."), value.dim(), value.is_contiguous())
        for name, value in env.items()
        if type(value) in DENSE and value.layout == torch.strided and not value.is_quantized
    }


def _has_masks(program: Program, variant: Variant) -> bool:
    """Whether masks make the dims of a variant unbacked where they do so for the program."""
    return not variant.backed and len(symbols_in(variant.program)) == len(symbols_in(program))


def _is_laid_out(program: Program) -> bool:
    """Whether an input with unbacked dims is not contiguous."""
    return any(item.layout != "contiguous" and any(dim.symbol for dim in item.shape) for item in program.inputs)


def prepared(
    program: Program, variant: Variant, size: CallSize, *, static_dims: bool = False
) -> PreparedSubject | None:
    """A variant with the inputs of the original at a size; None if they cannot have it. With `static_dims`, they have
    the shapes of the example, and masks make the sizes.
    """
    resized, kept = masked_at_size(program, size) if static_dims else (at_data_size(program, size), {})
    whole = {dim.symbol: dim.size for item in program.inputs for dim in item.shape if dim.symbol is not None}
    if any(map(fault_of, resized.inputs)) or (kept and not _has_masks(program, variant) and kept != whole):
        return None
    subject = prepare(ProgramSubject(print_program(variant.program), variant.backed))
    values = tuple(materialize(resized).values())
    args = tuple(values[at] for at in variant.inputs) if variant.inputs else values
    masks = {variant.symbols.get(symbol, symbol): number for symbol, number in kept.items()}
    return replace(subject, args=args, kept=masks, marks={**subject.marks, **variant.marks})


def _call(
    compute: Callable[[PreparedSubject], Any], fresh: PreparedSubject, places: tuple[int, ...], *, backward: bool
) -> CallResult:
    """Call it. The inputs of what it gives are in the order of the original, which has them at these places."""
    try:
        value = compute(fresh)
        inputs = fresh.args
        if places:
            inputs = tuple(one for _, one in sorted(zip(places, fresh.args, strict=True), key=lambda pair: pair[0]))
        return CallResult(None, value, inputs, gradients_of(value, inputs) if backward else ())
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 the subject is under test: that it raises is the observation
        return CallResult(error)


def _call_eager(fresh: PreparedSubject | None, places: tuple[int, ...] = ()) -> CallResult:
    if fresh is None:
        return CallResult(ValueError("no such size"))
    return _call(lambda one: one.call(*one.args), fresh, places, backward=True)


def _determined(program: Program, size: CallSize) -> CallResult | None:
    """What eager does with a program at a size; None if it depends on random numbers or uninitialized memory."""
    original = Variant(program, ORIGINAL)
    first = _call_eager(prepared(program, original, size))
    fresh = prepared(program, original, size)
    with filled_memory():
        torch.default_generator.manual_seed(1)
        again = _call_eager(fresh)
    if first.error is None and again.error is None and compared(first, again):
        return None
    return first if (first.error is None) == (again.error is None) else None
