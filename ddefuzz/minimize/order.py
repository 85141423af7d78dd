"""The total order of programs: defines which of two is smaller, so every sequence of passes ends at the same one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import NamedTuple, TypeAlias

from ddefuzz.ops.catalogue import CALLABLES
from ddefuzz.program.expressions import METHOD_PREFIX
from ddefuzz.program.model import (
    DEFAULT_UNBACKED_SIZE,
    Apply,
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
    Sequence,
    Unary,
    expressions,
    mapped,
    names_in,
    walk,
)
from ddefuzz.program.modules import is_settled
from ddefuzz.program.text import print_program


class Odd(NamedTuple):
    """Values of a parameter that no user passes, and values to try instead, the best first.

    `functions` is a regular expression for whole names without `torch.` or `Tensor.`. `position` is the
    argument's position (None: by keyword only). With `whole`, a list or tuple is odd only if all of its items
    are.
    """

    functions: str
    position: int | None
    keywords: tuple[str, ...]
    values: tuple[int | float | bool, ...]
    better: tuple[int | float | bool, ...]
    whole: bool = False


_NN = r"nn\.functional\."

ODD: tuple[Odd, ...] = (
    Odd(rf"{_NN}(max|avg)_pool[123]d", 1, ("kernel_size",), (0, 1), (2,)),
    Odd(rf"{_NN}(lp_pool|max_unpool)[123]d", 2, ("kernel_size",), (0, 1), (2,)),
    Odd(rf"{_NN}max_unpool[123]d", 5, ("output_size",), (0,), (2, 4)),
    Odd(rf"{_NN}fractional_max_pool[23]d", 1, ("kernel_size",), (0, 1), (2,)),
    Odd(rf"{_NN}fractional_max_pool[23]d", 2, ("output_size",), (0,), (2, 1)),
    Odd(rf"{_NN}fractional_max_pool[23]d", 3, ("output_ratio",), (0.0, 1.0), (0.5,)),
    Odd(rf"{_NN}adaptive_(avg|max)_pool[123]d", 1, ("output_size",), (0,), (2, 1)),
    Odd(rf"{_NN}unfold", 1, ("kernel_size",), (0, 1), (2,)),
    Odd(rf"{_NN}fold", 2, ("kernel_size",), (0, 1), (2,)),
    Odd(rf"{_NN}(interpolate|upsample\w*)", 2, ("scale_factor",), (0, 1, 0.0, 1.0), (2, 2.0, 0.5)),
    Odd(rf"{_NN}(interpolate|upsample\w*)", 1, ("size",), (0,), (2,)),
    Odd(rf"{_NN}local_response_norm", 1, ("size",), (0, 1), (2,)),
    Odd(rf"{_NN}pad", 1, ("pad",), (0,), (1,), whole=True),
    Odd(rf"({_NN})?ctc_loss", 2, ("input_lengths",), (0,), (2,)),
    Odd(rf"({_NN})?ctc_loss", 3, ("target_lengths",), (0,), (1, 2)),
    Odd(rf"({_NN})?\w*dropout\w*", 1, ("p",), (0.0, 1.0), (0.5,)),
    Odd(r"\w*channel_shuffle", 1, ("groups",), (0, 1), (2,)),
    Odd(r"(_refs\.)?(unsafe_)?chunk", 1, ("chunks",), (0, 1), (2, 3)),
    Odd(r"(_refs\.)?([hvd]split|tensor_split)", 1, ("sections", "indices_or_sections"), (0, 1), (2, 3)),
    Odd(r"(_refs\.)?(unsafe_)?split", 1, ("split_size", "split_size_or_sections"), (0,), (2, 3)),
    Odd(r"(_refs\.)?roll", 1, ("shifts",), (0,), (1,)),
    Odd(r"(_refs\.)?(repeat|tile)", 1, ("repeats", "dims"), (0, 1), (2,)),
    Odd(r"topk|kthvalue", 1, ("k",), (0,), (1, 2)),
    Odd(r"diff", 1, ("n",), (0,), (1,)),
    Odd(r"combinations", 1, ("r",), (0, 1), (2,)),
    Odd(r"fft\.i?[rh]?fft", 1, ("n",), (0, 1), (2, 4)),
    Odd(r"i?stft", 1, ("n_fft",), (0, 1), (4, 2)),
    Odd(r"stft", None, ("return_complex",), (False,), (True,)),
    Odd(r"tri[ul]_indices", 0, ("row",), (0,), (2,)),
    Odd(r"tri[ul]_indices", 1, ("col",), (0,), (2,)),
    Odd(r"linspace|logspace", 1, ("end",), (0, 0.0), (1.0,)),
    Odd(r"(pca|svd)_lowrank", 1, ("q",), (0, 1), (2,)),
    Odd(r"histogramdd", 1, ("bins",), (0, 1), (2,)),
    Odd(r"sparse_coo_tensor", 2, ("size",), (0,), (2,)),
    Odd(r"zeros|ones|empty|full|randn?", 0, ("size",), (0,), (2,)),
    Odd(r"as_strided\w*", 1, ("size",), (0,), (2,)),
    Odd(r"as_strided\w*", 2, ("stride",), (0,), (1,)),
    Odd(r"(ops\.aten\.)?_?upsample\w*", 1, ("output_size",), (0,), (2,)),
    Odd(r"\w*(norm|norm_legit)", None, ("eps",), (0.0,), (1e-05,)),
)


class WrongDtype(NamedTuple):
    """A parameter that should have `dtype`, although torch accepts others if there is nothing to read."""

    functions: str
    position: int | None
    keywords: tuple[str, ...]
    dtype: str


DTYPES_MEANT: tuple[WrongDtype, ...] = (
    WrongDtype(r"gather|scatter\w*|index_\w+", 2, ("index",), "int64"),
    WrongDtype(r"take|take_along_dim", 1, ("index", "indices"), "int64"),
    WrongDtype(r"sparse_coo_tensor", 0, ("indices",), "int64"),
    WrongDtype(r"masked\.\w+", None, ("mask",), "bool"),
)

PRIVATE = re.compile(r"_|ops\.|.*\._")

PUBLIC_HOMES = ("torch.", "torch.nn.functional.", METHOD_PREFIX, "torch.linalg.", "torch.special.", "torch.fft.")
"""The modules in which the public function of a name is searched, in this order."""


def unrealistic_parts(program: Program) -> int:
    """The number of parts of a program that a maintainer would call unrealistic."""
    calls = [node for expr in expressions(program) for node in walk(expr) if isinstance(node, Call)]
    dtypes = {one.name: one.dtype for one in program.inputs}
    empty = sum(dim.size == 0 for one in program.inputs for dim in one.shape)
    private = sum(_is_private(call.function) for call in calls)
    odd = sum(len(_odd_literals(call, row)) for call in calls for row in ODD)
    mistyped = sum(1 for call in calls for _ in mistyped_inputs(call, dtypes))
    aliased = sum(map(_is_aliased, calls))
    hollow = sum(is_settled(call) and Literal(0) in call.args for call in calls)  # a module without channels
    return empty + private + odd + mistyped + aliased + hollow


def mistyped_inputs(call: Call, dtypes: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The inputs whose dtype is not the one that the call should have, with that dtype."""
    for row in DTYPES_MEANT:
        argument = _argument(call, row) if re.fullmatch(row.functions, _bare(call.function)) else None
        if isinstance(argument, Name) and dtypes.get(argument.id, row.dtype) != row.dtype:
            yield argument.id, row.dtype


def sensible_calls(call: Expr) -> Iterator[Expr]:
    """A call with odd arguments replaced: all of them, those of one parameter, those of one value, then each."""
    if not isinstance(call, Call):
        return
    odd = {row: _odd_literals(call, row) for row in ODD}
    rows = [row for row, found in odd.items() if found]
    if len(rows) > 1:
        best = call
        for row in rows:
            best = _with_argument(best, row, odd[row], row.better[0])
        yield best
    for row in rows:
        for literals in (odd[row], *([literal] for literal in dict.fromkeys(odd[row]))):
            yield from (_with_argument(call, row, literals, value) for value in row.better)
        for place in range(len(odd[row])):
            yield from (_with_argument(call, row, odd[row], value, only=place) for value in row.better)


def public_calls(call: Expr) -> Iterator[Expr]:
    """A call of a private function as a call of a public function of that name."""
    if isinstance(call, Call) and _is_private(call.function):
        stem = call.function.rpartition(".")[2].lstrip("_")
        for home in PUBLIC_HOMES:
            if f"{home}{stem}" in CALLABLES and f"{home}{stem}" != call.function:
                yield replace(call, function=f"{home}{stem}")


def _is_private(function: str) -> bool:
    return PRIVATE.match(_bare(function)) is not None


def _is_aliased(call: Call) -> bool:
    """Whether an `out=` is an operand as well."""
    out = next((names_in(value) for name, value in call.kwargs if name == "out"), frozenset())
    operands = (*call.args, *(value for name, value in call.kwargs if name != "out"))
    return any(not out.isdisjoint(names_in(operand)) for operand in operands)


def _bare(function: str) -> str:
    return function.removeprefix(METHOD_PREFIX).removeprefix("torch.")


def _argument(call: Call, row: Odd | WrongDtype) -> Expr | None:
    given = next((value for name, value in call.kwargs if name in row.keywords), None)
    if given is None and row.position is not None and row.position < len(call.args):
        return call.args[row.position]
    return given


def _odd_literals(call: Call, row: Odd) -> list[Literal]:
    if not re.fullmatch(row.functions, _bare(call.function)):
        return []
    argument = _argument(call, row)
    items = argument.items if isinstance(argument, Sequence) else (argument,)
    literals = [item for item in items if isinstance(item, Literal)]
    known = {Literal(value) for value in row.values}
    odd = [literal for literal in literals if literal in known]
    return [] if row.whole and len(odd) < len(items) else odd


def _with_argument(call: Call, row: Odd, old: list[Literal], new: float | bool, *, only: int | None = None) -> Call:
    """The call with the literals `old` of a parameter replaced, or only one of them, counted from the left."""
    places = count()

    def changed(expr: Expr) -> Expr:
        if isinstance(expr, Sequence):
            return mapped(expr, changed)
        return Literal(new) if expr in old and only in {None, next(places)} else expr

    if any(name in row.keywords for name, _ in call.kwargs):
        kwargs = tuple((name, changed(value) if name in row.keywords else value) for name, value in call.kwargs)
        return replace(call, kwargs=kwargs)
    args = tuple(changed(arg) if place == row.position else arg for place, arg in enumerate(call.args))
    return replace(call, args=args)


SortKey: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, str]

DTYPES = ("float32", "int64", "bool")
"""The simplest first. All others come after these."""

RECIPES = ("normal", "ones", "zeros", "trues", "index")
"""The simplest first. All others come after these."""


def sort_key(program: Program, *, deprecated: bool = False) -> SortKey:
    """The sort key of a program, the most important part first: its operations, its options, then the details of its
    inputs and arguments.

    Of programs of equal length, the one with fewer unrealistic parts comes first. `deprecated`
    says that torch warns of a deprecated use, which only a run shows.
    """
    dims = [dim for one in program.inputs for dim in one.shape]
    nodes = [node for expr in expressions(program) for node in walk(expr)]
    return (
        operations(program),
        len(program.options),
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
    """Whether the expression computes something. Reading a size (`x.shape[0]`) does not, nor does a module alone."""
    match expr:
        case Call() if is_settled(expr):
            return False
        case Index(Attribute(_, "shape")):
            return False
        case Attribute(_, name):
            return name != "shape"
        case _:
            return isinstance(expr, Apply | Call | Index | Binary | Unary | Conditional)


def operations(program: Program) -> int:
    """The number of operations of the program, over however many lines. It is reported as the number of steps."""
    return sum(is_operation(node) for expr in expressions(program) for node in walk(expr))


def size_cost(dim: Dim) -> int:
    """The cost of a size: 2, then 3, 4 …, then 1 (it broadcasts), then 0; for an unbacked dim the usual is best."""
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
