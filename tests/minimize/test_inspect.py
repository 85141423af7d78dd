"""Tests of the facts that the minimizer collects by running a program eagerly."""

from __future__ import annotations

from ddefuzz.minimize.eager import inspect
from ddefuzz.minimize.minimizer import minimize
from ddefuzz.ops.catalogue import parse
from ddefuzz.program.model import Program
from ddefuzz.program.text import print_program

SQUEEZED = """\
# ddefuzz program v1
# inputs: x0 = normal
def program(x0: Float32[Tensor, "u0=5 1"]):
    t0 = x0.squeeze_()
    return t0
"""
UNSIGNED = """\
# ddefuzz program v1
# inputs: x0 = normal
def program(x0: Float32[Tensor, "u0=5 1"]):
    t0 = x0.to(torch.uint64)
    t1 = t0 + t0
    return t1
"""
TWICE = """\
# ddefuzz program v1
# inputs: x0 = normal
def program(x0: Float32[Tensor, "u1=5 u1=5"]):
    t0 = torch.sin(x0)
    return t0
"""


def test_dims_of_one_symbol_keep_one_size() -> None:
    tried = []

    def accepts(candidate: Program) -> bool:
        tried.append(parse(print_program(candidate), "<candidate>"))
        return "sin" in print_program(candidate) and candidate.inputs[0].shape[-1:] != ()

    minimize(parse(TWICE, "<program>").program, accepts, inspect=inspect)
    assert tried


def test_an_input_that_loses_a_dim_in_place_is_no_error() -> None:
    assert inspect(parse(SQUEEZED, "<program>").program, other_size=True) is not None


def test_a_value_of_a_dtype_that_no_input_has_stays_a_step() -> None:
    program = parse(UNSIGNED, "<program>").program
    found = minimize(program, lambda candidate: "uint64" in print_program(candidate), inspect=inspect)
    assert "uint64" in print_program(found.program)


def test_an_object_of_torchs_own_cannot_be_returned() -> None:
    call = "torch._C._select_conv_backend(x, x, None, (1,), (0,), (1,), False, (0,), 1)"
    for returned, can_be in (
        (f"({call}, x)[1]", True),
        (call, False),
        (f"(x, [{call}])", False),
        ("(x, [1, None])", True),
    ):
        head = '# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "2 2 2"]):\n'
        assert (inspect(parse(f"{head}    return {returned}\n", "a.py").program) is not None) == can_be


def test_a_distributed_tensor_is_not_returned() -> None:
    mesh = 'torch.distributed.device_mesh.init_device_mesh("cpu", (1,))'
    made = f"torch.distributed.tensor.DTensor.from_local(x, {mesh}, [torch.distributed.tensor.Replicate()])"
    head = '# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "2 2"]):\n'
    for returned, can_be in ((made, False), (f"{made}.to_local()", True)):
        assert (inspect(parse(f"{head}    return {returned}\n", "a.py").program) is not None) == can_be


def test_a_new_symbol_is_none_that_the_program_has() -> None:
    text = """\
# ddefuzz program v1
# inputs: x = normal; y = normal; mask = trues(3)
def program(x: Float32[Tensor, "u1001=5"], y: Float32[Tensor, "u1002=5"], mask: Bool[Tensor, "4"]):
    return torch.nonzero(mask)
"""
    facts = inspect(parse(text, "<program>").program)
    assert facts is not None
    sizes: dict[str, set[int]] = {}
    for one in facts.values():
        for dim in getattr(one, "shape", ()):
            if dim.symbol is not None:
                sizes.setdefault(dim.symbol, set()).add(dim.size)
    assert sizes and all(len(one) == 1 for one in sizes.values())


def test_a_value_may_be_a_number_at_one_size_and_a_tensor_at_another() -> None:
    text = """\
# ddefuzz program v1
# inputs: x = normal; n = sizes(0)
def program(x: Float32[Tensor, "2 2"], n: Int64[Tensor, ""]):
    return [1, x][n.item()] * 2
"""
    assert inspect(parse(text, "<program>").program) is not None
