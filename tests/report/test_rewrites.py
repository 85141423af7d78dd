"""The rewrites: the edits of each row, and the names of sizes."""

from __future__ import annotations

import ast

import pytest

from ddefuzz.instrument.events import Frame, SymbolOrigin
from ddefuzz.report.rewrites import (
    DECISIONS,
    Place,
    assume_question,
    in_user_words,
    inserted,
    locate,
    meaning,
    opposite,
    statements_at,
)
from ddefuzz.report.symbols import named, parameters_at

SOURCE = '''"""A model."""
import torch


def forward(x, keep, n):
    kept = x[keep]
    if kept.shape[0] > 2:
        return kept
    elif kept.shape[0] == 1 and x.dim() == 2:
        return x[: int(n[0])]
    return x + 1 if x.sum() > 0 else x
'''


def place(line: int, anchor: str, question: str = "u0 > 2", **sizes: str) -> Place:
    found = locate(SOURCE, Frame("model.py", line, "forward", anchor, True), anchor, question, sizes)
    assert found is not None
    return found


def new_lines(source: str) -> list[str]:
    before = SOURCE.splitlines()
    return [line.strip() for line in source.splitlines() if line not in before]


@pytest.mark.parametrize(
    ("line", "anchor", "question", "changes"),
    [
        (7, "kept.shape[0] > 2", "u0 > 2", ["torch._check(kept.shape[0] > 2)"]),
        (7, "kept.shape[0] > 2", "u0 > 2", ["torch._check(kept.shape[0] <= 2)"]),
        (9, "kept.shape[0] == 1", "Eq(u0, 1)", ["torch._check(kept.shape[0] != 1)"]),
        (10, "int(n[0])", "u1", ["return x[: n[0].item()]"]),
        (11, "x.sum() > 0", "Eq(u2, 1)", ["return torch.where(x.sum() > 0, x + 1, x)"]),
        (
            11,
            "x.sum() > 0",
            "Eq(u2, 1)",
            ["decided = (x.sum() > 0).item()", "torch._check(decided)", "return x + 1 if decided else x"],
        ),
        (
            7,
            "kept.shape[0] > 2",
            "u0 > 2",
            [
                "from torch.fx.experimental.symbolic_shapes import guard_or_false",
                "if guard_or_false(kept.shape[0] > 2):",
            ],
        ),
    ],
)
def test_a_decision_has_its_rewrites(line: int, anchor: str, question: str, changes: list[str]) -> None:
    edits = [edit for rewrite in DECISIONS for edit in rewrite(place(line, anchor, question))]
    assert changes in [new_lines(edit.source) for edit in edits]


@pytest.mark.parametrize("line", range(6, 12))
def test_every_edit_still_parses(line: int) -> None:
    for statement in statements_at(SOURCE, line):
        for node in ast.walk(statement):
            if isinstance(node, ast.expr):
                at = place(line, ast.unparse(node), "Eq(u0, 1)", u0="kept.shape[0]")
                for rewrite in (*DECISIONS, assume_question):
                    for edit in rewrite(at):
                        ast.parse(edit.source)


def test_what_goes_before_an_elif_goes_before_its_if() -> None:
    at = place(9, "kept.shape[0] == 1")
    assert inserted(SOURCE, at.statement, ("here()",)).splitlines()[6:8] == [
        "    here()",
        "    if kept.shape[0] > 2:",
    ]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Eq(4*u0, 0)", "4 * kept.shape[0] == 0"),
        ("1 > u0", "kept.shape[0] < 1"),
        ("Ne(u0, u1)", "kept.shape[0] != n"),
        ("Mod(u0, 2) > 0", "kept.shape[0] % 2 > 0"),
        ("Max(1, u0) > u1", "torch.sym_max(1, kept.shape[0]) > n"),
        ("Eq(u7, 0)", None),
        ("u0", None),
        ("((u0", None),
    ],
)
def test_an_expression_is_written_with_the_users_sizes(question: str, said: str | None) -> None:
    found = in_user_words(question, {"u0": "kept.shape[0]", "u1": "n"})
    assert (ast.unparse(found) if found is not None else None) == said


def test_the_opposite_of_a_chain_is_its_negation() -> None:
    assert ast.unparse(opposite(ast.parse("1 < a < 3", mode="eval").body)) == "torch.sym_not(1 < a < 3)"


@pytest.mark.parametrize(
    ("line", "code", "op", "size"),
    [
        ("kept = x[keep]", "x[keep]", "nonzero", "kept.shape[0]"),
        ("n = t.item()", "t.item()", "item", "n"),
        ("a, b = t.tolist()", "t.tolist()", "item", "a"),
        ("n = x.nonzero().size(0)", "x.nonzero()", "nonzero", "n"),
    ],
)
def test_a_size_is_named_by_the_variable_that_holds_it(line: str, code: str, op: str, size: str) -> None:
    source = f"def f(x, keep, t):\n    {line}\n"
    found = named(source, [SymbolOrigin("u0", op, Frame("m.py", 2, "f", code, True))])
    assert (found.source, found.sizes) == (source, {"u0": size})


def test_a_size_that_nothing_holds_gets_a_variable() -> None:
    source = "def f(x, keep):\n    return g(x[keep])\n"
    found = named(source, [SymbolOrigin("u0", "nonzero", Frame("m.py", 2, "f", "x[keep]", True))])
    assert found.source == "def f(x, keep):\n    made_u0 = x[keep]\n    return g(made_u0)\n"
    assert found.sizes == {"u0": "made_u0.shape[0]"}
    assert found.line(2) == 3


def test_parameters_are_those_of_the_innermost_function() -> None:
    assert parameters_at(SOURCE, 7) == ("x", "keep", "n")
    assert parameters_at(SOURCE, 2) == ()


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("z.shape[0] >= 1", "z.shape[0] > 0", True),
        ("z.shape[0] != 0", "z.shape[0] > 0", True),
        ("n < 4", "n <= 3", True),
        ("n != 0", "n > 0", False),
        ("n >= 1", "n > 1", False),
        ("z.shape[0] == 1", "z.shape[0] > 0", False),
    ],
)
def test_equivalent_assertions_have_one_meaning(first: str, second: str, is_same: bool) -> None:
    one, two = (meaning(f"x = 1\ntorch._check({condition})\n") for condition in (first, second))
    assert (one == two) == is_same
