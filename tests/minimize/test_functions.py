"""Programs with functions inside of calls are made small: the function alone, its parameters under usual names."""

from __future__ import annotations

from ddefuzz.minimize.eager import inspect
from ddefuzz.minimize.minimizer import minimize
from ddefuzz.minimize.rewrite import Facts, tidy
from ddefuzz.minimize.structure import call_functions
from ddefuzz.program.model import Program
from ddefuzz.program.text import parse, print_function, print_program
from tests.minimize.reduction import calls


def read(*lines: str, returns: str = "a") -> Program:
    body = "".join(f"    {line}\n" for line in lines)
    text = f"""# ddefuzz program v1
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0 3"], y: Float32[Tensor, "3"]):
{body}    return {returns}
"""
    return parse(text, "<test>").program


def smallest(program: Program, function: str) -> list[str]:
    made = minimize(program, calls(function), inspect=inspect).program
    return print_function(made).splitlines()[1:]


COND = "a = torch.cond(x.sum() > 0, lambda one: torch.softmax(one, 0) + y, lambda one: torch.cumsum(one, 1) * y, (x,))"


def test_parameters_get_the_usual_names() -> None:
    nested = "a = torch.vmap(lambda b: torch.vmap(lambda c, d: c * d + y.sum())(b, b))(x)"
    assert print_function(tidy(read(nested))).splitlines()[1:] == [
        "    a = torch.vmap(lambda p: torch.vmap(lambda q, r: q * r + x.sum())(p, p))(y)",
        "    return a",
    ]


def test_what_a_branch_computes_stands_alone_if_it_is_enough() -> None:
    assert smallest(read(COND), "torch.softmax") == ["    return torch.softmax(x, 0)"]
    assert smallest(read(COND), "torch.cumsum") == ["    return torch.cumsum(x, 0)"]


def test_what_a_row_computes_stands_alone_if_it_is_enough() -> None:
    mapped = "a = torch._higher_order_ops.map(lambda row: torch.softmax(row * 2, 0) + row.sum(), x)"
    assert smallest(read(mapped), "torch.softmax") == ["    return torch.softmax(x, 0)"]


def test_the_branches_of_a_call_that_is_needed_become_small() -> None:
    lines = smallest(read("b = torch.relu(x)", COND.replace("(x,)", "(b,)")), "torch.cond")
    assert lines == ["    return torch.cond(mask, lambda p: p.clone(), lambda p: p.clone(), (x,))"]


def test_an_operation_is_never_taken_out_of_a_function_with_its_parameters() -> None:
    program = read(COND)
    texts = [print_program(candidate) for candidate in call_functions(program, Facts(inspect(program) or {}))]
    assert texts
    assert all(parse(text, "<candidate>") for text in texts)


def test_a_module_stands_alone_and_keeps_a_channel() -> None:
    nested = "a = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4)).eval()(x * 2).sin()"
    assert smallest(read(nested), "torch.nn.LayerNorm") == ["    return torch.nn.LayerNorm(2)(x)"]
