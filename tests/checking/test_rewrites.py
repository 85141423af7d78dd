"""The rewrites: the edits of each row, and the names of sizes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddefuzz.checking.candidates import DECISIONS, SIZES, name_sizes
from ddefuzz.checking.edits import (
    Edit,
    Place,
    Sources,
    fixes_a_size,
    in_user_words,
    locate,
    meaning,
    opposite,
    statements_at,
    unbound,
)
from ddefuzz.checking.rewrites import REWRITES, assert_instead, clamp, keep_symbolic, other_op, select_index
from ddefuzz.instrument.events import Frame, SymbolOrigin

SOURCE = '''"""A model."""
import torch


def forward(x, keep, n):
    kept = x[keep]
    if kept.shape[0] > 2:
        return kept
    elif kept.shape[0] == 1 and x.dim() == 2:
        return x[: int(n[0])]
    if x.sum() > 0:
        x = x + 1
    assert kept.shape[0] > 0, "none kept"
    if kept.numel() == 0:
        raise ValueError("none kept")
    size = max(kept.shape[0], 3)
    assert (x > 0).all()
    return x + 1 if x.sum() > 0 else x


def number(x, n):
    count = n[0].item()
    if count > 2:
        x = x * 2
    return x
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
        (10, "int(n[0])", "u1", ["return x[: n[0].item()]"]),
        (11, "x.sum() > 0", "Eq(u2, 1)", ["x = torch.where(x.sum() > 0, x + 1, x)"]),
        (11, "x.sum() > 0", "Eq(u2, 1)", ["x = x + 1"]),
        (13, "kept.shape[0] > 0", "u0 > 0", ["torch._check(kept.shape[0] > 0, lambda: 'none kept')"]),
        (14, "kept.numel() == 0", "Eq(u0, 0)", ["torch._check_value(kept.numel() != 0, lambda: 'none kept')"]),
        (14, "kept.numel() == 0", "Eq(u0, 0)", ["torch._check(kept.numel() != 0, lambda: 'none kept')"]),
        (16, "max(kept.shape[0], 3)", "u0 > 3", ["size = torch.sym_max(kept.shape[0], 3)"]),
        (17, "(x > 0).all()", "Eq(u2, 1)", ["torch._assert_async((x > 0).all(), 'expected to hold')"]),
        (18, "x.sum() > 0", "Eq(u2, 1)", ["return torch.where(x.sum() > 0, x + 1, x)"]),
        (18, "x.sum() > 0", "Eq(u2, 1)", ["return x + 1"]),
        (23, "count > 2", "u0 > 2", ["x = torch.where(torch.tensor(count) > 2, x * 2, x)"]),
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
    edits = [edit for rewrite in REWRITES for edit in rewrite(place(line, anchor, question))]
    assert changes in [new_lines(edit.source) for edit in edits]
    assert {edit.kind for edit in edits} == {"rewrite"}


def test_a_message_with_local_variables_may_be_left_out() -> None:
    source = 'def f(n):\n    if n == 0:\n        raise TypeError(f"got {n}")\n'
    found = locate(source, Frame("m.py", 2, "f", "n == 0", True), "n == 0", "Eq(u0, 0)", {})
    assert found is not None
    checks = [edit.source.splitlines()[1].strip() for edit in assert_instead(found)]
    assert checks[:3] == [
        "torch._check_type(n != 0, lambda: f'got {n}')",
        "torch._check_type(n != 0)",
        "torch._check(n != 0, lambda: f'got {n}')",
    ]


def test_an_elif_does_not_become_a_check() -> None:
    source = "def f(n):\n    if n == 0:\n        n = 1\n    elif n > 9:\n        raise ValueError\n"
    found = locate(source, Frame("m.py", 4, "f", "n > 9", True), "n > 9", "u0 > 9", {})
    assert found is not None
    assert list(assert_instead(found)) == []


def test_a_branch_can_be_dropped_with_its_lines() -> None:
    edits = [edit for rewrite in REWRITES for edit in rewrite(place(14, "kept.numel() == 0", "Eq(u0, 0)"))]
    dropped = next(edit for edit in edits if edit.does == "drop the branch `if kept.numel() == 0`")
    assert dropped.source == SOURCE.replace('    if kept.numel() == 0:\n        raise ValueError("none kept")\n', "")
    assert dropped.removed is not None


@pytest.mark.parametrize(
    ("line", "anchor", "question", "condition"),
    [
        (7, "kept.shape[0] > 2", "u0 > 2", "kept.shape[0] > 2"),
        (7, "kept.shape[0] > 2", "u0 > 2", "kept.shape[0] <= 2"),
        (9, "kept.shape[0] == 1", "Eq(u0, 1)", "kept.shape[0] != 1"),
        (18, "x.sum() > 0", "Eq(u2, 1)", "not x.sum() > 0"),
    ],
)
def test_a_decision_has_its_promises(line: int, anchor: str, question: str, condition: str) -> None:
    assert condition in [edit.condition for edit in promises(place(line, anchor, question))]


@pytest.mark.parametrize("line", range(6, 19))
def test_every_edit_still_parses(line: int) -> None:
    for statement in statements_at(SOURCE, line):
        for node in ast.walk(statement):
            if isinstance(node, ast.expr):
                at = Place(SOURCE, statement, node, "Eq(u0, 1)", {"u0": "kept.shape[0]"})
                for rewrite in (*REWRITES, *DECISIONS, *SIZES):
                    for edit in rewrite(at):
                        ast.parse(edit.source)


def test_what_goes_before_an_elif_goes_before_its_if() -> None:
    source = next(promises(place(9, "kept.shape[0] == 1", "Eq(u0, 1)"))).source
    lines = source.splitlines()
    assert lines[6:8] == ["    torch._check(kept.shape[0] == 1)", "    if kept.shape[0] > 2:"]


def promises(at: Place) -> Iterator[Edit]:
    for row in (*DECISIONS, *SIZES):
        yield from row(at)


@pytest.mark.parametrize(
    ("condition", "fixed"),
    [
        ("n == 8", True),
        ("4 * x.shape[0] == 24", True),
        ("x.shape[0] % 4 == 0", False),
        ("a.shape[0] == b.shape[0]", False),
        ("x.shape[0] + n == 8", False),
        ("n != 8", False),
    ],
)
def test_a_condition_that_fixes_a_size_is_known(condition: str, fixed: bool) -> None:
    assert fixes_a_size(condition) is fixed


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Eq(4*u0, 0)", "kept.shape[0] == 0"),
        ("Eq(4*u0, 8)", "4 * kept.shape[0] == 8"),
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
    found = name_sizes(source, [(SymbolOrigin("u0", op), Frame("m.py", 2, "f", code, True))])
    assert (found.source, found.sizes) == (source, {"u0": size})


@pytest.mark.parametrize(
    ("line", "code", "scalar", "read", "changed"),
    [
        ("return torch.addmm(x, t, t, beta=b)", "torch.addmm(x, t, t, beta=b)", "b", "b", "beta=made_u0)"),
        ("return x[:, t]", "x[:, t]", "", "t", "x[:, made_u0]"),
        ("return x[t, t]", "x[t, t]", "", "t", "x[made_u0, made_u0]"),
        ("t = x[t]", "x[t]", "", "t", "t = x[made_u0]"),
        ("return x[t, b]", "x[t, b]", "", "", ""),
        ("return torch.roll(x, t.n)", "torch.roll(x, t.n)", "b", "", ""),
        ("return [x[t] for t in b]", "x[t]", "", "", ""),
        ("return torch.vmap(lambda t: x[t])(b)", "x[t]", "", "", ""),
        ("while x[t] > 0: t = t + 1", "x[t]", "", "", ""),
    ],
)
def test_a_number_that_torch_reads_of_an_argument_is_read_before(
    line: str, code: str, scalar: str, read: str, changed: str
) -> None:
    source = f"def f(x, t, b):\n    {line}\n"
    named = name_sizes(source, [(SymbolOrigin("u0", "item"), Frame("m.py", 2, "f", code, True))], scalar)
    assert named.sizes == ({"u0": "made_u0"} if read else {})
    assert (named.source == source) is (not read)
    if read:
        first, second = named.source.splitlines()[1:]
        assert first == f"    made_u0 = {read}.item()"
        assert second.endswith(changed)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("x[:, n]", ["x.select(1, n)", "x.select(1, n.item())"]),
        ("x[self.at]", ["x.select(0, self.at)", "x.select(0, self.at.item())"]),
        ("x[0, n]", ["x[0].select(0, n)", "x[0].select(0, n.item())"]),
        ("x[1:, n, 0]", ["x[1:, :, 0].select(1, n)", "x[1:, :, 0].select(1, n.item())"]),
        ("x[None, n]", []),
        ("x[n:]", []),
        ("x[a, b]", []),
        ("x[-1, n]", ["x[-1].select(0, n)", "x[-1].select(0, n.item())"]),
        ("x[n, -1]", ["x[:, -1].select(0, n)", "x[:, -1].select(0, n.item())"]),
        ("x[..., n]", ["x.select(-1, n)", "x.select(-1, n.item())"]),
        ("x[..., n, 0]", []),
        ("(x if c else z)[n]", ["(x if c else z).select(0, n)", "(x if c else z).select(0, n.item())"]),
    ],
)
def test_an_index_may_be_that_of_select(code: str, wanted: list[str]) -> None:
    source = f"def f(x):\n    y = {code}\n"
    at = locate(source, Frame("m.py", 2, "f", code, True), code, "u0", {})
    assert at is not None
    assert [edit.source for edit in select_index(at)] == [source.replace(code, one) for one in wanted]


def test_a_size_that_nothing_holds_gets_a_variable() -> None:
    source = "def f(x, keep):\n    return g(x[keep])\n"
    found = name_sizes(source, [(SymbolOrigin("u0", "nonzero"), Frame("m.py", 2, "f", "x[keep]", True))])
    assert found.source == "def f(x, keep):\n    made_u0 = x[keep]\n    return g(made_u0)\n"
    assert found.sizes == {"u0": "made_u0.shape[0]"}
    assert found.line(2) == 3


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


def test_a_file_imports_what_a_change_uses(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        '"""A model."""\nfrom torch import nn\n\n\ndef f(x, *a, **k):\n    return [nn.relu(y) for y in x]\n'
    )
    text = path.read_text().replace("    return", "    torch._check(x.shape[0] > 1)\n    return")
    assert unbound(text) == {"torch"}
    assert Sources().with_text(str(path), text).changed[str(path)] == text.replace('."""\n', '."""\nimport torch\n')
    assert unbound("with open(a) as b, c:\n    try:\n        b\n    except E as e:\n        e\n") == {"a", "c", "E"}


def test_the_owner_of_another_op_keeps_its_parentheses() -> None:
    source = "def f(x):\n    return (x * 2).view(-1, 6)\n"
    (statement,) = statements_at(source, 2)
    assert isinstance(statement, ast.Return)
    assert statement.value is not None
    at = Place(source, statement, statement.value, "Ne(u0, 0)", {})
    assert [edit.source for edit in other_op(at)] == ["def f(x):\n    return (x * 2).reshape(-1, 6)\n"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    if n > cap:\n        n = cap\n", "    n = torch.sym_min(n, cap)\n"),
        ("    if n < cap:\n        n = cap\n", "    n = torch.sym_max(n, cap)\n"),
        ("    if n >= cap:\n        x = x.topk(cap)[0]\n", "    x = x.topk(torch.sym_min(n, cap))[0]\n"),
        ("    if int(min(len(x), n)) > 1:\n        pass\n", "    if torch.sym_min(x.shape[0], n) > 1:\n        pass\n"),
    ],
)
def test_numbers_stay_symbolic(before: str, after: str) -> None:
    head = "def f(x, n, cap):\n"
    source = f"{head}{before}    return x[:n]\n"
    (statement,) = statements_at(source, 2)
    assert isinstance(statement, ast.If)
    at = Place(source, statement, statement.test, "u0 > 3", {})
    edits = [edit.source for row in (keep_symbolic, clamp) for edit in row(at)]
    assert f"{head}{after}    return x[:n]\n" in edits


@pytest.mark.parametrize(
    ("maker", "dim"),
    [("x[m]", 0), ("x[:, m]", 1), ("x[None, :, s]", 2), ("x[0, m]", 0), ("x[..., m]", -1), ("x.index_select(2, m)", 2)],
)
def test_a_size_is_that_of_the_dim_that_an_index_makes(maker: str, dim: int) -> None:
    source = f"def f(x, m, s):\n    kept = {maker}\n    return kept\n"
    frame = Frame("m.py", 2, "f", maker, True)
    assert name_sizes(source, [(SymbolOrigin("u0", "nonzero", frame), frame)]).sizes == {"u0": f"kept.shape[{dim}]"}
