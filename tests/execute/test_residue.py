"""What a worker keeps of its runs does not grow with their number."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import msgspec
import pytest
import torch

from ddefuzz.execute.observe import observe
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import CallableSubject, ProgramSubject, Run, Stage
from ddefuzz.instrument import torch_api

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
@pytest.mark.long
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


LEFT = {
    "fake": "FakeTensorMode().__enter__()",
    "dispatch": "Mode().__enter__()",
    "function": "Function().__enter__()",
    "device": "torch.set_default_device('meta')",
    "entered device": "torch.device('meta').__enter__()",
    "inference": "[mode := torch.inference_mode(), mode.__enter__()]",
    "no gradients": "torch.set_grad_enabled(False)",
    "autocast": "torch.autocast('cpu').__enter__()",
    "transform": "torch._C._functorch._vmap_increment_nesting(3, 'error')",
}

LEAVES = """import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
kept = []
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise RuntimeError("it is on")
class Function(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise RuntimeError("it is on")
def leaves(x):
    kept.append({left})
    return x
def fine(x):
    return x * torch.ones(3)
leaves_args = fine_args = lambda: (torch.ones(3, requires_grad=True),)
"""


@pytest.mark.slow
@pytest.mark.parametrize("left", LEFT)
def test_modes_that_code_leaves_on_are_left(tmp_path: Path, left: str) -> None:
    path = tmp_path / "leaves.py"
    path.write_text(LEAVES.format(left=LEFT[left]))
    fine = Run(CallableSubject(str(path), name="fine"), "export")
    assert observe(fine).outcome == "ok"
    observe(Run(CallableSubject(str(path), name="leaves"), "eager"))
    assert observe(fine).outcome == "ok"
    assert torch.get_default_device() == torch.device("cpu")
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert not torch_api.bound(torch_api.FUNCTORCH_DEPTH)()
