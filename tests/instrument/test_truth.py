"""Tests of evaluating expressions, as torch prints them, at values of their symbols."""

from __future__ import annotations

import pytest
import sympy  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from ddefuzz.instrument.truth import clauses, sides, value_at


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("Eq(u0, 3)", True),
        ("Ne(u0, Min(1, u1))", True),
        ("u0 + 1 < 2*u1", False),
        ("(((u0 + 1)//2)) < 0", False),
        ("Mod(u0, 2)", 1),
        ("(u0 >= 2) & (u1 >= 2)", False),
        ("(u0 >= 2) | (u1 >= 2)", True),
        ("~Eq(u0, 3)", False),
        ("u0**2 - u1", 8),
        ("CeilToInt(IntTrueDiv(u0, 2))", 2),
        ("TruncToInt(0.5*ToFloat(u0))", 1),
        ("u0", 3),
        ("Eq(u7, 1)", None),
        ("Where(u0, 1, 2)", None),
        ("__import__('os')", None),
        ("u0 // (u1 - 1)", None),
        ("u0**100000", None),
        ("not an expression", None),
        ("u0.real", None),
    ],
)
def test_values(expression: str, expected: bool | int | None) -> None:
    assert value_at(expression, {"u0": 3, "u1": 1}) == expected


@given(st.integers(0, 9), st.integers(0, 9), st.sampled_from(["Eq", "Ne", "Lt", "Le", "Gt", "Ge"]), st.integers(-3, 3))
def test_relations_are_sympys(one: int, other: int, relation: str, factor: int) -> None:
    a, b = sympy.symbols("u0 u1", integer=True)
    printed = getattr(sympy, relation)(sympy.Max(a * factor, 1) + b, sympy.Min(a, b))
    assert value_at(str(printed), {"u0": one, "u1": other}) == bool(printed.subs({a: one, b: other}))


def test_the_clauses_of_a_disjunction() -> None:
    assert clauses("(u0 < 2) | Eq(u0, 1) | (u1 > 3)") == ("u0 < 2", "Eq(u0, 1)", "u1 > 3")
    assert clauses("Eq(u0, 1)") == ("Eq(u0, 1)",)
    assert sides("Eq(u0, Min(1, u1))") == ("u0", "Min(1, u1)")
    assert sides("u0 < 2") is None
