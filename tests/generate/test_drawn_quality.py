"""Properties of drawn programs: long enough, on sizes that data decides, valid at another size, and varied."""

from __future__ import annotations

import pytest
import torch

from ddefuzz.generate.draw import drawn_case
from ddefuzz.generate.lockstep import REFUSALS, tolerant_eager
from ddefuzz.program.evaluate import materialize, run_step
from ddefuzz.program.model import Program, functions_in, names_in
from ddefuzz.program.sizes import DATA_SIZES, at_data_size

STEPS = 3


def values(program: Program) -> dict[str, object] | None:
    """Every value of a run by name. None if eager refuses the program."""
    try:
        with tolerant_eager():
            env: dict[str, object] = dict(materialize(program))
            for step in program.steps:
                env |= run_step(step, env)
    except REFUSALS:
        return None
    return env


def sizes(value: object) -> object:
    """What data can decide about a value: the shapes of its tensors, and its ints."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    return tuple(map(sizes, value)) if isinstance(value, tuple | list) else value if isinstance(value, int) else None


@pytest.mark.slow
def test_drawn_programs_are_long_valid_and_varied() -> None:
    cases = [drawn_case("default", 3, index) for index in range(200)]
    long, valid, skeletons = 0, 0, set()
    for drawn in cases:
        program = drawn.program
        others = (values(at_data_size(program, size)) for size in DATA_SIZES if at_data_size(program, size) != program)
        here, there = values(program), next((run for run in others if run is not None), None)
        skeletons.add(tuple(functions_in(program)))
        if here is None or there is None:
            continue
        valid += 1
        varying = {name for name in here if sizes(here[name]) != sizes(there.get(name))}
        on_varying = sum(not varying.isdisjoint(names_in(step.value)) for step in program.steps)
        long += len(program.steps) >= drawn.requested and on_varying >= STEPS
    assert long >= 0.8 * len(cases)
    assert valid >= 0.9 * len(cases)
    assert len(skeletons) >= 0.6 * len(cases)
