"""The driver: it alone asks whether a candidate still shows the same bug, and goes on until no pass helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ddefuzz.minimize.facts import Facts, Inspect, know_nothing
from ddefuzz.minimize.order import sort_key
from ddefuzz.minimize.passes import PASSES, Pass
from ddefuzz.minimize.rewrite import tidy
from ddefuzz.program.model import Program
from ddefuzz.program.recipes import fault_of
from ddefuzz.program.text import digest


@dataclass(frozen=True, slots=True)
class Minimized:
    """The smallest program found. `attempts` counts what was asked of `accepts`.

    `exhausted` says that the attempts ran out before the passes did: there may be a smaller one.
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
) -> Minimized:
    """The smallest program that `accepts` takes, as far as the passes lead; `program` itself must be one.

    Of programs of equal length one that is not `deprecated` is the smaller. `accepts` is asked only of programs that
    are smaller than the best so far, that `inspect` can run, and never twice of the same. `on_improvement` gets every
    better program as soon as it is known, so that whatever interrupts this (Ctrl-C passes through) loses nothing.
    `failing_functions` are tried on their own first.
    """
    best, facts = program, Facts(inspect(program) or {}, failing_functions)
    best_is_deprecated = deprecated(program)
    tried = {digest(program)}
    attempts = 0
    exhausted = False

    def first_better(one_pass: Pass) -> tuple[Program, Facts] | None:
        """The first candidate that is accepted; None if none is, or no attempt is left."""
        nonlocal attempts, exhausted
        smallest_yet = sort_key(best, deprecated=best_is_deprecated)
        for candidate in map(tidy, one_pass(best, facts)):
            # What cannot be an input cannot be printed either, so that is asked first.
            if any(map(fault_of, candidate.inputs)) or not _sizes_agree(candidate):
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

    at_rest = False
    while not at_rest and not exhausted:
        at_rest = True
        for one_pass in (_as_it_is, *passes):
            while not exhausted and (found := first_better(one_pass)) is not None:
                at_rest = False
                best, facts = found
                best_is_deprecated = deprecated(best)
                if on_improvement is not None:
                    on_improvement(best)
    return Minimized(best, attempts, exhausted)


def _sizes_agree(program: Program) -> bool:
    """Whether each symbol has one size; a pass may have changed one of its dims alone."""
    dims = {(dim.symbol, dim.size) for item in program.inputs for dim in item.shape if dim.symbol is not None}
    return len({symbol for symbol, _ in dims}) == len(dims)


def _as_it_is(program: Program, facts: Facts) -> Iterator[Program]:
    """The program itself, for the driver to make tidy."""
    del facts
    yield program
