"""Programs that are called in inductor together share one run of the C++ compiler, and give what each gives alone."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ddefuzz.execute import together
from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, differs
from ddefuzz.instrument import torch_api
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.table import shows_failure

SUM = """# ddefuzz program v1
# inputs: x0 = normal; x1 = trues(3)
def program(x0: Float32[Tensor, "8 4"], x1: Bool[Tensor, "8"]):
    t0 = x0[x1]
    t1 = t0.transpose(0, 1).reshape(-1)
    return (t1, t0.sum(1))
"""

GRADIENT = """# ddefuzz program v1
# inputs: x0 = normal, grad
def program(x0: Float32[Tensor, "u0=3 4"]):
    t0 = x0 * x0
    return t0.sum(0)
"""


def run(text: str) -> Run:
    return Run(ProgramSubject(text), "inductor", calls=("example", "1", "all"))


def called(seen: Observation) -> list[tuple[object, ...]]:
    return [(one.size, one.agreement, one.differences, one.captured.returned, one.recompiled) for one in seen.calls]


@pytest.mark.slow
def test_programs_called_together_give_what_each_gives_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, begun = [], list[str]()
    compile_one = torch_api.bound(torch_api.CPP_BINDING)

    def count(compiler: Any, types: list[str], source: str) -> Any:
        compiled.append(source)
        return compile_one(compiler, types, source)

    monkeypatch.setattr(torch_api.CPP_BINDING.owner(), torch_api.CPP_BINDING.name_here(), count)
    runs = tuple(map(run, (SUM, GRADIENT, SUM.replace("sum", "amax"))))
    seen = together.observe_together(runs, lambda one: begun.append(getattr(one.subject, "text", "")))
    assert len(compiled) == 1
    assert begun == [getattr(one.subject, "text", "") for one in (*runs, *runs)]
    for one, alone in zip(seen, map(observe, runs), strict=True):
        assert one.outcome == "ok"
        assert called(one) == called(alone)
        assert not any(map(differs, one.calls))
        assert (one.guards, one.forms, one.constraints) == (alone.guards, alone.forms, alone.constraints)


@pytest.mark.slow
def test_a_fault_planted_in_a_lowering_shows_in_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only compiled code has it: the graphs are right."""
    flip = SUM.replace("t1 = t0.transpose(0, 1).reshape(-1)", "t1 = torch.flip(t0, (1,))")
    lowerings = importlib.import_module("torch._inductor.lowering").lowerings
    monkeypatch.setitem(lowerings, torch.ops.prims.rev.default, lambda x, _dims: x)
    faulty, healthy = together.observe_together((run(flip), run(SUM)), lambda _: None)
    assert {one.what for call in faulty.calls for one in call.differences} == {"values"}
    assert shows_failure(OracleInput(flip, faulty))
    assert not shows_failure(OracleInput(SUM, healthy))


class Compiler:
    """Stands for torch's, which refuses files with more than `most` kernels."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.files: list[str] = []

    def compile(self, _: Any, types: list[str], source: str) -> Callable[..., None]:
        self.files.append(source)
        if source.count("::kernel(") > self.most:
            raise ValueError("it does not compile")
        return lambda *args: None


def kernels(monkeypatch: pytest.MonkeyPatch, compiler: Compiler, *sources: str) -> list[Any]:
    api = torch_api.CPP_BINDING
    monkeypatch.setattr(api.owner(), api.name_here(), compiler.compile)
    waiting = together.Kernels()
    with waiting.delayed():
        make = torch_api.bound(api)
        return [make(None, ["const float*", "float*", "int64_t", "float"], source) for source in sources]


SOURCE = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0, const int64_t ks0, const float ks1) {}
"""


def test_kernels_are_compiled_as_one_file_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(9)
    first, second = kernels(monkeypatch, compiler, SOURCE, SOURCE)
    assert not compiler.files
    for kernel in (second, first, second):
        kernel(torch.ones(1), torch.ones(1), 3, 0.5)
    (file,) = compiler.files
    assert file.count("static void kernel(") == 2
    assert "case 1: program_1::kernel(reinterpret_cast<const float*>(args[0])" in file


@pytest.mark.parametrize(
    ("most", "sources"), [(1, (SOURCE, SOURCE)), (9, (SOURCE, SOURCE.replace("{}", "{}\n#include <thread>")))]
)
def test_kernels_that_cannot_share_a_file_are_compiled_alone(
    monkeypatch: pytest.MonkeyPatch, most: int, sources: tuple[str, ...]
) -> None:
    compiler = Compiler(most)
    first, second = kernels(monkeypatch, compiler, *sources)
    for kernel in (first, second, first):
        kernel(torch.ones(1), torch.ones(1), 3, 0.5)
    assert [file for file in compiler.files if "::kernel(" not in file] == list(sources)
