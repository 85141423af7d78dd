"""Tests of what counts as unrealistic in a program, and of its replacements."""

from __future__ import annotations

import re

import pytest

from ddefuzz.minimize.order import DTYPES_MEANT, ODD, public_calls, sensible_calls, sort_key, unrealistic_parts
from ddefuzz.ops.catalogue import CALLABLES
from ddefuzz.program.model import Call
from tests.minimize.reduction import nodes, program


def returning(expression: str, annotation: str = 'Float32[Tensor, "u0 2"]') -> str:
    recipe = "ones" if annotation.startswith("Int") else "normal"
    return f"""
        # inputs: x = {recipe}
        def program(x: {annotation}):
            return {expression}
    """


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("torch.chunk(x, 2)", 0),
        ("torch.chunk(x, 1)", 1),
        ("torch._refs.chunk(x, 1)", 2),
        ("torch.ops.aten._upsample_bilinear2d_aa(x, output_size=(1, 1), align_corners=False)", 1),
        ("torch.nn.functional.max_pool1d(x, 0)", 1),
        ("torch.nn.functional.max_pool1d(x, kernel_size=2)", 0),
        ("torch.nn.functional.fractional_max_pool2d(x, 0, output_ratio=(1.0, 0.0))", 3),
        ("torch.nn.functional.pad(x, (0, 0))", 2),
        ("torch.nn.functional.pad(x, (0, 1))", 0),
        ("torch.roll(x, 0)", 1),
        ("torch.cumsum(x, 0)", 0),
        ("torch.gather(x, 0, x)", 1),
        ("torch.sin(x, out=x)", 1),
        ("torch.zeros((0, x.shape[0]))", 1),
    ],
)
def test_the_number_of_unrealistic_parts_of_a_call(expression: str, expected: int) -> None:
    assert unrealistic_parts(program(returning(expression))) == expected


def test_dims_of_size_0_are_unrealistic() -> None:
    assert unrealistic_parts(program(returning("torch.sum(x)", 'Float32[Tensor, "0 u0=0 u1"]'))) == 2


def test_of_equal_length_the_sensible_program_is_smaller_whatever_its_sizes() -> None:
    unrealistic = program(returning("torch.chunk(x, 1)", 'Float32[Tensor, "u0"]'))
    sensible = program(returning("torch.chunk(x, 2)"))
    assert sort_key(sensible) < sort_key(unrealistic)
    assert sort_key(program(returning("torch.sum(x)"))) < sort_key(program(returning("torch.sum(x)")), deprecated=True)
    longer = program(returning("torch.chunk(torch.relu(x), 2)"))
    assert sort_key(unrealistic) < sort_key(longer)


@pytest.mark.parametrize("row", ODD, ids=lambda row: f"{row.functions} {row.keywords[0]}")
def test_every_row_names_a_function_of_the_catalogue_and_proposes_what_is_not_odd(row: object) -> None:
    assert isinstance(row, type(ODD[0]))
    names = [name.removeprefix("torch.").removeprefix("Tensor.") for name in CALLABLES]
    assert any(re.fullmatch(row.functions, name) for name in names)
    assert row.better
    assert not set(map(repr, row.better)) & set(map(repr, row.values))


def test_every_dtype_is_of_a_function_of_the_catalogue() -> None:
    names = [name.removeprefix("torch.").removeprefix("Tensor.") for name in CALLABLES]
    for row in DTYPES_MEANT:
        assert any(re.fullmatch(row.functions, name) for name in names), row


def calls_of(text: str) -> list[Call]:
    return [node for node in nodes(program(text)) if isinstance(node, Call)]


def test_odd_arguments_become_usual_ones_by_place_and_by_keyword() -> None:
    (call,) = calls_of(returning("torch.chunk(x, 1)"))
    usual = [*calls_of(returning("torch.chunk(x, 2)")), *calls_of(returning("torch.chunk(x, 3)"))]
    assert [*dict.fromkeys(sensible_calls(call))] == usual
    (call,) = calls_of(returning("torch.nn.functional.max_pool2d(x, kernel_size=(0, 3))"))
    usual = calls_of(returning("torch.nn.functional.max_pool2d(x, kernel_size=(2, 3))"))
    assert [*dict.fromkeys(sensible_calls(call))] == usual


def test_all_odd_arguments_of_a_call_change_together_first_then_each() -> None:
    pool = "torch.nn.functional.fractional_max_pool2d"
    (call,) = calls_of(returning(f"{pool}(x, 0, output_ratio=(1.0, 0.0))"))
    first, *others = sensible_calls(call)
    assert [first] == calls_of(returning(f"{pool}(x, 2, output_ratio=(0.5, 0.5))"))
    for one in ("2, output_ratio=(1.0, 0.0)", "0, output_ratio=(0.5, 0.5)", "0, output_ratio=(1.0, 0.5)"):
        assert calls_of(returning(f"{pool}(x, {one})"))[0] in others
    (call,) = calls_of(returning("torch.nn.functional.pad(x, (0, 0))"))
    for one in ("(1, 1)", "(1, 0)", "(0, 1)"):
        assert calls_of(returning(f"torch.nn.functional.pad(x, {one})"))[0] in [*sensible_calls(call)]


def test_a_private_function_has_public_ones_only_if_the_catalogue_has() -> None:
    (call,) = calls_of(returning("torch._refs.roll(x, 1)"))
    assert "torch.roll" in {found.function for found in public_calls(call) if isinstance(found, Call)}
    for public in ("torch.roll(x, 1)", "torch._chunk_cat([x, x], 0, 2)"):
        (call,) = calls_of(returning(public))
        assert not [*public_calls(call)]
