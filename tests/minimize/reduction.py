"""Shared by the tests of the minimizer: programs by their body, plain predicates, and the one assertion."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

from ddefuzz.minimize.eager import inspect
from ddefuzz.minimize.minimizer import SmallestProgram, minimize
from ddefuzz.minimize.rewrite import Inspect
from ddefuzz.program.model import Attribute, Call, Expr, Name, Program, walk
from ddefuzz.program.text import parse, print_program

Predicate = Callable[[Program], bool]

CHAIN = """
    # inputs: keep = trues(4); x = normal, transposed, grad
    def program(keep: Bool[Tensor, "6"], x: Float64[Tensor, "6 4"]):
        kept = x[keep]
        warm = torch.relu(kept) + 1
        rows = warm.shape[0]
        wide = torch.cat([warm, warm * 2.5], dim=0)
        empty = torch.zeros(rows, 4)
        parts = torch.chunk(wide, 3, dim=0)
        last = parts[0] * 2
        return last, empty
"""


def program(text: str) -> Program:
    """The program with this text, without the header."""
    body = dedent(text).strip()
    if body.startswith("return") or not body.startswith(("def ", "# inputs")):
        raise AssertionError(f"not a program: {body!r}")
    return parse(f"# ddefuzz program v1\n{body}\n", "<test>").program


def one_way(origin: str, accepts: Predicate, look: Inspect = inspect, **options: object) -> SmallestProgram:
    """`minimize` applied to a text."""
    start = program(origin)
    assert accepts(start), "the predicate does not accept the program to start from"
    return minimize(start, accepts, inspect=look, **options)  # type: ignore[arg-type]


def assert_reduces_to(origin: str, target: str, accepts: Predicate, *, within: int = 60) -> None:
    """Minimizing `origin` ends at exactly `target`, in at most this many attempts."""
    found = one_way(origin, accepts)
    assert found.program == program(target), f"ended at\n{print_program(found.program)}"
    assert found.attempts <= within, f"{found.attempts} attempts"
    assert not found.exhausted


def nodes(one: Program) -> list[Expr]:
    """All expressions of a program."""
    return [node for expr in (*(step.value for step in one.steps), one.returns) for node in walk(expr)]


def calls(function: str) -> Predicate:
    """Whether the program calls this function."""
    return lambda one: any(isinstance(node, Call) and node.function == function for node in nodes(one))


def unbacked(one: Program) -> frozenset[str]:
    """The names whose size depends on data, approximately: inputs with a symbol, and all that depends on a mask."""
    tainted = {item.name for item in one.inputs if any(dim.symbol for dim in item.shape) or item.dtype == "bool"}
    for step in one.steps:
        if any(isinstance(node, Name) and node.id in tainted for node in walk(step.value)):
            tainted |= set(step.targets)
    return frozenset(tainted)


def calls_on_unbacked(function: str) -> Predicate:
    """Whether the program calls this function on a value whose size depends on data."""

    def accepts(one: Program) -> bool:
        tainted = unbacked(one)
        return any(
            isinstance(node, Call)
            and node.function == function
            and any(isinstance(part, Name | Attribute) and getattr(part, "id", None) in tainted for part in walk(node))
            for node in nodes(one)
        )

    return accepts
