"""The total order of programs: defines which of two is smaller, so every sequence of passes ends at the same one."""

from __future__ import annotations

from typing import TypeAlias

from ddefuzz.minimize.unrealistic import unrealistic_parts
from ddefuzz.program.model import (
    DEFAULT_UNBACKED_SIZE,
    Attribute,
    Binary,
    Call,
    Conditional,
    Dim,
    Expr,
    Index,
    Literal,
    Name,
    Program,
    Recipe,
    Unary,
    expressions,
    walk,
)
from ddefuzz.program.text import print_program

SortKey: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, str]

DTYPES = ("float32", "int64", "bool")
"""The simplest first. All others come after these."""

RECIPES = ("normal", "ones", "zeros", "trues", "index")
"""The simplest first. All others come after these."""


def sort_key(program: Program, *, deprecated: bool = False) -> SortKey:
    """The sort key of a program, the most important part first: its operations, then the details of its inputs
    and arguments.

    Of programs of equal length, the one with fewer unrealistic parts comes first. `deprecated`
    says that torch warns of a deprecated use, which only a run shows.
    """
    dims = [dim for one in program.inputs for dim in one.shape]
    nodes = [node for expr in expressions(program) for node in walk(expr)]
    return (
        operations(program),
        len(program.steps),
        unrealistic_parts(program) + deprecated,
        sum(2 if isinstance(node, Name) else 1 for node in nodes),
        len(program.inputs),
        len({dim.symbol for dim in dims if dim.symbol}),
        len(dims),
        sum(dim.symbol is not None for dim in dims),
        sum(one.requires_grad for one in program.inputs),
        sum(one.layout != "contiguous" for one in program.inputs),
        sum(_rank(DTYPES, one.dtype) for one in program.inputs),
        sum(recipe_cost(one.recipe) for one in program.inputs),
        sum(map(size_cost, dims)),
        sum(literal_cost(node) for node in nodes if isinstance(node, Literal)),
        print_program(program),
    )


def is_operation(expr: Expr) -> bool:
    """Whether the expression computes something. Reading a size (`x.shape[0]`) does not."""
    match expr:
        case Index(Attribute(_, "shape")):
            return False
        case Attribute(_, name):
            return name != "shape"
        case _:
            return isinstance(expr, Call | Index | Binary | Unary | Conditional)


def operations(program: Program) -> int:
    """The number of operations of the program, however they are spread over lines. It is reported as the number
    of steps.
    """
    return sum(is_operation(node) for expr in expressions(program) for node in walk(expr))


def size_cost(dim: Dim) -> int:
    """The cost of a size: 2 is the simplest, then 3, 4 and so on, then 1 (which broadcasts), then 0. For an
    unbacked dim, the usual size is the simplest.
    """
    if dim.symbol is not None:
        return abs(dim.size - DEFAULT_UNBACKED_SIZE)
    return {1: 10, 0: 1_000}.get(dim.size, dim.size - 2)


def recipe_cost(recipe: Recipe) -> int:
    """The kind of recipe decides, then the length of its arguments."""
    return 100 * _rank(RECIPES, recipe.kind) + sum(1 + min(abs(int(arg)), 10) for arg in recipe.args)


def literal_cost(literal: Literal) -> int:
    """The cost of a number: 0, 1 and 2 are simple, negative numbers less so. The unit is the size of an int."""
    match literal.value:
        case None:
            return 0
        case bool(value):
            return int(value)
        case int(value):
            return value if value >= 0 else 2 - value
        case float(value):
            return {0.0: 0, 1.0: 1}.get(value, 2 + len(repr(value)))
        case complex() | str():
            return len(repr(literal.value))


def _rank(order: tuple[str, ...], name: str) -> int:
    return order.index(name) if name in order else len(order)
