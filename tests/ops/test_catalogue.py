"""Tests that every op of the catalogue exists in torch, parses as a program, and can be drawn and run."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from ddefuzz.errors import ProgramError
from ddefuzz.generate.draw import CASE_BYTES, from_bytes
from ddefuzz.ops.catalogue import CALLABLES, GROUPS, OPS, parse
from ddefuzz.ops.conversions import TEMPLATES
from ddefuzz.ops.spec import At, OpSpec, callables_in
from ddefuzz.program.evaluate import resolve
from ddefuzz.program.expressions import parse_expression
from ddefuzz.program.model import Attribute, Binary, Call, Expr, Name, Program, Unary, children, names_in, walk

ATTEMPTS = 40


def has_call_of(program: Program, spec: OpSpec) -> bool:
    """Whether a step of the program is the op, with its slots filled."""
    return any(matches(parse_expression(spec.template), step.value) for step in program.steps)


def matches(template: Expr, found: Expr) -> bool:
    """Whether `found` is `template` with its names replaced."""
    if isinstance(template, Name):
        return True
    inner, inner_found = list(children(template)), list(children(found))
    if type(template) is not type(found) or len(inner) != len(inner_found):
        return False
    if not inner and not isinstance(template, Call):
        return template == found
    return called(template) == called(found) and all(map(matches, inner, inner_found))


def called(expr: Expr) -> str:
    """The function, operator or attribute at the root of an expression."""
    match expr:
        case Call(name) | Binary(name) | Unary(name) | Attribute(_, name):
            return name
        case _:
            return ""


@pytest.mark.parametrize("position", range(len(OPS)), ids=lambda position: OPS[position].template.replace(" ", ""))
def test_every_op_is_drawn_and_accepted_in_its_turn(position: int) -> None:
    spec = OPS[position]
    focus = position.to_bytes(2, "big")
    for attempt in range(1, ATTEMPTS + 1):
        program = from_bytes("short", focus + random.Random(attempt).randbytes(CASE_BYTES))
        if program is not None and has_call_of(program, spec):
            return
    pytest.fail(f"{spec} is in none of {ATTEMPTS} programs whose focus it is")


def test_every_callable_resolves() -> None:
    assert [name for name in CALLABLES if not callable(resolve(name))] == []


def test_there_are_150_callables_at_least() -> None:
    assert len(CALLABLES) >= 150


@pytest.mark.parametrize("group", GROUPS)
def test_no_op_is_listed_twice(group: str) -> None:
    specs = GROUPS[group]
    assert len(set(specs)) == len(specs)


def test_callables_are_those_that_the_reader_of_programs_finds() -> None:
    for template in (*(spec.template for spec in OPS), *TEMPLATES):
        calls = {node.function for node in walk(parse_expression(template)) if isinstance(node, Call)}
        assert set(callables_in(template)) == calls


def test_slots_are_the_names_of_their_template_or_serve_a_later_slot() -> None:
    for spec in OPS:
        names = [name for name, _ in spec.slots]
        assert names_in(parse_expression(spec.template)) <= set(names), spec
        for position, (_, slot) in enumerate(spec.slots):
            referred = {extent.slot for extent in getattr(slot, "shape", None) or () if isinstance(extent, At)}
            assert referred <= set(names[:position]), spec


def test_a_case_parses_with_the_callables_of_the_catalogue_only() -> None:
    text = (
        '# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "4"]):\n    y = {}\n    return y\n'
    )
    assert parse(text.format("torch.chunk(x, 2)"), "a.py").program.steps
    with pytest.raises(ProgramError, match=r"a\.py:4: found"):
        parse(text.format("torch.save(x, 2)"), "a.py")


def test_the_catalogue_is_read_without_torch() -> None:
    code = "import sys, ddefuzz.ops.catalogue; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
