"""A program is valid if eager accepts its example size and another one."""

from __future__ import annotations

from ci.bench.generation import is_valid
from ddefuzz.ops.catalogue import parse
from ddefuzz.program.model import Program


def program(body: str, values: str = "trues(4)") -> Program:
    text = f'# ddefuzz program v1\n# inputs: m = {values}\ndef program(m: Bool[Tensor, "6"]):\n{body}'
    return parse(text, "case.py").program


def test_a_program_for_any_size_is_valid() -> None:
    assert is_valid(program("    t = torch.nonzero(m)\n    return t\n"))


def test_a_program_for_two_rows_at_least_is_valid() -> None:
    assert is_valid(program("    t = torch.nonzero(m)\n    p = t[1]\n    return p\n"))


def test_a_program_for_its_example_alone_is_not_valid() -> None:
    assert not is_valid(program("    t = torch.nonzero(m)\n    v = t.view(2, 2)\n    w = v[0]\n    return w\n"))


def test_a_program_that_eager_refuses_is_not_valid() -> None:
    assert not is_valid(program("    t = torch.nonzero(m)\n    v = t[9]\n    return v\n"))
