"""Passes over the values of a program: its inputs, and the arguments, numbers and lists in expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace

from ddefuzz.minimize.order import is_operation, literal_cost, mistyped_inputs, public_calls, sensible_calls, size_cost
from ddefuzz.minimize.rewrite import Facts, deeply_mapped, everywhere, with_value
from ddefuzz.program.model import (
    DEFAULT_UNBACKED_SIZE,
    Attribute,
    Call,
    Dim,
    Ellipsis_,
    Expr,
    Index,
    Input,
    Lambda,
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
from ddefuzz.program.modules import is_module
from ddefuzz.program.recipes import with_fitting_layout


def drop_options(program: Program, facts: Facts) -> Iterator[Program]:
    """Without options: all of them, then each."""
    del facts
    if program.options:
        yield replace(program, options=())
    if len(program.options) > 1:
        for place in range(len(program.options)):
            yield replace(program, options=(*program.options[:place], *program.options[place + 1 :]))


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
    """Replace an operation by an operand: `a + b` becomes `a`, `a if n > 3 else b` becomes `b`; or a module by one that
    it is made of.
    """
    del facts

    def simpler(node: Expr) -> Iterator[Expr]:
        if is_module(node):
            yield from filter(is_module, children(node))
        elif is_operation(node) or isinstance(node, Index | Attribute):
            yield from (child for child in children(node) if not _only_in_its_place(child))

    yield from everywhere(program, simpler)


def _only_in_its_place(expr: Expr) -> bool:
    """Whether an expression can be only in an index, or only an argument of a call."""
    return isinstance(expr, Lambda) or any(isinstance(part, Slice | Ellipsis_) for part in (expr, *children(expr)))


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
    for i, item in enumerate(program.inputs):
        for other in program.inputs[:i]:
            if (item.dtype, len(item.shape)) == (other.dtype, len(other.shape)):
                yield with_value(program, Name(item.name), Name(other.name))

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


def plain_inputs(program: Program, facts: Facts) -> Iterator[Program]:
    """Make inputs contiguous float32 of normal values without grad: all inputs, each input, each of its properties."""
    del facts
    plain = [_fitted(_plain(one)) for one in program.inputs]
    yield replace(program, inputs=tuple(plain))
    yield replace(
        program, inputs=tuple(replace(one, requires_grad=False, layout="contiguous") for one in program.inputs)
    )
    for place, item in enumerate(program.inputs):
        yield _with(program, place, plain[place])
        for simpler in (
            replace(item, requires_grad=False),
            replace(item, layout="contiguous"),
            *(replace(item, dtype=dtype) for dtype in ("float32", "int64")),
        ):
            yield _with(program, place, simpler)


def plain_values(program: Program, facts: Facts) -> Iterator[Program]:
    """Use simpler recipes of values."""
    del facts
    for place, item in enumerate(program.inputs):
        for recipe in _simpler_recipes(item):
            yield _with(program, place, replace(item, recipe=recipe))


def back_dims(program: Program, facts: Facts) -> Iterator[Program]:
    """Make dims static or share symbols: all but one symbol, one symbol, one dim; then one symbol for two."""
    del facts
    symbols = sorted({dim.symbol for one in program.inputs for dim in one.shape if dim.symbol})
    if len(symbols) > 2:
        for symbol in symbols:
            yield _with_dims(program, lambda dim: dim if dim.symbol == symbol else Dim(dim.size))  # noqa: B023
    for symbol in symbols:
        yield _with_dims(program, lambda dim: Dim(2) if dim.symbol == symbol else dim)  # noqa: B023
        if len(symbols) > 1:  # the last symbol is rarely unnecessary, so it is tried once only
            yield _with_dims(program, lambda dim: Dim(dim.size) if dim.symbol == symbol else dim)  # noqa: B023
    for place, item in enumerate(program.inputs):
        for i, dim in enumerate(item.shape):
            if dim.symbol:
                for size in dict.fromkeys((2, dim.size)):
                    yield _with(program, place, _with_dim(item, i, Dim(size)))
    for i, symbol in enumerate(symbols):
        for kept in symbols[:i]:
            size = next(dim.size for one in program.inputs for dim in one.shape if dim.symbol == kept)
            yield _with_dims(program, lambda dim: Dim(size, kept) if dim.symbol == symbol else dim)  # noqa: B023


def drop_dims(program: Program, facts: Facts) -> Iterator[Program]:
    """Remove a dim of inputs: of all of that rank, then of one. Dim arguments out of range are then reduced."""
    del facts
    for rank in sorted({len(one.shape) for one in program.inputs} - {0}, reverse=True):
        for axis in range(rank):
            fewer = tuple(_without_dim(one, axis) if len(one.shape) == rank else one for one in program.inputs)
            yield from _with_axes(replace(program, inputs=fewer), rank)
    for place, item in enumerate(program.inputs):
        for axis in range(len(item.shape)):
            yield from _with_axes(_with(program, place, _without_dim(item, axis)), len(item.shape))


def tie_sizes(program: Program, facts: Facts) -> Iterator[Program]:
    """Set all dims of one size to a smaller size together, unbacked or not, and with them the numbers in the
    program that are that size.

    Then also scale the dims that are multiples of it: a size of 3 * n changes with n.
    """
    del facts
    for size in sorted({dim.size for one in program.inputs for dim in one.shape} - {0, 1}, reverse=True):
        for new in (2, 3, 4, DEFAULT_UNBACKED_SIZE):
            if new != size:
                yield _scaled(program, size, new, multiples=False)
                yield _scaled(program, size, new, multiples=True)


def _scaled(program: Program, size: int, new: int, *, multiples: bool) -> Program:
    def scaled(number: int) -> int:
        changes = number == size or (multiples and number > 0 and number % size == 0)
        return number // size * new if changes else number

    def literal(node: Expr) -> Expr:
        return Literal(scaled(node.value)) if isinstance(node, Literal) and type(node.value) is int else node

    resized = _with_dims(program, lambda dim: Dim(scaled(dim.size), dim.symbol))
    inputs = tuple(replace(one, recipe=_reaching(one.recipe, size, new)) for one in resized.inputs)
    return deeply_mapped(replace(resized, inputs=inputs), literal)


def _reaching(recipe: Recipe, size: int, new: int) -> Recipe:
    """Indices of `size` elements, changed so that they index `new` elements."""
    match recipe.kind:
        case "index" if recipe.args == (size,):
            return Recipe("index", (new,))
        case "values" if max(recipe.args, default=0) < size:
            return Recipe("values", tuple(int(value) % new for value in recipe.args))
        case _:
            return recipe


def fit_outputs(program: Program, facts: Facts) -> Iterator[Program]:
    """Give inputs that the program resizes (an `out=`) their final size from the start: all of them, then each."""
    fitted = tuple(_as_resized(one, facts) for one in program.inputs)
    yield replace(program, inputs=fitted)
    for place, item in enumerate(fitted):
        yield _with(program, place, item)


def _as_resized(item: Input, facts: Facts) -> Input:
    """The input with the shape that it has after the program ran."""
    after = facts.tensor(Name(item.name))
    sizes = [dim.size for dim in item.shape]
    if after is None or [dim.size for dim in after.shape] == sizes:
        return item
    return _fitted(replace(item, shape=after.shape))


def shrink_sizes(program: Program, facts: Facts) -> Iterator[Program]:
    """Reduce sizes toward 2 (unbacked dims toward the usual size): all sizes, each size, each dim."""
    del facts
    yield _with_dims(program, _plain_dim)
    backed = {dim.size for one in program.inputs for dim in one.shape if dim.symbol is None}
    for size in sorted(backed, reverse=True):
        for smaller in _smaller(Dim(size)):
            resized = _with_dims(program, lambda dim: smaller if dim == Dim(size) else dim)  # noqa: B023
            yield resized
            # Numbers in the program may be that size.
            yield with_value(resized, Literal(size), Literal(smaller.size))
    yield _with_dims(program, lambda dim: _plain_dim(dim) if dim.symbol else dim)
    for place, item in enumerate(program.inputs):
        for i, dim in enumerate(item.shape):
            for smaller in _smaller(dim):
                yield _with(program, place, _with_dim(item, i, smaller))


def _plain(item: Input) -> Input:
    dtype = item.dtype if item.dtype in {"bool", "int64"} else "float32"
    recipe = Recipe("normal") if dtype == "float32" else item.recipe
    return replace(item, dtype=dtype, recipe=recipe, layout="contiguous", requires_grad=False)


def _simpler_recipes(item: Input) -> Iterator[Recipe]:
    count = math.prod(dim.size for dim in item.shape)
    if item.dtype not in {"bool", "int64"}:
        yield Recipe("normal")
    if item.recipe.kind == "values" and item.dtype != "bool":
        yield Recipe("index", (max(1, 1 + max((int(value) for value in item.recipe.args), default=0)),))
    yield from (Recipe("ones"), Recipe("zeros"))
    if item.dtype == "bool":
        yield from (Recipe("trues", (k,)) for k in dict.fromkeys((min(2, count), min(count, 3), count // 2, count)))
    if item.recipe.kind == "index":
        yield from (Recipe("index", (n,)) for n in (1, 2, 3))
    if item.recipe.kind == "sizes":
        yield Recipe("sizes", (2,) * len(item.recipe.args))
        yield Recipe("sizes", (3,) * len(item.recipe.args))


def _smaller(dim: Dim) -> Iterator[Dim]:
    sizes = (DEFAULT_UNBACKED_SIZE,) if dim.symbol else (2, 1, 3, 4, dim.size // 2, dim.size - 1)
    for size in dict.fromkeys(sizes):
        other = Dim(size, dim.symbol)
        if size >= 0 and size_cost(other) < size_cost(dim):
            yield other


def _plain_dim(dim: Dim) -> Dim:
    return Dim(DEFAULT_UNBACKED_SIZE, dim.symbol) if dim.symbol else Dim(min(dim.size, 2))


def _with(program: Program, place: int, item: Input) -> Program:
    return replace(program, inputs=(*program.inputs[:place], item, *program.inputs[place + 1 :]))


def _with_dim(item: Input, place: int, dim: Dim) -> Input:
    return _fitted(replace(item, shape=(*item.shape[:place], dim, *item.shape[place + 1 :])))


def _without_dim(item: Input, axis: int) -> Input:
    return _fitted(replace(item, shape=item.shape[:axis] + item.shape[axis + 1 :]))


def _with_dims(program: Program, change: Callable[[Dim], Dim]) -> Program:
    changed = (replace(one, shape=tuple(map(change, one.shape))) for one in program.inputs)
    return replace(program, inputs=tuple(map(_fitted, changed)))


def _with_axes(program: Program, rank: int) -> Iterator[Program]:
    """The program as it is, and with the numbers in calls that were the last of `rank` dims reduced by one."""
    yield program

    def moved(node: Expr) -> Expr:
        if not isinstance(node, Call):
            return node
        last = Literal(rank - 1)
        args = tuple(Literal(rank - 2) if arg == last else arg for arg in node.args)
        return replace(
            node, args=args, kwargs=tuple((k, Literal(rank - 2) if v == last else v) for k, v in node.kwargs)
        )

    if rank > 1:
        yield deeply_mapped(program, moved)


def _fitted(item: Input) -> Input:
    """The input with a recipe and a layout that its new shape and dtype allow."""
    item, count = with_fitting_layout(item), math.prod(dim.size for dim in item.shape)
    args = item.recipe.args
    match item.recipe.kind:
        case "trues" | "distinct":
            return replace(item, recipe=replace(item.recipe, args=(min(int(args[0]), count),)))
        case "values" | "sizes":
            listed = tuple(args[i % len(args)] if args else 0 for i in range(count))
            return replace(item, recipe=replace(item.recipe, args=listed))
        case "spd" if item.shape:
            return replace(item, recipe=Recipe("spd", (item.shape[-1].size,)))
        case _:
            return item
