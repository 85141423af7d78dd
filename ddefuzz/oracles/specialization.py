"""The specialization oracle: a capture must not fix an unbacked size, unless the program asserts its value."""

from __future__ import annotations

from collections.abc import Mapping

from ddefuzz.classify.chain import Located
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.execute.calls import Call
from ddefuzz.execute.protocol import Runner
from ddefuzz.instrument.events import Constraint
from ddefuzz.oracles.oracle import KindRow, Oracle
from ddefuzz.oracles.seen import Seen, at_maker, unknown
from ddefuzz.oracles.truth import value_at
from ddefuzz.program.sizes import CALL_SIZES


def judge(seen: Seen) -> tuple[Failure, ...]:
    """Report a replacement that is false in a call which eager accepts and the captured program rejects."""
    for call in seen.observation.calls:
        broken = _broken(seen, call)
        if broken is not None:
            evidence = f"at size {call.size}: {broken.text} is not so"
            return (Failure("specialized", seen.observation, evidence, call.size),)
    return ()


def locate(failure: Failure, seen: Seen, runner: Runner) -> Located:
    """The code that made the replacement."""
    del runner
    found = (_broken(seen, call) for call in failure.observation.calls)
    broken = next((one for one in found if one is not None), None)
    return unknown(seen) if broken is None else at_maker(broken)


def _broken(seen: Seen, call: Call) -> Constraint | None:
    if not call.eager.returned or call.captured.returned:
        return None
    symbols = dict(call.symbols)
    for one in seen.observation.constraints:
        if one.kind == "replacement":
            symbol, _, value = one.text.partition(" = ")
            if symbol in symbols and value_at(value, symbols) not in (None, symbols[symbol]):
                return one
    return None


KINDS: Mapping[Kind, KindRow] = {
    "specialized": KindRow(
        "an unbacked size was replaced by a number or another size, but eager accepts inputs of other sizes",
        "{site} fixes a size {evidence}",
        locate,
    ),
}

ORACLE = Oracle("specialization", KINDS, judge, CALL_SIZES)
