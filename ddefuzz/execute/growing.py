"""Export a program repeated a few times and many times, and count the evaluations of expressions over sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ddefuzz.execute.growth import BLOCKS, Growth
from ddefuzz.execute.prepared import Prepared
from ddefuzz.execute.stages import export
from ddefuzz.instrument.counting import Counts, counting


def grown(make: Callable[[], Prepared]) -> tuple[Growth, ...]:
    """How each count grows. `make` prepares a new program for each export."""
    export(_repeated(make(), 1))  # imports, and fills torch's caches
    few, many = (_counted(_repeated(make(), number)) for number in BLOCKS)
    return tuple(
        Growth(name, few.calls[name], number, _grown_most(few.callers[name], many.callers[name]), _asked_most(many))
        for name, number in sorted(many.calls.items())
    )


def _counted(prepared: Prepared) -> Counts:
    with counting() as counts:
        export(prepared)
    return counts


def _repeated(prepared: Prepared, number: int) -> Prepared:
    """A program that runs the block this many times on the same inputs, and returns all results."""
    block = prepared.call

    def blocks(*args: Any, **kwargs: Any) -> list[Any]:
        return [block(*args, **kwargs) for _ in range(number)]

    return replace(prepared, call=blocks)


def _grown_most(few: Counter[str], many: Counter[str]) -> str:
    return max(sorted(many), key=lambda name: many[name] - few[name] * BLOCKS[1] // BLOCKS[0], default="")


def _asked_most(counts: Counts) -> str:
    return next(iter(counts.patterns()), "")
