"""Tests that printing and parsing are inverse for any well-formed program, even if it makes no sense to torch."""

from __future__ import annotations

import ast
import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ddefuzz.program.expressions import ATTRIBUTES, BINARY, CONSTANTS, UNARY, is_keyword_name, is_name
from ddefuzz.program.model import (
    Apply,
    Attribute,
    Binary,
    Call,
    Conditional,
    Constant,
    Dim,
    Ellipsis_,
    Expr,
    Index,
    Input,
    Lambda,
    Literal,
    Name,
    Option,
    Program,
    Recipe,
    Sequence,
    Slice,
    Step,
    Unary,
    parameters_in,
    substitute,
)
from ddefuzz.program.options import fitting
from ddefuzz.program.recipes import ANNOTATIONS, ARRANGED, RECIPES, fault_of
from ddefuzz.program.text import Case, parse, print_program

_IDENTIFIERS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
NAMES = _IDENTIFIERS.filter(is_name)
_KEYWORDS = _IDENTIFIERS.filter(is_keyword_name)
_FINITE = st.floats(allow_nan=False, allow_infinity=False)
_INTS = st.integers(-(2**63), 2**63)

LITERALS = st.one_of(
    _INTS,
    _FINITE,
    st.booleans(),
    st.none(),
    st.text(max_size=8),
    st.complex_numbers(allow_nan=False, allow_infinity=False),
).map(Literal)

_FUNCTIONS = st.sampled_from(
    ["torch.chunk", "torch.nn.functional.pad", "torch.ops.aten.add.Tensor", "torch.vmap(torch.cat)", "int", "len"]
)
_METHODS = st.sampled_from(["Tensor.view", "Tensor.item", "Tensor.__getitem__"])


_PARAMETERS = ("first_parameter", "second_parameter")


@st.composite
def _nested(draw: st.DrawFn, inner: st.SearchStrategy[Expr]) -> Expr:
    """One level of an expression. As a composite, its repr has `inner` once: Hypothesis warns of long ones."""
    items = st.lists(inner, max_size=3).map(tuple)
    kwargs = st.lists(st.tuples(_KEYWORDS, inner), max_size=2, unique_by=lambda pair: pair[0]).map(tuple)
    bound = st.none() | inner
    index_item = st.one_of(inner, st.builds(Slice, bound, bound, bound), st.builds(Ellipsis_))
    index = st.one_of(index_item, st.lists(index_item, min_size=1, max_size=3).map(tuple).map(Sequence))
    levels: st.SearchStrategy[Expr] = st.one_of(
        st.builds(Sequence, items, st.booleans()),
        st.builds(Call, _FUNCTIONS, items, kwargs),
        st.builds(lambda f, receiver, rest, kw: Call(f, (receiver, *rest), kw), _METHODS, inner, items, kwargs),
        st.builds(Index, inner, index),
        st.builds(Attribute, inner, st.sampled_from(sorted(ATTRIBUTES))),
        st.builds(Binary, st.sampled_from(sorted(BINARY)), inner, inner).map(_as_parsed),
        st.builds(Unary, st.sampled_from(sorted(UNARY)), inner).map(_as_parsed),
        st.builds(Conditional, inner, inner, inner),
        st.builds(_with_function, inner, items),
        st.builds(lambda body, given, args: Apply(_with_function(body, given), args), inner, items, items),
    )
    return draw(levels)


def _with_function(body: Expr, args: tuple[Expr, ...]) -> Call:
    """A call with a function. Functions are not nested, because their parameters would have the same names."""
    given: dict[str, Expr] = {str(at): Name(name) for at, name in enumerate(_PARAMETERS)}
    inside = Literal(1) if parameters_in(body) else substitute(body, given)
    return Call("torch.chunk", (*args, Lambda(_PARAMETERS, inside)), (("key", Lambda((), Literal(2))),))


def _as_parsed(expr: Expr) -> Expr:
    match expr:
        case Unary("-", Literal(int() | float() as value)) if value >= 0 and not isinstance(value, bool):
            return Unary("-", Constant("torch.pi"))
        case Binary("+", Literal(float()), Literal(complex()) as right):
            return Binary("-", Literal(1), right)
        case _:
            return expr


_LEAVES = LITERALS | st.sampled_from(sorted(CONSTANTS)).map(Constant) | st.sampled_from("01234567").map(Name)
EXPRESSIONS = st.recursive(_LEAVES, _nested, max_leaves=10)
"""Expressions over the names 0 to 7, in the form that parsing gives: `Literal(-3)`, not `Unary("-", Literal(3))`."""


def _over(expr: Expr, known: list[str]) -> Expr:
    """`expr` with its numbered names among the `known`."""
    return substitute(expr, {str(i): Name(known[i % len(known)]) if known else Constant("torch.pi") for i in range(8)})


@st.composite
def inputs(draw: st.DrawFn, name: str, symbols: dict[str, int]) -> Input:
    """A well-formed input. Dims of one of the `symbols` have its size."""
    dim = st.integers(0, 4).map(Dim)
    if symbols:
        dim |= st.sampled_from(sorted(symbols)).map(lambda symbol: Dim(symbols[symbol], symbol))
    shape = tuple(draw(st.lists(dim, max_size=4)))
    count = math.prod(one.size for one in shape)
    kind = draw(st.sampled_from(sorted(RECIPES)))
    args: tuple[int | float | bool, ...] = tuple(draw(st.integers(0, 3)) for _ in RECIPES[kind].parameters)
    if kind == "sizes":
        args = tuple(draw(st.integers(0, 9)) for _ in range(count))
    if kind == "values":
        args = tuple(draw(st.booleans() | _INTS | _FINITE) for _ in range(count))
    dtype, layout = draw(st.sampled_from(sorted(ANNOTATIONS))), draw(st.sampled_from(sorted(ARRANGED)))
    drawn = Input(name, dtype, shape, Recipe(kind, args), layout, draw(st.booleans()))
    plain = Input(name, "float32", shape, Recipe("normal"))
    return drawn if fault_of(drawn) is None else plain


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A well-formed program with distinct names, each read only after it was assigned."""
    symbols = {"u0": draw(st.integers(0, 7)), "u1": 6}
    names = draw(st.lists(NAMES, max_size=6, unique=True))
    cut = draw(st.integers(0, len(names)))
    items = tuple(draw(inputs(name, symbols)) for name in names[:cut])
    known, fresh = names[:cut], names[cut:]
    steps: list[Step] = []
    while fresh:
        value = _over(draw(EXPRESSIONS), known)
        count = draw(st.integers(0, len(fresh)))
        targets, fresh = tuple(fresh[:count]), fresh[count:]
        if targets:
            steps.append(Step(targets, value, unpack=len(targets) > 1 or draw(st.booleans())))
        else:
            steps.append(Step((), Call("torch.chunk", (value,))))
            fresh = fresh[1:]
        known = [*known, *targets]
    program = Program(items, tuple(steps), _over(draw(EXPRESSIONS), known))
    options = draw(
        st.lists(st.sampled_from([*fitting(program), Option("dynamic")]), unique_by=lambda one: (one.name, one.symbol))
    )
    return replace(program, options=tuple(options))


@given(programs())
@settings(deadline=None, database=None, derandomize=True, max_examples=60)
def test_printing_and_parsing_are_inverse(program: Program) -> None:
    text = print_program(program, ("ok",))
    assert parse(text, "drawn.py") == Case(program, ("ok",))
    ast.parse(text)
