"""Which differences count: refusals by PyTorch's rule that a size that is 1 only at run time does not broadcast, and
the verdict that compares explicit and size-oblivious semantics for one stage. One run is enough for most programs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from ddefuzz.errors import DdefuzzError
from ddefuzz.execute.protocol import Call, Observation
from ddefuzz.instrument.truth import Number, addends, clauses, parsed, sides, value_at
from ddefuzz.program.model import Program


def turned(condition: str) -> str:
    """A comparison with its sides in one order: `u0 >= 2` for `2 <= u0`."""
    match parsed(condition):
        case ast.Compare(left, [ast.LtE() | ast.Lt() as less], [right]):
            more = ast.GtE() if isinstance(less, ast.LtE) else ast.Gt()
            return ast.unparse(ast.Compare(right, [more], [left]))
        case None:
            return condition
        case tree:
            return ast.unparse(tree)


_GUARD_OF_DYNAMO = re.compile(
    r"Guard failed on the same frame it was created\b.*?"
    r"\bargs\[(\d+)\]\.size\(\)\[(\d+)\] == args\[(\d+)\]\.size\(\)\[(\d+)\]",
    re.DOTALL,
)
"""What dynamo says of two sizes, if inputs do not fit their own capture (torch/_dynamo/guards.py)."""

_MODULO = re.compile(r"(Python)?Mod\(")  # a remainder, as torch prints it


def accepted(call: Call) -> bool:
    """Whether a rejection by the captured program follows that rule. A range may follow from an assertion."""
    reasons = filter(None, (call.captured.expression, call.captured.follows))
    return any(is_broadcast_of_1(reason, dict(call.symbols)) for reason in reasons)


def is_refused_example(message: str, program: Program) -> bool:
    """Whether dynamo refuses the example itself by that rule, before the captured program runs."""
    match = _GUARD_OF_DYNAMO.search(message)
    if match is None:
        return False
    places = [(int(arg), int(dim)) for arg, dim in (match.groups()[:2], match.groups()[2:])]
    if any(arg >= len(program.inputs) or dim >= len(program.inputs[arg].shape) for arg, dim in places):
        return False
    dims = [program.inputs[arg].shape[dim] for arg, dim in places]
    ones = [dim.size == 1 and dim.symbol is not None for dim in dims]
    return ones[0] != ones[1] and dims[0].size != dims[1].size


def is_broadcast_of_1(assertion: str, symbols: Mapping[str, int | float]) -> bool:
    """Whether an assertion that is not true at these sizes follows that rule.

    One of its clauses states that two sizes are equal, and exactly one of them is 1. That one has a symbol: a size
    that is 1 in the capture broadcasts, so an assertion that another size is the number 1 does not follow the rule.
    """
    for clause in clauses(assertion):
        pair = sides(clause)
        values = [value_at(side, symbols) for side in pair] if pair is not None else []
        if pair is None or None in values or _is_divisibility(pair):
            continue
        known = [value_at(side, {}) is not None for side in pair]
        if any(_one_is_1(values, known, shift) for shift in {0, *addends(pair[0]), *addends(pair[1])}):
            return True
    return False


def _is_divisibility(pair: tuple[str, str]) -> bool:
    """Whether an equation says that one number divides another: `Eq(Mod(n, u0), 0)`. Its sides are no sizes."""
    return any(_MODULO.match(one) and other == "0" for one, other in (pair, pair[::-1]))


def _one_is_1(values: list[Number | None], known: list[bool], shift: int) -> bool:
    """Whether one of two sizes is 1 and has a symbol. sympy may move a term: `u0 - 1 == n` as `u0 == n + 1`."""
    ones = [value == 1 + shift for value in values]
    return ones[0] != ones[1] and not known[ones.index(True)]


Verdict: TypeAlias = Literal["ok", "rescued", "fails", "changed", "regressed", "diverged", "not-judged"]
"""
The verdicts, with explicit and size-oblivious semantics compared:

ok          both capture the program, with the same graph
rescued     only explicit captures it: size-oblivious could not decide a guard
fails       explicit does not capture it
changed     both capture it, with different graphs
regressed   only size-oblivious captures it, and what it captured takes the example
diverged    one of the two computes other values than eager
not-judged  the stage could not be run here (this is not ok)
"""

_UPPER = re.compile(r"(\d+) >= (u\d+)")
"""An assertion about the largest value of a symbol, with its sides as `turned` puts them."""

LAYOUT: frozenset[tuple[str, str]] = frozenset(
    {
        ("c10/core/Contiguity.h", ""),
        ("torch/_prims_common/__init__.py", "check_contiguous_sizes_strides"),
        ("torch/_prims_common/__init__.py", "is_contiguous"),
        ("torch/_prims_common/__init__.py", "is_channels_last_contiguous_2d"),
        ("torch/_prims_common/__init__.py", "are_strides_like_channels_last_or_false"),
    }
)
"""File and function of the guards that decide a tensor's memory format. Every third captured program evaluates one."""

SMALLEST_ASSUMED = 2  # size-oblivious semantics decide guards as if every unbacked size were at least this


def needs_second_run(explicit: Observation) -> bool:
    """Whether a run with size-oblivious semantics is needed: the first fallback that differs from what these semantics
    say is one that they answer otherwise.

    If it is one that they cannot decide, a capture fails there, because both runs reach it in the same way. Runs
    to compare need the text of their graph (`Run.graph`).
    """
    told = (guard.counterfactual for guard in explicit.guards)
    first = next((one for one in told if one in {"other", "undecided"}), None)
    return explicit.outcome in ("ok", "fail") and first == "other"


def is_mostly_alike(explicit: Observation) -> bool:
    """Whether the semantics differ only in what is contiguous: then they capture almost always the same program."""
    other = [guard for guard in explicit.guards if guard.counterfactual == "other"]
    return all((guard.place.file, guard.function) in LAYOUT for guard in other)


def verdict(explicit: Observation, size_oblivious: Observation | None = None) -> Verdict:
    """The verdict on one stage. `size_oblivious` is the second run, required if `needs_second_run` is true."""
    if explicit.outcome == "not-judged":
        return "not-judged"
    if size_oblivious is None and not needs_second_run(explicit):
        return _alone(explicit)
    if size_oblivious is None:
        raise DdefuzzError(f"stage {explicit.stage}: a fallback differs, so a size-oblivious run must be given")
    if _diverges(explicit, explicit) or _diverges(size_oblivious, explicit):
        return "diverged"
    match explicit.outcome, size_oblivious.outcome:
        case _, "not-judged":
            return "not-judged"
        case "ok", "ok":
            return _compared(explicit, size_oblivious)
        case "ok", _:
            return "rescued"
        case _, "ok":
            return "fails" if refuses_example(size_oblivious) else "regressed"
        case _:
            return "fails"


def _alone(explicit: Observation) -> Verdict:
    if explicit.outcome != "ok":
        return "fails"
    if _diverges(explicit, explicit):
        return "diverged"
    return "rescued" if any(guard.counterfactual == "undecided" for guard in explicit.guards) else "ok"


def _compared(explicit: Observation, size_oblivious: Observation) -> Verdict:
    if explicit.graph is None or size_oblivious.graph is None:
        return "not-judged"
    return "ok" if explicit.graph == size_oblivious.graph else "changed"


def _diverges(observation: Observation, explicit: Observation) -> bool:
    return any(values_differ(call) and not assumed_away(call, observation, explicit) for call in observation.calls)


def values_differ(call: Call) -> bool:
    """Whether the captured program computes other values than eager in a call. Different strides alone do not count."""
    return call.agreement == "differs" and any(one.what != "strides" for one in call.differences)


def refuses_example(observation: Observation) -> bool:
    """Whether a captured program refuses the inputs with which it was captured, by no accepted rule.

    Size-oblivious semantics may decide a guard by sizes that they assume, which are not those of the example.
    """
    example = (call for call in observation.calls if call.size == "example")
    return any(one.eager.returned and not one.captured.returned and not accepted(one) for one in example)


def assumed_away(call: Call, observation: Observation, explicit: Observation) -> bool:
    """Whether size-oblivious semantics say nothing about a call: they assume that every unbacked size is at least 2,
    and below the upper end of its range (`_maybe_evaluate_static_worker` in torch/fx/experimental/symbolic_shapes.py).

    A call whose sizes are not known counts as one of these. `explicit` is the same run under explicit semantics, whose
    assertions have the whole ranges.
    """
    if observation.semantics.mechanism != "size-oblivious":
        return False
    symbols = dict(call.symbols)
    sizes = [value for value in symbols.values() if isinstance(value, int)]
    return not symbols or min(sizes, default=SMALLEST_ASSUMED) < SMALLEST_ASSUMED or _at_upper_end(symbols, explicit)


def _at_upper_end(symbols: Mapping[str, int | float], observation: Observation) -> bool:
    """Whether some symbol has the largest value that an assertion of the captured program allows (`u0 <= 4`)."""
    conditions = {turned(one.condition) for form in observation.forms for one in form.assertions}
    bounds = (_UPPER.fullmatch(condition) for condition in conditions)
    return any(symbols.get(bound[2]) == int(bound[1]) for bound in bounds if bound is not None)
