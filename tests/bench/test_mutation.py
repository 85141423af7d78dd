"""Mutants of torch's source: what each rule makes of a small function, and that a process runs one and forgets it."""

from __future__ import annotations

import ast
from copy import deepcopy
from itertools import islice
from typing import Any

import msgspec
import pytest
import torch._refs

from ci.bench.mutation import RULES, Function, Mutant, applied, diff, edits, exchange_of, mutants_in
from ddefuzz.errors import InputError

CASES = [
    ("wrong at one size", "refs", "n = x.shape[0]",
     ["n = torch.sym_max(x.shape[0], 1)", "n = torch.sym_max(x.shape[0], 2)", "n = x.shape[0] + x.shape[0] // 64"]),
    ("wrong at one size", "ir", "n = x.get_size()[0]", ["n = x.get_size()[0] + x.get_size()[0] // 64"]),
    ("stride formula", "meta", "stride *= max(size, 1)", ["stride *= size"]),
    ("stride formula", "meta", "strides.append(a * b)", []),
    ("stride formula", "meta", "strides = [a * b]", ["strides = [a + b]"]),
    ("stride formula", "meta", "y = x.stride()", ["y = x.stride()[::-1]"]),
    ("swapped operands", "decomp", "y = a - b", ["y = b - a"]),
    ("swapped operands", "decomp", "y = torch.where(c, a, b)", ["y = torch.where(c, b, a)"]),
    ("swapped operands", "decomp", "y = 'text' % a", []),
    ("off by one", "prims", "y = s[:n]", ["y = s[:n - 1]"]),
    ("off by one", "prims", "y = s[dim]", ["y = s[dim - 1]"]),
    ("off by one", "prims", "y = range(1, n)", ["y = range(1, n - 1)"]),
    ("off by one", "prims", "y = range(1, n, 2)", ["y = range(1, n - 1, 2)"]),
    ("hint for a symbol", "refs", "n = x.size(0)",
     ["n = torch.fx.experimental.symbolic_shapes.optimization_hint(x.size(0), 4)"]),
    ("hint for a symbol", "lowering", "n = x.get_numel()",
     ["n = V.graph.sizevars.optimization_hint(x.get_numel(), 4)"]),
    ("guard added", "refs", "n = x.numel()", ["n = x.numel() if x.numel() == 4 else x.numel()"]),
    ("guard added", "ir", "n = x.get_numel()", ["n = V.graph.sizevars.guard_int(x.get_numel())"]),
    ("gradient term dropped", "decomp", "grad = a + b", ["grad = a"]),
    ("gradient term dropped", "decomp", "y = a + b", []),
    ("comparison changed", "shapes", "y = a >= b", ["y = a == b"]),
    ("comparison changed", "shapes", "y = a == 'text'", []),
    ("lowering changed", "lowering", "y = ops.add(a, b)", ["y = ops.sub(a, b)"]),
    ("lowering changed", "scheduler", "if a:\n    b()", ["if not a:\n    b()", "if a:\n    pass"]),
    ("step changed", "export", "y = a and b", ["y = a or b"]),
    ("step changed", "shapes", "return True", ["return False"]),
    ("step changed", "refs", "return True", []),
    ("assertion dropped", "meta", "torch._check(a == b, lambda: 'text')", ["pass"]),
    ("assertion dropped", "meta", "torch._check(a.ndim == 2)", []),
    ("assertion moved", "meta", "torch._check(a)\nb()\nreturn c", ["b()\ntorch._check(a)\nreturn c"]),
    ("assertion moved", "meta", "torch._check(a)\nreturn c", []),
    ("assertion too strict", "meta", "torch._check(a >= b)", ["torch._check(a > b)"]),
    ("assertion too strict", "meta", "torch._check(a < b)", ["torch._check(a + 1 < b)"]),
    ("alias lost", "refs", "return x.view(s)", ["return x.view(s).clone()"]),
    ("alias lost", "aot", "x.copy_(y)", ["pass"]),
]  # fmt: skip


def changes(rule: str, area: str, body: str) -> list[str]:
    """The bodies that a rule makes of a function with this one."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    tree = ast.parse(f"def f():\n{lines}")
    made = []
    for number in range(sum(one.rule == rule for one in edits(function_of(tree), area))):
        new = deepcopy(tree)
        next(islice((one for one in edits(function_of(new), area) if one.rule == rule), number, None)).make()
        made.append("\n".join(ast.unparse(one) for one in function_of(new).body))
    return made


def function_of(tree: ast.Module) -> Function:
    (found,) = tree.body
    assert isinstance(found, Function)
    return found


@pytest.mark.parametrize(("rule", "area", "body", "expected"), CASES)
def test_a_rule_makes_these_changes(rule: str, area: str, body: str, expected: list[str]) -> None:
    assert changes(rule, area, body) == expected


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, *_, expected in CASES if expected} == set(RULES)


def test_a_returned_gradient_is_dropped() -> None:
    tree = ast.parse("def f_backward():\n    return a, b")
    next(one for one in edits(function_of(tree), "decomp") if one.rule == "gradient term dropped").make()
    assert ast.unparse(function_of(tree).body[0]) == "return (None, b)"


def test_messages_errors_and_functions_that_only_report_have_no_mutants() -> None:
    body = "raise E(a - b)\nassert a >= b\nlog.debug(a - b)\ny = f'{a - b}'\ntorch._check(c, lambda: a - b)"
    assert [one for rule in RULES if rule != "assertion dropped" for one in changes(rule, "shapes", body)] == []


def test_a_mutant_keeps_the_lines_of_the_function() -> None:
    roll = [one for one in mutants_in("torch/_refs/__init__.py") if one.function == "roll"]
    assert len(roll) > 5
    for one in roll:
        assert diff(one).startswith("@@")
        for old, new in exchange_of(one).values():
            assert {line for *_, line in new.co_lines()} <= {line for *_, line in old.co_lines()}
            assert (old.co_filename, old.co_firstlineno) == (new.co_filename, new.co_firstlineno)
            assert len(old.co_freevars) == len(new.co_freevars)


def test_a_mutant_that_this_torch_has_not_is_named() -> None:
    one = next(mutants_in("torch/_refs/__init__.py"))
    with pytest.raises(InputError, match="found no such mutant in this torch"):
        diff(msgspec.structs.replace(one, number=999))


def test_a_mutant_reaches_registered_functions_and_nothing_is_left_after() -> None:
    roll: Any = torch._refs.roll

    def rolled() -> list[int]:
        return [int(one) for one in roll(torch.arange(4), 1, 0)]

    before, code = rolled(), roll.__wrapped__.__code__
    one = mutant_of("swapped operands", "torch/_refs/__init__.py", "roll", "start = ")
    with applied(one) as changed:
        assert changed == 1
        assert roll.__wrapped__.__code__ is not code
        assert roll.__wrapped__.__code__.co_filename == code.co_filename
        assert rolled() != before
    assert roll.__wrapped__.__code__ is code
    assert rolled() == before


def mutant_of(rule: str, file: str, function: str, before: str) -> Mutant:
    """The mutant of a function that changes this line."""
    return next(
        one
        for one in mutants_in(file)
        if (one.rule, one.function) == (rule, function) and any(before in line for line in diff(one).splitlines())
    )
