"""The specialization oracle: a capture must not fix or narrow an unbacked size, unless the program asserts it."""

from __future__ import annotations

from collections.abc import Mapping

from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.execute.protocol import Call, Runner
from ddefuzz.instrument.events import Constraint
from ddefuzz.instrument.truth import holds
from ddefuzz.oracles.blame import OracleInput, at_inference, at_maker, is_unchecked, unknown
from ddefuzz.oracles.oracle import KindRow, Oracle, by_ending, only_the_call
from ddefuzz.oracles.verdict import is_broadcast_of_1
from ddefuzz.program.sizes import CALL_SIZES


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    """Report the first replacement and the first range that are not true in a call that eager accepts."""
    return tuple(filter(None, (_first(seen, kind) for kind in KINDS)))


def _first(seen: OracleInput, kind: Kind) -> Failure | None:
    for call in seen.observation.calls:
        broken = broken_in(seen, call, kind)
        if broken is not None:
            return Failure(kind, seen.observation, f"at size {call.size}: {broken.text} is not so", call.size)
    return None


def explains(seen: OracleInput, call: Call) -> bool:
    """Whether this oracle reports a call."""
    return any(broken_in(seen, call, kind) is not None for kind in KINDS)


def locate(failure: Failure, seen: OracleInput, _runner: Runner) -> Location:
    """The code that set the replacement or the range. If the assertion that it was inferred from is true in the call,
    the code that inferred it: to infer `u1 = 6` from `Eq(u0*u1, 6*u0)` divides by u0, which may be 0.
    """
    for call in failure.observation.calls:
        broken = broken_in(seen, call, failure.kind)
        if broken is not None:
            inferred = bool(broken.follows) and holds(broken.follows, dict(call.symbols)) is True
            return at_inference(broken) if inferred else at_maker(broken)
    return unknown(seen)


def broken_in(seen: OracleInput, call: Call, kind: Kind) -> Constraint | None:
    """The first replacement or range that is not true in a call that eager accepts; None if there is none.

    A range that follows from an assertion that is not true either is a matter of that assertion. The range of a symbol
    that is replaced is a matter of the replacement. A call that captures the program again shows that a marked dim was
    replaced, and no more.
    """
    if not call.eager.returned or is_unchecked(seen):
        return None
    symbols = dict(call.symbols)
    broken = [one for one in seen.observation.constraints if holds(one.text, symbols) is False]
    fixed = [one for one in broken if one.kind == "replacement"]
    if kind == "specialized":
        return next((one for one in fixed if not is_broadcast_of_1(one.follows, symbols)), None)
    if call.recompiled:
        return None
    replaced = {one.text.partition(" ")[0] for one in fixed}
    ranges = (one for one in broken if one.kind == "range" and one.text.partition(" ")[0] not in replaced)
    return next((one for one in ranges if not one.follows or holds(one.follows, symbols)), None)


KINDS: Mapping[Kind, KindRow] = {
    "specialized": KindRow(
        "an unbacked size was replaced by a number or another size, but eager accepts inputs of other sizes",
        "{site} fixes a size {evidence}",
        locate,
        by_ending,
        wrong=True,
        severity="refuses what eager accepts",
    ),
    "narrowed": KindRow(
        "the range of an unbacked size excludes sizes that eager accepts and no assertion excludes",
        "{site} narrows the range of a size {evidence}",
        locate,
        by_ending,
        wrong=True,
        severity="refuses what eager accepts",
    ),
}

ORACLE = Oracle(
    "specialization",
    "an unbacked size is replaced by a number, or its range is too narrow",
    KINDS,
    judge,
    CALL_SIZES,
    only_the_call,
)
