"""The assertion oracle: a captured program must reject exactly the inputs that eager rejects."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddefuzz.classify.chain import Located
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.shape import expression_shape
from ddefuzz.execute.calls import Call
from ddefuzz.execute.protocol import Runner
from ddefuzz.oracles.oracle import KindRow, Oracle
from ddefuzz.oracles.seen import Seen, at_maker, guard_to_blame, op_to_blame, unknown
from ddefuzz.oracles.truth import Number, addends, clauses, sides, value_at
from ddefuzz.program.model import Index, Program, Sequence, names_in, walk
from ddefuzz.program.sizes import CALL_SIZES

ABOUT_THE_TAPE = re.compile("appears to not have been used in the graph")
"""Errors of eager's autograd about its own tape (torch/csrc/autograd/autograd.cpp), not about the inputs. A kernel may
record another tape for an empty tensor.
"""


def accepted(call: Call) -> bool:
    """Whether a rejection follows PyTorch's rule that a size that is 1 only at run time does not broadcast.

    This is known from the form of the assertion: one of its clauses states that two sizes are equal, and in
    this call exactly one of them is 1.
    """
    symbols = dict(call.symbols)
    for clause in clauses(call.captured.expression):
        pair = sides(clause)
        values = [value_at(side, symbols) for side in pair] if pair is not None else []
        shifts = {0, *(shift for side in pair or () for shift in addends(side))}
        if len(values) == 2 and None not in values and any(_one_is_1(values, shift) for shift in shifts):
            return True
    return False


def _one_is_1(values: list[Number | None], shift: int) -> bool:
    """Whether just one of two sizes is 1. sympy may have moved a term: `u0 - 1 == n` prints as `u0 == n + 1`."""
    return (values[0] == 1 + shift) != (values[1] == 1 + shift)


def judge(seen: Seen) -> tuple[Failure, ...]:
    """Report the first call that only the captured program rejects, and the first call that only eager rejects."""
    calls = seen.observation.calls
    program = seen.program
    drops = program is not None and has_dead_code(program)
    strict = next((call for call in calls if _over_strict(call)), None)
    lax = None if drops else next((call for call in calls if _missing(call)), None)
    found = []
    if strict is not None:
        said = strict.captured.expression or strict.captured.error
        found.append(Failure("over-strict", seen.observation, f"at size {strict.size}: {said}", strict.size))
    if lax is not None:
        said = f"at size {lax.size} eager: {lax.eager.error}"
        found.append(Failure("missing-assertion", seen.observation, said, lax.size))
    return tuple(found)


def locate(failure: Failure, seen: Seen, runner: Runner) -> Located:
    """The guard whose true value fixes it; else the code that made the assertion; else the op that shows it alone."""
    shows = _over_strict if failure.kind == "over-strict" else _missing
    call = next(call for call in failure.observation.calls if shows(call))
    guard = guard_to_blame(seen, call, shows, runner)
    if guard is not None:
        return guard
    made = (one for one in failure.observation.constraints if one.text == call.captured.expression)
    maker = next(made, None) if failure.kind == "over-strict" else None
    if maker is not None:
        return at_maker(maker)
    refused = call.captured if failure.kind == "over-strict" else call.eager
    anchor = expression_shape(refused.expression) if refused.expression else refused.error.partition(":")[0]
    return op_to_blame(seen, call, shows, anchor, runner) or unknown(seen)


def _over_strict(call: Call) -> bool:
    return call.eager.returned and not call.captured.returned and not call.recompiled and not accepted(call)


def _missing(call: Call) -> bool:
    refused = not call.eager.returned and not ABOUT_THE_TAPE.search(call.eager.error)
    return refused and call.captured.returned and not call.recompiled


def has_dead_code(program: Program) -> bool:
    """Whether a program computes something that it does not return. A capture drops that, with its checks."""
    live = set(names_in(program.returns))
    for step in reversed(program.steps):
        if step.targets and live.isdisjoint(step.targets):
            return True
        live |= names_in(step.value)
    expressions = (*(step.value for step in program.steps), program.returns)
    return any(
        isinstance(one, Index) and isinstance(one.value, Sequence) for whole in expressions for one in walk(whole)
    )


KINDS: Mapping[Kind, KindRow] = {
    "over-strict": KindRow(
        "the captured program rejects inputs that eager accepts",
        "{site} makes the captured program refuse inputs {evidence}",
        locate,
    ),
    "missing-assertion": KindRow(
        "the captured program accepts inputs that eager rejects",
        "{site} lets the captured program take what eager refuses {evidence}",
        locate,
    ),
}

ORACLE = Oracle("assertions", KINDS, judge, CALL_SIZES)
