"""Functions inside of calls are drawn: they read their parameters, and print and parse as all else does."""

from __future__ import annotations

import warnings

import pytest
import torch

from ddefuzz.generate.draw import case
from ddefuzz.generate.make import singles
from ddefuzz.ops.catalogue import GROUPS, OPS, parse
from ddefuzz.ops.spec import Body, OpSpec
from ddefuzz.program.equivalents import has_effect
from ddefuzz.program.evaluate import materialize, run_steps
from ddefuzz.program.expressions import parse_expression
from ddefuzz.program.model import Expr, Lambda, Name, Program, expressions, names_in, walk
from ddefuzz.program.text import print_program

ROWS = [row for group in ("control", "scans", "functional") for row in GROUPS[group]]


def functions(program: Program) -> list[Lambda]:
    return [node for expr in expressions(program) for node in walk(expr) if isinstance(node, Lambda)]


def reads(body: Expr) -> set[str]:
    return {node.id for node in walk(body) if isinstance(node, Name)}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_each_row_is_drawn_printed_and_parsed(row: OpSpec) -> None:
    programs = list(singles(row, 3))
    assert programs
    assert programs == list(singles(row, 3))
    for program in programs:
        assert parse(print_program(program), "drawn.py").program == program
        with warnings.catch_warnings(action="ignore"):
            run_steps(program, materialize(program))


@pytest.mark.parametrize("row", [row for row in ROWS if any(isinstance(slot, Body) for _, slot in row.slots)], ids=str)
def test_what_is_drawn_reads_a_parameter_and_has_no_effect(row: OpSpec) -> None:
    for program in singles(row, 4):
        for function in functions(program):
            assert reads(function.body).intersection(function.parameters), print_program(program)
            assert not has_effect(function.body)


def test_no_slot_has_the_name_of_a_parameter() -> None:
    """A slot replaces its name in the whole template."""
    for row in OPS:
        parameters = {
            name
            for node in walk(parse_expression(row.template))
            if isinstance(node, Lambda)
            for name in node.parameters
        }
        assert parameters.isdisjoint(name for name, _ in row.slots), row


def test_campaigns_draw_functions_that_read_values_around_them() -> None:
    programs = [case("functions", 5, index) for index in range(60)]
    inside = [function for program in programs for function in functions(program)]
    assert len(inside) > 60
    assert sum(bool(names_in(function)) for function in inside) > 5
    assert any(isinstance(node, Lambda) for function in inside for node in walk(function.body)) is False


def test_the_names_of_parameters_stay_inside() -> None:
    for program in (case("functions", 4, index) for index in range(40)):
        outside = {item.name for item in program.inputs} | {target for step in program.steps for target in step.targets}
        assert frozenset().union(*map(names_in, expressions(program))) <= outside


def test_a_result_shares_no_memory_with_what_is_outside() -> None:
    """Torch's control flow refuses a branch that returns its operand."""
    (row,) = [
        row for row in GROUPS["control"] if row.template == "torch.cond(x.sum() > 0, lambda a: f, lambda a: g, (x,))"
    ]
    for program in singles(row, 6):
        given = materialize(program)
        result = run_steps(program, given)
        result = result[-1] if isinstance(result, tuple) else result  # that of the call is the last
        assert isinstance(result, torch.Tensor)
        pointers = [tensor.untyped_storage().data_ptr() for tensor in given.values()]
        assert result.numel() == 0 or result.untyped_storage().data_ptr() not in pointers
