"""Whether a program runs in eager torch, at more than one data size."""

from __future__ import annotations

from ddefuzz.generate.eager import tolerant_eager
from ddefuzz.generate.lockstep import REFUSALS
from ddefuzz.program.evaluate import run_steps
from ddefuzz.program.inputs import materialize
from ddefuzz.program.model import Program
from ddefuzz.program.resize import at_data_size
from ddefuzz.program.sizes import DATA_SIZES


def is_valid(program: Program) -> bool:
    """Whether the program runs in eager at its example size and at least one other data size."""
    others = (at_data_size(program, size) for size in DATA_SIZES)
    return _accepts(program) and any(_accepts(other) for other in others if other != program)


def _accepts(program: Program) -> bool:
    try:
        with tolerant_eager():
            run_steps(program, materialize(program))
    except REFUSALS:
        return False
    return True
