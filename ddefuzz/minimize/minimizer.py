"""The minimizer's driver: tests whether each candidate still shows the same bug, until no pass finds a smaller one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ddefuzz.minimize.order import sort_key
from ddefuzz.minimize.rewrite import Facts, Inspect, know_nothing, tidy
from ddefuzz.minimize.structure import (
    call_functions,
    cut,
    drop_dead,
    drop_steps,
    inline,
    isolate,
    isolate_any,
    promote,
    return_less,
)
from ddefuzz.minimize.values import (
    back_dims,
    drop_arguments,
    drop_dims,
    drop_options,
    fit_outputs,
    hoist,
    lower_numbers,
    plain_inputs,
    plain_values,
    public_functions,
    sensible_arguments,
    share_names,
    shorten,
    shrink_sizes,
    tie_sizes,
    to_constants,
)
from ddefuzz.program.model import Program
from ddefuzz.program.recipes import fault_of
from ddefuzz.program.text import digest

Pass: TypeAlias = Callable[[Program, Facts], Iterator[Program]]

PASSES: tuple[Pass, ...] = (
    drop_options,
    isolate,
    promote,
    isolate_any,
    return_less,
    call_functions,
    drop_dead,
    cut,
    drop_steps,
    plain_inputs,
    drop_arguments,
    to_constants,
    hoist,
    public_functions,
    sensible_arguments,
    fit_outputs,
    drop_dims,
    tie_sizes,
    shrink_sizes,
    share_names,
    back_dims,
    shorten,
    lower_numbers,
    plain_values,
    inline,
)


@dataclass(frozen=True, slots=True)
class SmallestProgram:
    """The smallest program found. `attempts` counts the calls of `accepts`.

    `exhausted` says that the limit of attempts was reached before the passes were done, so there may be a
    smaller program.
    """

    program: Program
    attempts: int
    exhausted: bool


def minimize(
    program: Program,
    accepts: Callable[[Program], bool],
    *,
    max_attempts: int = 200,
    inspect: Inspect = know_nothing,
    deprecated: Callable[[Program], bool] = lambda _: False,
    failing_functions: tuple[str, ...] = (),
    on_improvement: Callable[[Program], None] | None = None,
    passes: tuple[Pass, ...] = PASSES,
) -> SmallestProgram:
    """The smallest program that `accepts` accepts and the passes reach. `accepts` must accept `program` itself.

    Of programs of equal length, one that is not `deprecated` is the smaller. `accepts` is called only for
    programs that are smaller than the best so far and that `inspect` can run, and at most once for each.
    `on_improvement` is called with every better program as soon as it is known, so that an interrupt (Ctrl-C
    passes through) loses nothing. `failing_functions` are tried alone first.
    """
    best, facts = program, Facts(inspect(program) or {}, failing_functions)
    best_is_deprecated = deprecated(program)
    tried = {digest(program)}
    attempts = 0
    exhausted = False

    def first_better(one_pass: Pass) -> tuple[Program, Facts] | None:
        """The first candidate that is accepted; None if there is none, or if no attempt is left."""
        nonlocal attempts, exhausted
        smallest_yet = sort_key(best, deprecated=best_is_deprecated)
        for candidate in map(tidy, one_pass(best, facts)):
            # An invalid input cannot be printed, so this is checked first.
            if any(map(fault_of, candidate.inputs)) or not sizes_agree(candidate):
                continue
            if (name := digest(candidate)) in tried or sort_key(candidate) >= smallest_yet:
                continue
            tried.add(name)
            values = inspect(candidate)
            if values is None:
                continue
            if sort_key(candidate, deprecated=deprecated(candidate)) >= smallest_yet:
                continue
            if attempts == max_attempts:
                exhausted = True
                return None
            attempts += 1
            if accepts(candidate):
                return candidate, Facts(values, failing_functions)
        return None

    done = False
    while not done and not exhausted:
        done = True
        for one_pass in (_as_it_is, *passes):
            while not exhausted and (better := first_better(one_pass)) is not None:
                done = False
                best, facts = better
                best_is_deprecated = deprecated(best)
                if on_improvement is not None:
                    on_improvement(best)
    return SmallestProgram(best, attempts, exhausted)


def sizes_agree(program: Program) -> bool:
    """Whether each symbol has one size. A pass may have changed only one of its dims."""
    dims = {(dim.symbol, dim.size) for item in program.inputs for dim in item.shape if dim.symbol is not None}
    return len({symbol for symbol, _ in dims}) == len(dims)


def _as_it_is(program: Program, facts: Facts) -> Iterator[Program]:
    """The program itself, so that the driver tidies it."""
    del facts
    yield program
