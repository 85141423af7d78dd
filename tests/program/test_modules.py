"""Tests of modules in programs: their text, their names, and what calls them."""

from __future__ import annotations

import pytest
import torch

from ddefuzz.errors import ProgramError
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.subject import prepare
from ddefuzz.ops.catalogue import parse
from ddefuzz.program.code import callable_of, made_of, module_of
from ddefuzz.program.evaluate import materialize, run_steps
from ddefuzz.program.modules import hoisted, is_module, modules_of
from ddefuzz.program.plain import ControlFlowInPython
from ddefuzz.program.text import print_function, print_program

TEXT = """\
# ddefuzz program v1
# inputs: x = normal; m0 = normal
def program(x: Float32[Tensor, "u0 4"], m0: Float32[Tensor, "2"]):
    t0 = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6)).eval()(x)
    t1 = torch.nn.Linear(6, 2)(t0) + torch.nn.Linear(6, 2)(t0 * 2)
    return torch.cond(t1.sum() > 0, torch.nn.ReLU(), lambda a: torch.nn.Linear(2, 2)(a), (t1,)) + m0
"""
PROGRAM = parse(TEXT, "case.py").program


def test_modules_print_and_parse() -> None:
    assert print_program(PROGRAM) == TEXT


def test_equal_modules_are_one_and_names_are_new() -> None:
    assert list(modules_of(PROGRAM).values()) == ["m1", "m2", "m3", "m4"]
    assert all(map(is_module, modules_of(PROGRAM)))
    assert print_function(hoisted(PROGRAM, "self.")).splitlines()[1:] == [
        "    t0 = self.m1(x)",
        "    t1 = self.m2(t0) + self.m2(t0 * 2)",
        "    return torch.cond(t1.sum() > 0, self.m3, lambda a: self.m4(a), (t1,)) + m0",
    ]


def test_a_run_has_the_modules_as_submodules_and_keeps_the_lines() -> None:
    prepared = prepare(ProgramSubject(TEXT))
    assert isinstance(prepared.call, torch.nn.Module)
    assert [name for name, _ in prepared.call.named_children()] == ["m1", "m2", "m3", "m4"]
    assert prepared.call.forward.__code__.co_firstlineno == 3
    assert not dict(prepared.call.named_children())["m1"].training


def test_a_run_a_script_and_the_expressions_compute_the_same() -> None:
    expected = run_steps(PROGRAM, materialize(PROGRAM))
    prepared = prepare(ProgramSubject(TEXT))
    inputs = tuple(materialize(PROGRAM).values())
    script: dict[str, object] = {"torch": torch}
    exec(f"from __future__ import annotations\n{module_of(PROGRAM, 'compile')}", script)
    captured = script["Captured"]
    short: dict[str, object] = {"torch": torch}
    exec("\n".join(callable_of(PROGRAM, ["x", "m0"], [])), short)
    for call in (prepared.call, captured(), short["program"]):  # type: ignore[operator]
        assert callable(call)
        with ControlFlowInPython():
            assert torch.equal(call(*inputs), expected)  # type: ignore[arg-type]


def test_a_module_is_the_same_at_every_call_and_leaves_the_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, second = (run_steps(PROGRAM, materialize(PROGRAM)) for _ in range(2))
    assert isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
    assert torch.equal(first, second)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    "code",
    [
        "torch.nn.Linear(x.shape[1], 2)(x)",
        "torch.nn.Linear(4, 2)(x, bias=None)",
        "x.eval()",
        "torch.nn.Linear(4, 2).train()(x)",
        "torch.nn.Linear(4, 2).forward(x)",
        "torch.nn.Module()(x)",
    ],
)
def test_what_is_no_module_of_the_catalogue_is_refused(code: str) -> None:
    text = f'# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "2 4"]):\n    return {code}\n'
    with pytest.raises(ProgramError):
        parse(text, "case.py")


def test_the_meshes_of_a_program_have_one_process_group() -> None:
    mesh = 'torch.distributed.device_mesh.init_device_mesh("cpu", ({},))'
    sharded = f"torch.distributed.tensor.DTensor.from_local(x, {mesh}, [torch.distributed.tensor.Shard(0)]).to_local()"
    both = f"{sharded.format(1)} + {sharded.format(4)}"
    for body, group in ((sharded.format(1), "gloo"), (sharded.format(4), "fake"), (both, "fake")):
        head = '# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "u0=8 4"]):\n'
        text = f"{head}    return {body}\n"
        made = [line for line in made_of(parse(text, "meshes").program) if "init_process_group" in line]
        assert made
        assert all(f'"{group}"' in line for line in made)
