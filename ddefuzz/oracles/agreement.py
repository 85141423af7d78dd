"""The agreement oracle: a captured program must compute what eager computes, at every size."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Site
from ddefuzz.execute.protocol import Call, Runner
from ddefuzz.instrument.torch_api import OUTPUT_STRIDES
from ddefuzz.oracles.blame import OracleInput, cheapest, guard_to_blame, op_to_blame, reads_strides_of_nothing, unknown
from ddefuzz.oracles.oracle import KindRow, Oracle
from ddefuzz.program.model import Call as ProgramCall
from ddefuzz.program.model import Literal, expressions, functions_in, walk
from ddefuzz.program.sizes import CALL_SIZES

UNSPECIFIED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(^|[._])(new_)?empty(_|$)|(^|\.)resize_"), "uninitialized memory"),
    (
        re.compile(
            r"rand|bernoulli|dropout|multinomial|(^|[._])(normal|uniform|exponential|geometric|cauchy|log_normal)_?$"
            r"|rrelu|fractional_max_pool"
        ),
        "random numbers",
    ),
    (re.compile(r"(^|[._])_unsafe_(masked_)?index"), "indexes that no kernel checks"),
    (re.compile(r"(^|[._])_debug_has_internal_overlap$"), "an answer that may be `too hard`"),
    # On purpose: see the comment in `_check_strides_helper` (torch/_prims_common/__init__.py).
    (re.compile(r"(^|[._])check_(significant|all)_strides$"), "a check that is skipped for unbacked sizes"),
)
"""Patterns of functions whose results may differ between two correct programs, with the reason."""

ATTENTION = re.compile(r"(^|[._])scaled_dot_product_attention$")
"""Attention. Its result is random only with dropout: the argument `dropout_p`, the fifth one, is not 0."""

DROPOUT = 4  # the position of `dropout_p` in a call of attention
ORDER = "Tensor.dim_order"  # the function by which a program asks for the order of dims in memory
EXTREMA = frozenset({"min", "max"})  # Python's functions that return one of their arguments

TIES = re.compile(r"(^|[._])(topk|sort|argsort|kthvalue|mode|median|nanmedian|argmax|argmin|unique)")
"""Functions that may choose freely among equal values. Inductor chooses differently from eager."""


def unspecified(seen: OracleInput) -> str:
    """Why the results of this program are not compared; empty if they are."""
    program = seen.program
    for name in functions_in(program) if program is not None else ():
        for pattern, why in UNSPECIFIED:
            if pattern.search(name):
                return f"{why} ({name})"
        if seen.observation.stage == "inductor" and TIES.search(name):
            return f"ties ({name})"
    parts = (one for whole in expressions(program) for one in walk(whole)) if program is not None else ()
    for call in (one for one in parts if isinstance(one, ProgramCall) and ATTENTION.search(one.function)):
        given = [*call.args[DROPOUT : DROPOUT + 1], *(value for name, value in call.kwargs if name == "dropout_p")]
        if any(not (isinstance(one, Literal) and one.value == 0) for one in given):
            return f"random numbers ({call.function})"
    return ""


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    """Report a wrong result at some size. Calls that captured the program again do not test the first capture."""
    wrong = [call for call in seen.observation.calls if _differs(seen, call)]
    if not wrong or unspecified(seen):
        return ()
    values = [call for call in wrong if any(one.what != "strides" for one in call.differences)]
    call = (values or wrong)[0]
    difference = next((one for one in call.differences if one.what != "strides"), call.differences[0])
    kind: Kind = "wrong-result" if values else "wrong-layout"
    evidence = f"at size {call.size}: {difference.what} of {difference.where}: {difference.how}"
    return (Failure(kind, seen.observation, evidence, call.size),)


def locate(failure: Failure, seen: OracleInput, runner: Runner) -> Location:
    """The guard whose true value fixes the result, if its fallback was not the true value; else the op of the
    first wrong value. Strides that are wrong in inductor, but right in AOTAutograd's capture, are inductor's doing.
    """
    only_layout = failure.kind == "wrong-layout"

    def shows(seen: OracleInput, call: Call) -> bool:
        return _differs(seen, call) and (only_layout or any(one.what != "strides" for one in call.differences))

    compiled = seen.observation.stage == "inductor"
    seen, call = cheapest(seen, shows, runner)
    if only_layout and compiled and seen.observation.stage == "inductor" and _strides_vary(seen):
        return Location(Site("Python", OUTPUT_STRIDES.file, OUTPUT_STRIDES.name), None, "strides")
    what = next((one.what for one in call.differences if one.what != "strides"), "strides")
    return guard_to_blame(seen, call, shows, runner) or op_to_blame(seen, call, shows, what, runner) or unknown(seen)


def _strides_vary(seen: OracleInput) -> bool:
    """Whether eager's strides of the first wrong result depend on the size: inductor keeps other strides alone."""
    calls = [call for call in seen.observation.calls if _differs(seen, call)]
    wanted = {one.how.partition("eager has ")[2] for call in calls for one in call.differences[:1]}
    return len(wanted) > 1


def _differs(seen: OracleInput, call: Call) -> bool:
    if call.agreement != "differs" or call.recompiled or reads_strides_of_nothing(seen, call):
        return False
    return not _has_several_orders(seen, call) and not _differs_in_type_of_extremum(seen, call)


def _differs_in_type_of_extremum(seen: OracleInput, call: Call) -> bool:
    """Whether the only difference is that a number is an int in one and a float in the other, in a program that takes
    Python's `min` or `max` of both. Which of the two it is depends on data there; a captured number has one type.
    """
    program = seen.program
    if program is None or EXTREMA.isdisjoint(functions_in(program)):
        return False
    pairs = [one.how.split(", eager has ") for one in call.differences if one.what == "number"]
    return len(pairs) == len(call.differences) and all(
        len({one.removesuffix(".0") for one in pair}) == 1 for pair in pairs
    )


def _has_several_orders(seen: OracleInput, call: Call) -> bool:
    """Whether a program asks for the order of dims, and a size is 0 or 1. Then several orders describe one memory."""
    program = seen.program
    return program is not None and not {0, 1}.isdisjoint(dict(call.symbols).values()) and ORDER in functions_in(program)


KINDS: Mapping[Kind, KindRow] = {
    "wrong-result": KindRow(
        "the captured program computes other values than eager at some size",
        "{site} makes the captured program wrong {evidence}",
        locate,
        wrong=True,
    ),
    "wrong-layout": KindRow(
        "the captured program's result has other strides than eager's at some size",
        "{site} gives the captured program's result other strides {evidence}",
        locate,
    ),
}

ORACLE = Oracle("agreement", "the captured program and eager have different results", KINDS, judge, CALL_SIZES)
