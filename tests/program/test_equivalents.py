"""Variants of a program are programs of the catalogue, and in eager they mean the same."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping

import pytest
import torch

from ddefuzz.execute.comparison import CallResult, compared
from ddefuzz.generate.draw import case
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles.relations_run import dense_values
from ddefuzz.program.equivalents import (
    LEAST,
    MOST,
    MakeVariants,
    Value,
    Variant,
    backed,
    bounded,
    has_effect,
    hinted,
    made_static,
    permuted,
    renamed,
    reordered,
    symbols_in,
    turned,
    with_dead_code,
    with_dead_symbols,
    with_identities,
)
from ddefuzz.program.evaluate import evaluate, materialize, run_step
from ddefuzz.program.model import Program, expressions
from ddefuzz.program.sizes import at_data_size
from ddefuzz.program.text import print_function, print_program
from tests.parameters import one_in

OF_PROGRAMS: tuple[MakeVariants, ...] = (
    made_static,
    renamed,
    turned,
    reordered,
    with_dead_code,
    with_dead_symbols,
    with_identities,
)
OF_MARKS: tuple[MakeVariants, ...] = (backed, hinted, bounded)
HEADER = "# ddefuzz program v1\n# inputs: "
TWO = f"""{HEADER}x = normal; y = normal
def program(x: Float32[Tensor, "u0=3 4"], y: Float32[Tensor, "u1=3 4"]):
    a = torch.relu(x)
    b = torch.sin(y)
    c = a * 2
    d = b + 1
    return (c, d)
"""
ONE = f"""{HEADER}x = normal
def program(x: Float32[Tensor, "u0=3 4"]):
    t0 = torch.relu(x)
    return t0.sum(1)
"""


def program_of(text: str) -> Program:
    return parse(text, "<test>").program


def values_of(program: Program) -> dict[str, Value]:
    values = dense_values(program)
    assert values is not None
    return values


def body(variant: Variant) -> str:
    return print_function(variant.program).partition("\n")[2]


def result(program: Program, inputs: Mapping[str, object]) -> CallResult:
    torch.manual_seed(0)
    random.seed(0)
    env = dict(inputs)
    try:
        for step in program.steps:
            env |= run_step(step, env)
        return CallResult(None, evaluate(program.returns, env))
    except Exception as error:  # noqa: BLE001 what a size does to a program is no matter here
        return CallResult(error)


def inputs_of(original: Program, variant: Variant) -> dict[str, object]:
    """The inputs of the original, as those of a variant."""
    values = list(materialize(original).values())
    places = variant.inputs or range(len(values))
    return {item.name: values[at] for item, at in zip(variant.program.inputs, places, strict=True)}


@pytest.fixture(scope="module")
def programs() -> list[Program]:
    drawn = [case(profile, 7, index) for profile in ("captures", "default") for index in range(25)]
    return [*drawn, program_of(ONE), program_of(TWO)]


@pytest.mark.slow
@pytest.mark.parametrize("make", one_in(2, OF_PROGRAMS), ids=lambda make: make.__name__)
def test_a_variant_means_the_same(make: MakeVariants, programs: list[Program]) -> None:
    number = 0
    for program in programs:
        with warnings.catch_warnings(action="ignore"):
            for variant in make(program, values_of(program)):
                for part in (variant, *variant.parts):
                    text = print_program(part.program)
                    assert program_of(text) == part.program
                    assert part.program != program
                    for size in ("example", "2", "0"):
                        original = at_data_size(program, size)
                        before = result(original, materialize(original))
                        again = result(original, materialize(original))
                        after = result(part.program, inputs_of(original, part))
                        assert (before.error is None) == (after.error is None), text
                        unequal = compared(before, after)
                        assert all(diff in compared(before, again) or diff.what == "strides" for diff in unequal), text
                    number += 1
    assert number


@pytest.mark.parametrize("make", OF_MARKS, ids=lambda make: make.__name__)
def test_a_mark_leaves_the_program(make: MakeVariants, programs: list[Program]) -> None:
    for program in programs:
        for variant in make(program, {}):
            assert variant.program == program
            assert variant.backed or set(variant.marks) == set(symbols_in(program))
            assert symbols_in(program)


def test_bounds_have_the_example() -> None:
    (variant,) = bounded(program_of(ONE.replace("u0=3", "u0=1")), {})
    assert variant.marks == {"u0": {"min": 1, "max": MOST}}
    (variant,) = bounded(program_of(ONE), {})
    assert variant.marks == {"u0": {"min": LEAST, "max": MOST}}


def test_names_change_and_nothing_else() -> None:
    (variant,) = renamed(program_of(ONE), {})
    assert print_function(variant.program).splitlines() == [
        'def program(z2_: Float32[Tensor, "u9000=3 4"]):',
        "    y1_ = torch.relu(z2_)",
        "    return y1_.sum(1)",
    ]
    assert variant.symbols == {"u0": "u9000"}


def test_statements_of_other_inputs_change_places() -> None:
    (variant,) = reordered(program_of(TWO), {})
    assert body(variant).split("\n    ")[0:4] == [
        "    b = torch.sin(y)",
        "d = b + 1",
        "a = torch.relu(x)",
        "c = a * 2",
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('y: Float32[Tensor, "u1=3 4"]', 'y: Float32[Tensor, "u0=3 4"]'),
        ("torch.sin(y)", "torch.sin(x)"),
        ("torch.sin(y)", "y.sin_()"),
        ("torch.sin(y)", "torch.nn.functional.dropout(y)"),
    ],
    ids=["one symbol", "one input", "in place", "random"],
)
def test_statements_that_depend_stay(before: str, after: str) -> None:
    assert reordered(program_of(TWO.replace(before, after).replace("b + 1", "b * a")), {}) == ()


def test_dead_code_is_read_by_nothing() -> None:
    program = program_of(ONE)
    (variant,) = with_dead_code(program, values_of(program))
    assert body(variant).split("\n    ") == [
        "    dead_x = x == x",
        "t0 = torch.relu(x)",
        "dead_t0 = t0 == t0",
        "return t0.sum(1)",
    ]
    assert [len(part.program.steps) for part in variant.parts] == [2, 2]


def test_identities_replace_what_is_read() -> None:
    program = program_of(ONE)
    (variant,) = with_identities(program, values_of(program))
    assert body(variant).split("\n    ") == [
        "    same_x_0 = x.clone()",
        "same_x_1 = same_x_0.view_as(same_x_0)",
        "same_x_2 = same_x_1 + -0.0",
        "same_x_3 = torch.cat(torch.split(same_x_2, [1, 3], 1), 1)",
        "t0 = torch.relu(same_x_3)",
        "same_t0_0 = t0.clone()",
        "same_t0_1 = same_t0_0.view_as(same_t0_0)",
        "same_t0_2 = same_t0_1 + -0.0",
        "return same_t0_2.sum(1)",
    ]
    assert [part.form for part in variant.parts] == ["clone", "view_as", "+ 0", "split and cat"]


def test_minus_zero_stays() -> None:
    program = program_of(ONE.replace("t0.sum(1)", "t0 * -1"))
    (variant,) = with_identities(program, values_of(program))
    values = [result(one, materialize(program)).result for one in (program, variant.program)]
    assert torch.equal(*(torch.signbit(value) for value in values))


def test_a_program_that_writes_gets_no_copies() -> None:
    program = program_of(ONE.replace("torch.relu(x)", "x.sin_()"))
    assert any(map(has_effect, expressions(program)))
    assert with_identities(program, values_of(program)) == ()


@pytest.mark.parametrize(
    ("value", "is_row_wise"),
    [("torch.relu(x)", True), ("x * 2 - x", True), ("x.softmax(1)", True), ("x.cumsum(0)", False), ("x @ x", False)],
)
def test_rows_of_row_wise_programs_change_places(value: str, is_row_wise: bool) -> None:
    text = ONE.replace("torch.relu(x)", value).replace("t0.sum(1)", "t0").replace("3 4", "4 4")
    program = program_of(text)
    (variant,) = permuted(program, values_of(program))
    assert body(variant).split("\n    ") == [
        "    rows_x = torch.flip(x, (0,))",
        f"t0 = {value.replace('x', 'rows_x').replace('softmarows_x', 'softmax')}",
        "return torch.flip(t0, (0,))",
    ]
    before, after = (result(one, materialize(program)) for one in (program, variant.program))
    assert (compared(before, after) == []) == is_row_wise


def test_a_result_without_rows_is_not_turned() -> None:
    program = program_of(ONE.replace("t0.sum(1)", "t0.sum()"))
    assert permuted(program, values_of(program)) == ()
