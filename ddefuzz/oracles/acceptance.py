"""What captured programs may do otherwise than eager: each accepted difference is a row of a table.

Each row gives the class under which a campaign counts it, and the predicate. Nothing here reports a failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from ddefuzz.execute.protocol import COMPILES, ONLY_IN_EAGER, Call, CallEnd, Difference, differs
from ddefuzz.instrument.truth import value_at
from ddefuzz.oracles.blame import OracleInput, at_maker, is_unchecked, reads_strides_of_nothing
from ddefuzz.oracles.verdict import accepted, is_refused_example, turned
from ddefuzz.program.expressions import SELF_COMPILING
from ddefuzz.program.model import (
    Attribute,
    Expr,
    Index,
    Literal,
    Name,
    Program,
    Sequence,
    children,
    expressions,
    functions_in,
    names_in,
    walk,
    writes,
)
from ddefuzz.program.model import Call as ProgramCall
from ddefuzz.program.sizes import at_data_size

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

TIES = re.compile(r"(^|[._])(topk|sort|argsort|kthvalue|mode|median|nanmedian|argmax|argmin|unique)")
"""Functions that may choose freely among equal values. Inductor chooses differently from eager."""

ATTENTION = re.compile(r"(^|[._])scaled_dot_product_attention$")
"""Attention. Its result is random only with dropout: the argument `dropout_p`, the fifth one, is not 0."""

DROPOUT = 4  # the position of `dropout_p` in a call of attention
ORDER = "Tensor.dim_order"  # the function by which a program asks for the order of dims in memory
EXTREMA = frozenset({"min", "max"})  # Python's functions that return one of their arguments
SIZES = frozenset({"shape", "ndim", "dtype", "device", "layout"})  # attributes that do not read the data of a tensor

ABOUT_THE_TAPE = re.compile("appears to not have been used in the graph")
"""Errors of eager's autograd about its own tape (torch/csrc/autograd/autograd.cpp), not about the inputs."""

ABOUT_THE_STORAGE = re.compile("are out of bounds for storage of size")
"""Errors of `as_strided` about the memory behind a tensor (aten/src/ATen/native/Resize.h). The captured program runs
the same check, so its tensor is a copy where eager's is a view, which is allowed. Code of inductor has no such check.
"""

ABOUT_DATA = re.compile("index (-?\\d+ )?is out of bounds|(?<!tuple )index out of range|MKL FFT error")
"""Errors of eager about the values of an index, or of the library that computes, not about sizes."""

EXPAND = ("torch/_refs/__init__.py", "expand")  # file and function of `expand`

_SIZE_OF_INPUT = re.compile(r"args_\d+_size_\d+ == \d+")
_AT_LEAST = re.compile("(.+) >= (.+)")
_ITEM = re.compile(r"\[(\d+)\]")


def unspecified(seen: OracleInput) -> str:
    """Why some result of this program need not be eager's; empty if every one has to be."""
    program, stage = seen.program, seen.observation.stage
    reasons = (_reason(whole, stage) for whole in expressions(program)) if program is not None else ()
    return next(filter(None, reasons), "")


def _reason(expression: Expr, stage: str) -> str:
    """Why a function that an expression calls may have another result than eager's; empty if none may."""
    for called in walk(expression):
        if not isinstance(called, ProgramCall):
            continue
        for pattern, why in UNSPECIFIED:
            if pattern.search(called.function):
                return why
        if stage in COMPILES and TIES.search(called.function):
            return "ties"
        if ATTENTION.search(called.function):
            given = [
                *called.args[DROPOUT : DROPOUT + 1],
                *(value for name, value in called.kwargs if name == "dropout_p"),
            ]
            if any(not (isinstance(part, Literal) and part.value == 0) for part in given):
                return "random numbers"
    return ""


@lru_cache(maxsize=64)
def _undetermined(program: Program, stage: str) -> tuple[dict[str, str], str]:
    """The targets whose values depend on an unspecified result, each with the reason; and the reason for all values, if
    one was written into a tensor.
    """
    names: dict[str, str] = {}
    for step in program.steps:
        inherited = (names[name] for name in names_in(step.value) if name in names)
        why = _reason(step.value, stage) or next(inherited, "")
        if why and writes(step):
            return names, why
        if why:
            names.update(dict.fromkeys(step.targets, why))
    return names, ""


def why_unspecified(seen: OracleInput, difference: Difference) -> str:
    """Why the value that differs need not be eager's: it depends on a result that is unspecified. Empty if it has to
    be. What is no part of the result (an input, a gradient) may depend on every one.
    """
    program, stage = seen.program, seen.observation.stage
    if program is None:
        return ""
    names, of_all = _undetermined(program, stage)
    if of_all:
        return of_all
    if not difference.where.startswith("result"):
        return next(iter(names.values()), "")
    part = program.returns
    for item in _ITEM.findall(difference.where):
        if not isinstance(part, Sequence) or int(item) >= len(part.items):
            break
        part = part.items[int(item)]
    return _reason(part, stage) or next((names[name] for name in names_in(part) if name in names), "")


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


def has_static_inputs_only(call: Call) -> bool:
    """Whether a rejection is a guard on a size of an input, and the exported graph has no unbacked symbol. Strict
    export makes the inputs static if the graph computes nothing (`return x.is_contiguous()`).
    """
    sized = _SIZE_OF_INPUT.fullmatch(call.captured.expression) is not None
    return sized and not any(name.startswith("u") for name, _ in call.symbols)


def expands_to_itself(seen: OracleInput, call: Call) -> bool:
    """Whether a rejection is that of `expand` to a size which is -1 in this call. Eager takes that as "keep the size".
    torch assumes on purpose that a size which data decide does not mean that, and asserts it (`expand` in
    torch/_refs/__init__.py).
    """
    asserted = _AT_LEAST.fullmatch(turned(call.captured.follows or call.captured.expression))
    values = [value_at(side, dict(call.symbols)) for side in asserted.groups()] if asserted is not None else []
    # torch may move a term: `2*u0 - 1 >= 0` is printed as `1 <= 2*u0`.
    if len(values) != 2 or values[0] is None or values[1] is None or values[0] - values[1] != -1:
        return False
    texts = {call.captured.follows, call.captured.expression}
    makers = (at_maker(one).site for one in seen.observation.constraints if {one.text, one.follows} & texts - {""})
    return any((site.module, site.function) == EXPAND for site in makers)


def has_dead_code(program: Program) -> bool:
    """Whether a program computes something that it does not return. A capture drops that, with its checks."""
    live = set(names_in(program.returns))
    for step in reversed(program.steps):
        if step.targets and live.isdisjoint(step.targets):
            return True
        live |= names_in(step.value)
    return any(
        isinstance(one, Index) and isinstance(one.value, Sequence)
        for whole in expressions(program)
        for one in walk(whole)
    )


def computes_sizes_only(program: Program) -> bool:
    """Whether a program computes a tensor and uses its sizes alone. A capture drops that, with the checks of data."""
    reads = (
        one for whole in expressions(program) for one in walk(whole) if isinstance(one, Attribute) and one.name in SIZES
    )
    if any(isinstance(one.value, ProgramCall) for one in reads):
        return True
    live = set(_data_in(program.returns))
    for step in reversed(program.steps):
        if step.targets and live.isdisjoint(step.targets):
            return True
        live |= _data_in(step.value)
    return False


def _data_in(value: Expr) -> frozenset[str]:
    """The inputs and targets whose data an expression reads."""
    match value:
        case Name(name):
            return frozenset({name})
        case Attribute(_, name) if name in SIZES:
            return frozenset()
        case _:
            return frozenset().union(*map(_data_in, children(value)))


def is_refused_by_dynamo(seen: OracleInput, call: Call) -> bool:
    """Whether a guard of dynamo on two sizes of inputs refuses a call by the rule about a size of 1. It has no
    expression of symbols: the one size has replaced the other.
    """
    return seen.program is not None and is_refused_example(call.captured.error, at_data_size(seen.program, call.size))


class Acceptance(NamedTuple):
    """An accepted difference: its class, and whether a call shows it.

    With `of_program`, it is about the program as a whole. The search for a site, which runs parts of it, does not ask.
    """

    name: str
    applies: Callable[[OracleInput, Call], bool]
    of_program: bool = False


def marks_its_results(seen: OracleInput, call: Call) -> bool:
    """Whether control flow makes results require a gradient that eager's do not.

    Torch marks all results of such a call if an operand requires a gradient (torch/_higher_order_ops/utils.py). Plain
    Python marks those that depend on it.
    """
    if seen.program is None or SELF_COMPILING.isdisjoint(functions_in(seen.program)):
        return False
    return all(
        one.how.startswith("requires a gradient, ") or one.how == "Tensor, eager has NoneType"
        for one in call.differences
    )


OF_RESULTS: tuple[Acceptance, ...] = (
    Acceptance("control flow marks its results", marks_its_results),
    Acceptance("strides of an empty tensor", reads_strides_of_nothing),
    Acceptance("order of dims of size 0 or 1", _has_several_orders),
    Acceptance("type of min or max", _differs_in_type_of_extremum),
)
"""Both return, and the results differ. Single values that are unspecified are left out before (`why_unspecified`)."""

OF_REFUSALS: tuple[Acceptance, ...] = (
    Acceptance("a size of 1 does not broadcast", lambda seen, call: accepted(call) or is_refused_by_dynamo(seen, call)),
    Acceptance("expand to -1", expands_to_itself),
    Acceptance("strides of an empty tensor", reads_strides_of_nothing),
    Acceptance("eager does not check", lambda seen, _: is_unchecked(seen)),
    Acceptance("static inputs of a graph that computes nothing", lambda _, call: has_static_inputs_only(call)),
)
"""Only the captured program refuses."""

OF_ERRORS: tuple[Acceptance, ...] = (
    Acceptance("autograd's tape", lambda _, call: _about(call.eager, ABOUT_THE_TAPE)),
    Acceptance(
        "memory behind a copy",
        lambda seen, call: seen.observation.stage not in COMPILES and _about(call.eager, ABOUT_THE_STORAGE),
    ),
    Acceptance("strides of an empty tensor", reads_strides_of_nothing),
    Acceptance(
        "dead code",
        lambda seen, _: seen.program is not None and has_dead_code(seen.program),
        of_program=True,
    ),
    Acceptance(
        "data that is not read",
        lambda seen, call: (
            (_about(call.eager, ABOUT_DATA) or _about(call.eager, ABOUT_THE_STORAGE))
            and seen.program is not None
            and computes_sizes_only(seen.program)
        ),
        of_program=True,
    ),
)
"""Only eager refuses."""


def _about(ended: CallEnd, pattern: re.Pattern[str]) -> bool:
    return pattern.search(ended.error) is not None


def accepted_as(rows: Iterable[Acceptance], seen: OracleInput, call: Call, *, part: bool = False) -> str:
    """The class of the first row that a call shows; empty if it shows none. `part` says that `seen` is of a part of the
    program.
    """
    return next((row.name for row in rows if not (part and row.of_program) and row.applies(seen, call)), "")


def classes(seen: OracleInput) -> frozenset[str]:
    """The classes of all accepted differences in the calls of a captured program."""
    return frozenset(name for call in seen.observation.calls if not call.recompiled for name in _classes_in(seen, call))


def _classes_in(seen: OracleInput, call: Call) -> Iterator[str]:
    for difference in call.accepted:
        if difference.what == "alias":
            yield "a copy for a view" if difference.how.endswith(ONLY_IN_EAGER) else "a view for a copy"
        elif difference.what == "placement":
            yield "another placement of a DTensor"
        else:
            yield f"{difference.what} of a copy"
    if call.agreement == "incomparable":
        yield "not compared"
    if not differs(call):
        return
    if call.eager.returned and call.captured.returned:
        reasons = {why_unspecified(seen, one) for one in call.differences}
        yield from reasons - {""}
        rows = OF_RESULTS
    else:
        rows = OF_REFUSALS if call.eager.returned else OF_ERRORS
    if name := accepted_as(rows, seen, call):
        yield name
