"""Passes over expressions: arguments, numbers, lists, and an operand in place of its operation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace

from ddefuzz.minimize.facts import Facts
from ddefuzz.minimize.order import is_operation, literal_cost, mistyped_inputs, public_calls, sensible_calls
from ddefuzz.minimize.rewrite import deeply_mapped, everywhere, with_value
from ddefuzz.program.model import (
    Attribute,
    Call,
    Ellipsis_,
    Expr,
    Index,
    Input,
    Literal,
    Name,
    Program,
    Recipe,
    Sequence,
    Slice,
    children,
    expressions,
    walk,
)


def drop_arguments(program: Program, facts: Facts) -> Iterator[Program]:
    """Remove all keyword arguments of a call or one of them, or the last positional ones."""
    del facts

    def simpler(node: Expr) -> Iterator[Expr]:
        if not isinstance(node, Call):
            return
        if len(node.kwargs) > 1:
            yield replace(node, kwargs=())
        for i in range(len(node.kwargs)):
            yield replace(node, kwargs=(*node.kwargs[:i], *node.kwargs[i + 1 :]))
        for kept in range(1, len(node.args)):
            yield replace(node, args=node.args[:kept])

    yield from everywhere(program, simpler)


def hoist(program: Program, facts: Facts) -> Iterator[Program]:
    """Replace an operation by an operand: `a + b` becomes `a`, `a if n > 3 else b` becomes `b`."""
    del facts

    def simpler(node: Expr) -> Iterator[Expr]:
        if is_operation(node) or isinstance(node, Index | Attribute):
            yield from (child for child in children(node) if not _only_in_an_index(child))

    yield from everywhere(program, simpler)


def _only_in_an_index(expr: Expr) -> bool:
    return any(isinstance(part, Slice | Ellipsis_) for part in (expr, *children(expr)))


def shorten(program: Program, facts: Facts) -> Iterator[Program]:
    """Remove an item of a list or tuple, replace one with a single item by the item, or remove a bound of a slice."""
    del facts

    def simpler(node: Expr) -> Iterator[Expr]:
        match node:
            case Sequence(items):
                if len(items) == 1:
                    yield items[0]
                for i in range(len(items)):
                    yield replace(node, items=(*items[:i], *items[i + 1 :]))
            case Slice():
                for bound in ("step", "stop", "start"):
                    if getattr(node, bound) is not None:
                        yield replace(node, **{bound: None})

    yield from everywhere(program, simpler)


def to_constants(program: Program, facts: Facts) -> Iterator[Program]:
    """Replace a computed number by its value."""

    def simpler(node: Expr) -> Iterator[Expr]:
        scalar = facts.scalar(node)
        if scalar is not None and not isinstance(node, Literal):
            yield Literal(scalar.value)

    yield from everywhere(program, simpler)


def share_names(program: Program, facts: Facts) -> Iterator[Program]:
    """Read one value in place of another of its kind: `add(x, y)` becomes `add(x, x)`. Inputs are tried first."""
    inputs = {one.name: one for one in program.inputs}
    yield _shared(program, lambda one: (one.dtype, tuple(dim.size for dim in one.shape)))
    yield _shared(program, lambda one: (one.dtype, len(one.shape)))
    for i, one in enumerate(program.inputs):
        for other in program.inputs[:i]:
            if (one.dtype, len(one.shape)) == (other.dtype, len(other.shape)):
                yield with_value(program, Name(one.name), Name(other.name))

    def simpler(node: Expr) -> Iterator[Expr]:
        kind = facts.tensor(node) if isinstance(node, Name) and node.id not in inputs else None
        if kind is not None:
            yield from (Name(n) for n, one in inputs.items() if (one.dtype, one.shape) == (kind.dtype, kind.shape))

    yield from everywhere(program, simpler)


def _shared(program: Program, kind: Callable[[Input], Hashable]) -> Program:
    """The program with the first input of each kind read in place of all others of that kind."""
    first: dict[Hashable, str] = {}
    given: dict[Expr, Expr] = {Name(one.name): Name(first.setdefault(kind(one), one.name)) for one in program.inputs}
    return deeply_mapped(program, lambda node: given.get(node, node))


def public_functions(program: Program, facts: Facts) -> Iterator[Program]:
    """Replace a private function (`torch._refs.roll`) by the public one of that name."""
    del facts
    yield from everywhere(program, public_calls)


def sensible_arguments(program: Program, facts: Facts) -> Iterator[Program]:
    """Replace arguments that no user passes (a kernel of size 0) by usual ones. Inputs get the intended dtype."""
    del facts
    yield from everywhere(program, sensible_calls)
    dtypes = {one.name: one.dtype for one in program.inputs}
    calls = [node for expr in expressions(program) for node in walk(expr) if isinstance(node, Call)]
    for name, dtype in dict.fromkeys(pair for call in calls for pair in mistyped_inputs(call, dtypes)):
        for kind in ("ones", "zeros"):
            typed = (
                replace(one, dtype=dtype, recipe=Recipe(kind)) if one.name == name else one for one in program.inputs
            )
            yield replace(program, inputs=tuple(typed))


def lower_numbers(program: Program, facts: Facts) -> Iterator[Program]:
    """Reduce whole numbers toward 0, 1, 2 (all at once, then each), and floats toward 0 and 1."""
    del facts

    def plainest(node: Expr) -> Expr:
        if isinstance(node, Literal) and type(node.value) is int and node.value > 2:
            return Literal(2)
        return node

    yield deeply_mapped(program, plainest)

    def simpler(node: Expr) -> Iterator[Expr]:
        if not isinstance(node, Literal):
            return
        value = node.value
        options: tuple[int | float | bool, ...] = ()
        if isinstance(value, bool):
            options = (False,)
        elif isinstance(value, int):
            # A negative number would change the meaning of the argument, and some C++ kernels crash on it.
            options = (0, 1, 2, 3, value // 2, value - 1) if value >= 0 else (0, 1, 2, 3, -1, -2, -3)
        elif isinstance(value, float):
            options = (0.0, 1.0)
        yield from (Literal(o) for o in dict.fromkeys(options) if literal_cost(Literal(o)) < literal_cost(node))

    yield from everywhere(program, simpler)
