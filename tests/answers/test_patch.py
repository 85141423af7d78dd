"""Tests of the patches of torch's source: on small texts, one for each form."""

from __future__ import annotations

import ast

import pytest

from ddefuzz.answers.patch import Source, patches

HEAD = "import torch\n\ndef f(a, b, n):\n"


def code(body: str, anchor: str) -> list[tuple[str, str]]:
    """The form of each patch and the lines that it adds, joined."""
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    line = next(number for number, one in enumerate(text.splitlines(), 1) if anchor.partition("(")[0] in one)
    found = []
    for patch in patches(Source(text), "torch/x.py", line, anchor):
        ast.parse(patch.after)
        lines = [one for one in patch.diff.splitlines() if one.startswith("+") and not one.startswith("+++")]
        found.append((patch.form, " ".join(filter(None, (one[1:].strip() for one in lines)))))
    return found


IMPORT = "from torch.fx.experimental.symbolic_shapes import"


def test_a_comparison_of_sizes_is_guarded_both_ways() -> None:
    assert code("if a.numel() == 0:\n    return b", "a.numel() == 0") == [
        ("guard_or_false", f"{IMPORT} guard_or_false if guard_or_false(a.numel() == 0):"),
        ("guard_or_true", f"{IMPORT} guard_or_true if guard_or_true(a.numel() == 0):"),
    ]


def test_a_comparison_of_tuples_is_not_evaluated() -> None:
    found = code("if a.size() != b.size():\n    return b", "a.size() != b.size()")
    assert found[0][1] == (
        f"{IMPORT} guard_or_false, sym_eq if guard_or_false(torch.sym_not(sym_eq(a.size(), b.size()))):"
    )


def test_a_branch_that_raises_becomes_a_check() -> None:
    form, text = code('if a.numel() != n:\n    raise ValueError(f"got {n}")', "a.numel() != n")[0]
    assert (form, text) == ("torch._check", 'torch._check_value(a.numel() == n, lambda: f"got {n}")')


def test_code_of_several_lines_is_indented_as_it_reads_by_itself() -> None:
    text = f'{HEAD}    if a.numel() != n:\n        raise ValueError(f"{"long " * 12}{{n}}")\n'
    patch = next(patches(Source(text), "torch/x.py", 4, "a.numel() != n"))
    assert patch.code == f'torch._check_value(\n    a.numel() == n,\n    lambda: f"{"long " * 12}{{n}}",\n)'
    text = f'{HEAD}    if n is None or a.numel() > n:\n        raise RuntimeError("no")\n'
    patch = next(patches(Source(text), "torch/x.py", 4, "a.numel() > n"))
    assert patch.code == 'if n is None:\n    raise RuntimeError("no")\ntorch._check(a.numel() <= n, lambda: "no")'


@pytest.mark.parametrize(
    ("branch", "patched"),
    [
        ('if n > 3:\n    text = f"{n}"\n    raise ValueError(text)', 'torch._check_value(n <= 3, lambda: f"{n}")'),
        (
            'if b:\n    pass\nelif n > 3:\n    raise ValueError("no")',
            'else:\n    torch._check_value(n <= 3, lambda: "no")',
        ),
        (
            'if b and n > 3:\n    raise ValueError("no")\nelif a:\n    pass',
            'if b:\n    torch._check_value(n <= 3, lambda: "no")\nif a:\n    pass',
        ),
        (
            'if min(b) <= n:\n    raise ValueError("no")',
            'torch._check_value(sym_and(True, *(one > n for one in b)), lambda: "no")',
        ),
    ],
)
def test_a_branch_of_an_if_that_raises_becomes_a_check(branch: str, patched: str) -> None:
    text = HEAD + "".join(f"    {line}\n" for line in branch.splitlines())
    line = next(number for number, one in enumerate(branch.splitlines(), 4) if "n >" in one or "<= n" in one)
    anchor = "min(b) <= n" if "min" in branch else "n > 3"
    first = next(iter(patches(Source(text), "torch/x.py", line, anchor)))
    assert "".join(f"    {one}\n" for one in patched.splitlines()) in first.after


def test_clauses_that_can_be_decided_still_raise() -> None:
    form, text = code('if n is None or a.numel() > n:\n    raise RuntimeError("no")', "a.numel() > n")[0]
    assert form == "torch._check"
    assert text == 'if n is None: torch._check(a.numel() <= n, lambda: "no")'  # the raise is there as it was


def test_an_assert_becomes_a_check() -> None:
    assert code('assert a.numel() == n, "no"', "a.numel() == n")[0] == (
        "torch._check",
        'torch._check_with(AssertionError, a.numel() == n, lambda: "no")',
    )


def test_a_check_of_tuples_compares_without_evaluating() -> None:
    assert code("torch._check(n is None or a.shape == b.shape)", "a.shape == b.shape")[0] == (
        "torch._check",
        f"{IMPORT} sym_eq torch._check(n is None or sym_eq(a.shape, b.shape))",
    )


def test_both_clauses_can_be_one_question() -> None:
    forms = dict(code("if a.numel() == 0 or n > 3:\n    return b", "n > 3"))
    assert "if a.numel() == 0 or guard_or_false(n > 3):" in forms["guard_or_false"]
    assert "if guard_or_false(sym_or(a.numel() == 0, n > 3)):" in forms["guard_or_false of sym_or"]


@pytest.mark.parametrize(
    ("body", "anchor", "expected"),
    [
        ("while a.numel() > n:\n    pass", "a.numel() > n", "while guard_or_false(a.numel() > n):"),
        ("return a if n < 2 else b", "n < 2", "return a if guard_or_false(n < 2) else b"),
        ("if 1 < n < 4:\n    return b", "1 < n < 4", "if guard_or_false(sym_and(1 < n, n < 4)):"),
        ("if not n > 4:\n    return b", "n > 4", "if not guard_or_false(n > 4):"),
        ("if not n > 4:\n    return b", "not n > 4", "if not guard_or_false(n > 4):"),
        ("if all(d for d in n):\n    return b", "all((d for d in n))", "all(guard_or_false(d) for d in n)"),
        ("return min(n, 3)", "min(n, 3)", "return torch.sym_min(n, 3)"),
        ("return int(n)", "int(n)", "return torch.sym_int(n)"),
        ("return bool((a == b).all())", "bool((a == b).all())", "return guard_or_false((a == b).all().item())"),
        ("if not even(n):\n    return b", "even(n)", "if not guard_or_false(even(n)):"),
        ("return math.sqrt(n)", "math.sqrt(n)", "return torch.sym_sqrt(n)"),
        ("return a.shape.numel()", "a.shape.numel()", "return a.numel()"),
        ("return n + 1 if n < b else n", "n < b", "return n + 1 if guard_or_false(n < b) else n"),
        ("return 1 / n if n > 0 else 0", "n > 0", "return 1 / n if guard_or_false(n > 0) else 0"),
        (
            "return a.is_contiguous(memory_format=b)",
            "a.is_contiguous(memory_format=b)",
            "return is_contiguous_for_memory_format_or_false(a, memory_format=b)",
        ),
        ("return a.is_contiguous()", "a.is_contiguous()", "return is_contiguous_or_false(a)"),
    ],
)
def test_each_form_of_code_has_a_patch(body: str, anchor: str, expected: str) -> None:
    assert expected in code(body, anchor)[0][1]


def test_code_that_decides_no_branch_has_no_patch() -> None:
    assert code("return range(n)", "range(n)") == []
    assert list(patches(Source(HEAD + "    return n\n"), "torch/x.py", 4, "n == 1")) == []


def test_an_import_that_is_there_is_used() -> None:
    text = HEAD + f"    {IMPORT} guard_or_true\n    if n == 0:\n        return a\n"
    first = next(iter(patches(Source(text), "torch/x.py", 5, "n == 0")))
    assert f"    {IMPORT} guard_or_false, guard_or_true\n    if guard_or_false(n == 0):\n" in first.after
    assert first.diff.startswith("--- a/torch/x.py\n+++ b/torch/x.py\n")


def test_a_patch_keeps_every_other_byte() -> None:
    text = HEAD + '    """Ünïcode."""\n    if (  # why\n        n == 0\n    ):\n        return "ß", a\n'
    first = next(iter(patches(Source(text), "torch/x.py", 6, "n == 0")))
    with_import = text.replace("    if (", f"    {IMPORT} guard_or_false\n\n    if (")
    assert first.after == with_import.replace("n == 0", "guard_or_false(n == 0)")


def test_what_each_item_has_to_be_is_one_check() -> None:
    body = 'if b and any(s != b[0] for s in b):\n    raise ValueError("no")'
    assert code(body, "any((s != b[0] for s in b))")[0] == (
        "torch._check",
        f'{IMPORT} sym_and if b: torch._check_value(sym_and(True, *(s == b[0] for s in b)), lambda: "no")',
    )


def test_clauses_that_a_check_asks_for_are_passed_together() -> None:
    first = code("torch._check(n != 0 or all(d > 0 for d in b), msg)", "n != 0")[0]
    together = "torch._check(sym_or(n != 0, sym_and(True, *(d > 0 for d in b))), msg)"
    assert first == ("torch._check", f"{IMPORT} sym_and, sym_or {together}")
    first = code("torch._check(n != 0 and all(d > 0 for d in b) and a > 1, msg)", "n != 0")[0]
    assert first[1].endswith("torch._check(sym_and(n != 0, *(d > 0 for d in b), a > 1), msg)")
    (_, text), *_ = code("torch._check(b is None or n == 0 or a > 1, msg)", "n == 0")
    assert text.endswith("torch._check(b is None or sym_eq(n, 0) or a > 1, msg)")


def test_a_long_call_is_folded() -> None:
    long = "all(size_of_input > 0 for size_of_input in b)"
    text = HEAD + f"    torch._check(\n        {long} and n != 0,\n        msg,\n    )\n"
    whole = next(one for one in patches(Source(text), "torch/x.py", 6, "n != 0") if "sym_and" in one.code)
    assert whole.after.endswith(
        "        sym_and(*(size_of_input > 0 for size_of_input in b), n != 0),\n        msg,\n    )\n"
    )
    text = text.replace("n != 0", "n != 0 and several_elements > 0")
    whole = next(one for one in patches(Source(text), "torch/x.py", 6, "n != 0") if "sym_and" in one.code)
    assert whole.after.endswith(
        "        sym_and(\n"
        "            *(size_of_input > 0 for size_of_input in b), n != 0, several_elements > 0\n"
        "        ),\n        msg,\n    )\n"
    )
    text = text.replace("several_elements", "another_number_of_elements")
    whole = next(one for one in patches(Source(text), "torch/x.py", 6, "n != 0") if "sym_and" in one.code)
    assert whole.after.endswith(
        "        sym_and(\n"
        "            *(size_of_input > 0 for size_of_input in b),\n"
        "            n != 0,\n"
        "            another_number_of_elements > 0,\n"
        "        ),\n        msg,\n    )\n"
    )


def test_an_import_is_before_the_comment_of_the_first_statement() -> None:
    text = HEAD + "    # Why.\n    # And how.\n    if n == 0:\n        return a\n"
    first = next(iter(patches(Source(text), "torch/x.py", 6, "n == 0")))
    assert f"    {IMPORT} guard_or_false\n\n    # Why.\n    # And how.\n    if guard_or_false(n == 0):\n" in first.after


def test_a_check_of_an_order_is_not_made_one_of_equality() -> None:
    every = code("torch._check(n >= 1 or a >= 1, msg)", "n >= 1")
    assert ("torch._check", f"{IMPORT} sym_or torch._check(sym_or(n >= 1, a >= 1), msg)") in every
    assert not any("sym_eq" in text for form, text in every if form == "torch._check")


def test_a_condition_of_a_check_is_passed_unevaluated() -> None:
    form, text = code("torch._check(n in (2, 3) and all(d != 0 for d in b))", "all((d != 0 for d in b))")[0]
    assert (form, text) == (
        "torch._check",
        f"{IMPORT} sym_and torch._check(n in (2, 3) and sym_and(True, *(d != 0 for d in b)))",
    )
    form, text = code("torch._check(not (a == 0 and b != 0))", "not (a == 0 and b != 0)")[0]
    assert text == f"{IMPORT} sym_and torch._check(torch.sym_not(sym_and(a == 0, b != 0)))"
    form, text = code("torch._check(0 <= n <= a, msg)", "0 <= n <= a")[0]
    assert (form, text) == ("torch._check", f"{IMPORT} sym_and torch._check(sym_and(0 <= n, n <= a), msg)")


def test_what_is_inside_of_a_clause_is_checked_if_the_other_clauses_hold() -> None:
    body = 'if n is not None and not (n.dim() == 1 and n.numel() == b):\n    raise ValueError("no")'
    assert code(body, "n.numel() == b")[0] == (
        "torch._check",
        f'{IMPORT} sym_and if n is not None: torch._check_value(sym_and(n.dim() == 1, n.numel() == b), lambda: "no")',
    )
