"""What a worker keeps of its runs does not grow with their number."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from itertools import product

import msgspec
import pytest

from ddefuzz.execute.observe import observe
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import ProgramSubject, Run, Stage

PROGRAM = '# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "u0 4"]):\n    return torch.{}\n'
CALLS = ("sum(x)", "diff(x, dim=0)", "chunk(x, 2)", "relu(x) + 1")
STAGES: tuple[Stage, ...] = ("fake", "export", "export-strict", "compile", "aot")
ROUNDS = 10
MOST = {"ShapeEnv": 5, "FakeTensorMode": 5, "FakeTensor": 50, "GraphModule": 5, "Recorder": 5, "Observation": 5}
"""The most objects of a class that may be left; a few belong to the last run. Each run makes at least one of each but
the third.
"""


class Rounds(msgspec.Struct, frozen=True):
    """How often to run each program in each stage."""

    count: int


@pytest.mark.slow
def test_what_runs_make_is_freed() -> None:
    with Pool(1, samples=False) as pool:
        left = pool.submit(left_after, Rounds(ROUNDS), 600.0).result()
    assert isinstance(left, dict)
    assert {name: number for name, number in left.items() if number > MOST[name]} == {}


def left_after(rounds: Rounds) -> dict[str, int]:
    """The number of objects of these classes after all runs, in a worker."""
    for _, call, stage in product(range(rounds.count), CALLS, STAGES):
        observe(Run(ProgramSubject(PROGRAM.format(call)), stage, graph=True))
    for _ in range(5):  # what is freed may hold, through C++, what the next collection finds
        gc.collect()
    found = Counter(_names(gc.get_objects()))
    return {name: found[name] for name in MOST}


def _names(objects: list[object]) -> Iterator[str]:
    for one in objects:
        name = type(one).__name__
        yield "GraphModule" if name == "GraphModuleImpl" else name
