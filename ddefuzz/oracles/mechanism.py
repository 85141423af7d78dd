"""The mechanism oracle: under explicit and under other semantics, a program must agree with eager in the same calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.classify.cause import Classification
from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.recognition import ExpectedFailure, by_call, by_exception
from ddefuzz.classify.signature import Cause, Site
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Call, Observation, Runner
from ddefuzz.instrument.events import Guard
from ddefuzz.oracles import capture
from ddefuzz.oracles.acceptance import ABOUT_THE_TAPE, unspecified
from ddefuzz.oracles.blame import OracleInput, answered_in, at_guard, captured_again, fewest, unknown
from ddefuzz.oracles.oracle import KindRow, Oracle
from ddefuzz.oracles.verdict import accepted, assumed_away, refuses_example, values_differ
from ddefuzz.program.sizes import CALL_SIZES

Wrong: TypeAlias = Literal["", "values", "layout", "refuses", "takes"]
"""How a captured program differs from eager in a call, empty if it does not: it computes other values, its result
has other strides, it refuses what eager takes, or takes what eager refuses.
"""

SAID: Mapping[Wrong, str] = {
    "": "as eager",
    "values": "other values",
    "layout": "other strides",
    "refuses": "refuses",
    "takes": "takes what eager refuses",
}


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    """Report a difference between explicit and the other semantics: one does not capture the program, or the two
    captured programs differ in a call. There is nothing to report without a run under other semantics.

    An explicit capture that ends in a data-dependent error is left to the capture oracle: the guard that raises has to
    change, whichever fallback led to it. The verdict on the stage says that other semantics capture the program.
    """
    explicit, other = seen.observation, seen.second
    if other is None:
        return ()
    if (explicit.outcome, other.outcome) == ("fail", "ok"):
        if refuses_example(other):
            return ()
        failed = (one for one in capture.judge_seen(seen) if one.kind != "dde")
        return tuple(Failure("regressed", explicit, one.evidence, second=other) for one in failed)
    if unspecified(seen):
        return ()
    pairs = [(call, again) for call, again in _pairs(explicit, other) if wrong(call) != wrong(again)]
    if not pairs:
        return ()
    call, again = next((pair for pair in pairs if "values" in map(wrong, pair)), pairs[0])
    kind: Kind = "diverged" if "values" in (wrong(call), wrong(again)) else "changed"
    ours, theirs = SAID[wrong(call)], SAID[wrong(again)]
    evidence = f"at size {call.size}: {ours} with explicit, {theirs} with {other.semantics.mechanism} semantics"
    return (Failure(kind, explicit, evidence, call.size, other),)


def locate(failure: Failure, seen: OracleInput, runner: Runner) -> Location:
    """The guard that the other semantics answer differently, if explicit semantics behave like them with that answer.

    In a user's own code, which cannot be captured again here, it is the only such guard.
    """
    other = failure.second
    if other is None:
        return unknown(seen)
    suspects = answered_otherwise(failure.observation, other)
    if not seen.text:
        return at_guard(suspects[0]) if len(suspects) == 1 else unknown(seen)
    size = failure.size
    there = next((call for call in other.calls if call.size == size), None)

    runs: dict[tuple[Guard, ...], Observation] = {}

    def as_there(chosen: tuple[Guard, ...]) -> bool:
        answers = tuple((guard, not guard.fallback) for guard in chosen)
        again = runs[chosen] = captured_again(seen, answers, () if size is None else (size,), runner)
        if there is None:
            return again.outcome == other.outcome
        return any(wrong(call) == wrong(there) for call in again.calls)

    blamed = fewest(suspects, as_there)
    return at_guard(answered_in(runs[blamed], blamed[0], not blamed[0].fallback)) if blamed else unknown(seen)


def answered_otherwise(explicit: Observation, other: Observation) -> tuple[Guard, ...]:
    """The guards whose fallback is not the answer of the other semantics."""
    if other.semantics.mechanism == "size-oblivious":
        return tuple(guard for guard in explicit.guards if guard.counterfactual == "other")
    theirs = {(guard.place, guard.expression): guard.fallback for guard in other.guards}
    return tuple(
        guard
        for guard in explicit.guards
        if theirs.get((guard.place, guard.expression), guard.fallback) != guard.fallback
    )


def wrong(call: Call) -> Wrong:
    """How a captured program differs from eager in a call, apart from accepted refusals."""
    if call.recompiled:
        return ""
    if not call.eager.returned:
        return "takes" if call.captured.returned and not ABOUT_THE_TAPE.search(call.eager.error) else ""
    if not call.captured.returned:
        return "" if accepted(call) else "refuses"
    if call.agreement != "differs":
        return ""
    return "values" if values_differ(call) else "layout"


def keep(failure: Failure) -> Failure:
    """The failure with the call that shows it under both semantics, and nothing else of the second run."""
    other, explicit = failure.second, failure.observation
    if other is None:
        return failure
    return msgspec.structs.replace(
        failure,
        observation=msgspec.structs.replace(explicit, calls=_at(explicit, failure)),
        second=Observation(other.stage, other.semantics, other.outcome, other.reason, calls=_at(other, failure)),
    )


def _at(observation: Observation, failure: Failure) -> tuple[Call, ...]:
    return tuple(call for call in observation.calls if call.size == failure.size)


def _pairs(explicit: Observation, other: Observation) -> Iterator[tuple[Call, Call]]:
    """The calls at the same sizes, without those in which the other semantics are wrong about what they assume away."""
    theirs = {call.size: call for call in other.calls if not (wrong(call) and assumed_away(call, other, explicit))}
    return ((call, theirs[call.size]) for call in explicit.calls if call.size in theirs)


def expected(classified: Classification, same_program: bool) -> ExpectedFailure:
    """How a script recognizes it: by what the explicit capture does. Raises `InputError` if that is right."""
    failure = classified.failure
    if failure.kind == "regressed":
        (failed,) = capture.judge([failure.observation])
        return by_exception(capture.classify(failed), same_program)
    if not any(wrong(call) for call in _at(failure.observation, failure)):
        raise InputError(
            "found a program that is wrong only under emulated semantics, expected one that is wrong with plain torch"
        )
    return by_call(classified, same_program)


def _cause_of_failed(failure: Failure, blamed: Site) -> Cause:
    """The cause of the explicit capture's failure: no guard is at fault if the program needs a value of its data. If
    that has none, the guard that is blamed is to change.
    """
    (failed,) = capture.judge([failure.observation])
    cause = capture.classify(failed).cause
    return "avoidable" if cause == "unclassified" and blamed.function is not None else cause


KINDS: Mapping[Kind, KindRow] = {
    "regressed": KindRow(
        "explicit semantics do not capture the program for another reason than a guard that cannot be decided, and "
        "size-oblivious semantics do",
        "{site} answers {anchor} differently from size-oblivious semantics, and capture fails: {evidence}",
        locate,
        expected,
        _cause_of_failed,
    ),
    "changed": KindRow(
        "the two semantics capture different programs: one refuses other inputs, or its result has other strides",
        "{site} answers differently from size-oblivious semantics, and the captured program differs {evidence}",
        locate,
        expected,
        severity="refuses what eager accepts",
    ),
    "diverged": KindRow(
        "the captured program of one of the two semantics computes other values than eager",
        "{site} answers differently from size-oblivious semantics, and one of the two programs is wrong {evidence}",
        locate,
        expected,
        wrong=True,
        severity="wrong values",
    ),
}

ORACLE = Oracle(
    "mechanism",
    "explicit and size-oblivious semantics capture different programs, or only one captures",
    KINDS,
    judge,
    CALL_SIZES,
    keep,
    compares=True,
)
