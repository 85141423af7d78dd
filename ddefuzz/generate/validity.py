"""Which data sizes a program accepts in eager torch."""

from __future__ import annotations

from ddefuzz.generate.eager import tolerant_eager
from ddefuzz.generate.lockstep import REFUSALS
from ddefuzz.program.evaluate import run_steps
from ddefuzz.program.inputs import DATA_SIZES, DataSize, dial, materialize
from ddefuzz.program.model import Program


def valid_sizes(program: Program) -> tuple[DataSize, ...]:
    """The data sizes at which eager runs the program without an error: a guard's fallback is right or wrong there."""
    return tuple(size for size in DATA_SIZES if _accepts(dial(program, size)))


def is_valid(program: Program) -> bool:
    """Whether eager accepts the program at its example size and at one other data size at least."""
    others = (dial(program, size) for size in DATA_SIZES)
    return _accepts(program) and any(_accepts(other) for other in others if other != program)


def _accepts(program: Program) -> bool:
    try:
        with tolerant_eager():
            run_steps(program, materialize(program))
    except REFUSALS:
        return False
    return True
