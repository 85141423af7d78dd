"""The text form of one expression: the vocabulary of programs, and a printer and a parser that are inverses.

The parser works on Python's own syntax tree and executes nothing. Anything that is not in the tables below is an
error.
"""

from __future__ import annotations

import ast
import cmath
import keyword
import math
import operator
import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Final, NoReturn

from ddefuzz import syntax
from ddefuzz.errors import ProgramError
from ddefuzz.program.model import (
    Apply,
    Attribute,
    Binary,
    Call,
    Conditional,
    Constant,
    Ellipsis_,
    Expr,
    Index,
    Lambda,
    Literal,
    Name,
    Sequence,
    Slice,
    Unary,
)
from ddefuzz.program.modules import MODULE_METHODS, MODULE_PREFIX, is_made_before, is_settled

METHOD_PREFIX: Final = "Tensor."
OTHER_METHODS: Final[dict[str, str]] = {
    **dict.fromkeys(MODULE_METHODS, MODULE_PREFIX),
    **dict.fromkeys(("cdf", "entropy", "icdf", "log_prob", "rsample", "sample"), "Distribution."),
    **dict.fromkeys(("full_tensor", "redistribute", "to_local"), "DTensor."),
    "pop": "list.",
}
"""Methods that no plain tensor has, with the prefixes of the catalogue's names for them."""

PREFIXES: Final = (METHOD_PREFIX, *dict.fromkeys(OTHER_METHODS.values()))

ROOTS: Final = ("torch", "collections", "math")
"""The modules of Python whose functions programs call, each by its path from here."""

_IMPORTED: Final = (
    "collections",
    "math",
    "torch.distributed.tensor",
    "torch.distributed.tensor.parallel",
    "torch.nn.attention.bias",
    "torch.nn.attention.flex_attention",
)
"""Those that `import torch` does not import."""

MAPPED_PREFIX: Final = "torch.vmap("
"""Prefix of mapped functions, named as they are written: `torch.vmap(torch.cat)`, called `…((x, y))`."""

SELF_COMPILING: Final = frozenset(
    {"torch.cond", "torch.while_loop", "torch._higher_order_ops.scan", "torch._higher_order_ops.map"}
    | {"torch.nn.attention.flex_attention.flex_attention"}
)
"""Functions that compile themselves in eager, so a call in eager fails as a capture does (`plain`)."""

BUILTINS: Final[dict[str, Callable[..., Any]]] = {
    "abs": abs,
    "bool": bool,
    "dict": dict,
    "divmod": divmod,
    "float": float,
    "int": int,
    "len": len,
    "list": list,
    "map": map,
    "max": max,
    "min": min,
    "range": range,
    "round": round,
    "sorted": sorted,
    "sum": sum,
}

ATTRIBUTES: Final = frozenset(
    {"H", "T", "device", "dtype", "grad", "imag", "indices", "itemsize", "layout", "mH", "mT", "nbytes", "ndim", "real"}
    | {"requires_grad", "shape", "values"}
)
"""The attributes that a program may read: of tensors, and of torch's named tuples (`topk(...).values`)."""

CONSTANTS: Final = frozenset(
    f"torch.{name}"
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"),
        *("uint16", "uint32", "uint64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"),
        *("half", "float", "double", "short", "int", "long", "cfloat", "cdouble"),
        *("contiguous_format", "preserve_format", "channels_last", "channels_last_3d"),
        *("strided", "sparse_coo", "sparse_csr", "jagged"),
        *("inf", "nan", "pi", "e"),
    )
)

RESERVED: Final = frozenset({*ROOTS, "Tensor", "program", *BUILTINS})
MAX_INT: Final = 2**63
MAX_STRING: Final = 1_000

_CONDITIONAL, _OR, _AND, _NOT, _COMPARE, _UNARY, _POWER, _NUMBER, _ATOM = 0, 1, 2, 3, 4, 11, 12, 13, 14


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: its Python spelling, its node class, the function that computes it, and its precedence.

    `and` and `or` do not always compute their right side (`evaluate`).
    """

    spelling: str
    node: type[ast.operator | ast.cmpop | ast.unaryop | ast.boolop]
    compute: Callable[..., Any]
    precedence: int


BINARY: Final[dict[str, Operator]] = {
    row.spelling: row
    for row in (
        Operator("or", ast.Or, lambda left, right: left or right, _OR),
        Operator("and", ast.And, lambda left, right: left and right, _AND),
        Operator("<", ast.Lt, operator.lt, _COMPARE),
        Operator("<=", ast.LtE, operator.le, _COMPARE),
        Operator("==", ast.Eq, operator.eq, _COMPARE),
        Operator("!=", ast.NotEq, operator.ne, _COMPARE),
        Operator(">", ast.Gt, operator.gt, _COMPARE),
        Operator(">=", ast.GtE, operator.ge, _COMPARE),
        Operator("|", ast.BitOr, operator.or_, 5),
        Operator("^", ast.BitXor, operator.xor, 6),
        Operator("&", ast.BitAnd, operator.and_, 7),
        Operator("<<", ast.LShift, operator.lshift, 8),
        Operator(">>", ast.RShift, operator.rshift, 8),
        Operator("+", ast.Add, operator.add, 9),
        Operator("-", ast.Sub, operator.sub, 9),
        Operator("*", ast.Mult, operator.mul, 10),
        Operator("/", ast.Div, operator.truediv, 10),
        Operator("//", ast.FloorDiv, operator.floordiv, 10),
        Operator("%", ast.Mod, operator.mod, 10),
        Operator("@", ast.MatMult, operator.matmul, 10),
        Operator("**", ast.Pow, operator.pow, _POWER),
    )
}

UNARY: Final[dict[str, Operator]] = {
    row.spelling: row
    for row in (
        Operator("not", ast.Not, operator.not_, _NOT),
        Operator("-", ast.USub, operator.neg, _UNARY),
        Operator("~", ast.Invert, operator.invert, _UNARY),
    )
}

_BINARY_OF_NODE: Final = {row.node: row.spelling for row in BINARY.values()}
_UNARY_OF_NODE: Final = {row.node: row.spelling for row in UNARY.values()}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def imported_for(names: Iterable[str]) -> list[str]:
    """The modules that have to be imported beside `torch` for functions of these names."""
    wanted = tuple(names)
    return [module for module in _IMPORTED if any(name.startswith(f"{module}.") for name in wanted)]


def is_name(text: str) -> bool:
    """Whether `text` may be the name of a value: an ASCII identifier, not reserved, no dunder."""
    return text not in RESERVED and is_keyword_name(text)


def is_keyword_name(text: str) -> bool:
    """Whether `text` may be the name of a keyword argument: an ASCII identifier, no dunder."""
    return bool(_NAME.fullmatch(text)) and not keyword.iskeyword(text) and not text.startswith("__")


# Printing


def print_expression(expr: Expr) -> str:
    """The canonical Python text of `expr`, with no more parentheses than its operators need."""
    return _print(expr, _CONDITIONAL)


def _print(expr: Expr, least: int) -> str:
    """The text of `expr`, in parentheses if its precedence is lower than `least`."""
    text, precedence = _text(expr)
    return text if precedence >= least else f"({text})"


def _text(expr: Expr) -> tuple[str, int]:
    match expr:
        case Name(id):
            return id, _ATOM
        case Literal(value):
            return _literal_text(value)
        case Constant(path):
            return path, _ATOM
        case Call(function, args, kwargs):
            callee = function
            if function.startswith(PREFIXES):
                callee = f"{_print(args[0], _ATOM)}.{function.partition('.')[2]}"
                args = args[1:]
            given = [_print(arg, _CONDITIONAL) for arg in args]
            given += [f"{name}={_print(value, _CONDITIONAL)}" for name, value in kwargs]
            return f"{callee}({', '.join(given)})", _ATOM
        case Index(value, index):
            return f"{_print(value, _ATOM)}[{_index_text(index)}]", _ATOM
        case Attribute(value, name):
            return f"{_print(value, _ATOM)}.{name}", _ATOM
        case Binary(op, left, right):
            precedence = BINARY[op].precedence
            # All operators associate to the left, except `**`, whose right side may be a bare unary, and comparisons,
            # which would chain.
            loose_left = precedence not in {_COMPARE, _POWER}
            left_text = _print(left, precedence if loose_left else precedence + 1)
            right_text = _print(right, _UNARY if precedence == _POWER else precedence + 1)
            return f"{left_text} {op} {right_text}", precedence
        case Unary(op, operand):
            precedence = UNARY[op].precedence
            return f"{op}{' ' if op == 'not' else ''}{_print(operand, precedence)}", precedence
        case Conditional(test, body, orelse):
            parts = (_print(body, _CONDITIONAL + 1), _print(test, _CONDITIONAL + 1), _print(orelse, _CONDITIONAL))
            return "{} if {} else {}".format(*parts), _CONDITIONAL
        case Sequence(items, is_list):
            text = ", ".join(_print(item, _CONDITIONAL) for item in items)
            return (f"[{text}]" if is_list else f"({text}{',' if len(items) == 1 else ''})"), _ATOM
        case Lambda(parameters, body):
            return f"lambda {', '.join(parameters)}: {_print(body, _CONDITIONAL)}", _CONDITIONAL
        case Apply(function, args):
            return f"{_print(function, _ATOM)}({', '.join(_print(arg, _CONDITIONAL) for arg in args)})", _ATOM
        case Slice() | Ellipsis_():
            return _index_text(expr), _ATOM


def _literal_text(value: float | bool | str | complex | None) -> tuple[str, int]:
    if isinstance(value, complex):
        return f"({value.real!r} + {value.imag!r}j)", _ATOM
    if isinstance(value, bool | str | None):
        return repr(value), _ATOM
    return repr(value), _UNARY if math.copysign(1, value) < 0 else _NUMBER


def _index_text(index: Expr) -> str:
    match index:
        case Slice(start, stop, step):
            bounds = ["" if bound is None else _print(bound, _CONDITIONAL) for bound in (start, stop, step)]
            return ":".join(bounds if step is not None else bounds[:2])
        case Ellipsis_():
            return "..."
        case Sequence(items, is_list=False) if items:
            return ", ".join(map(_index_text_of_item, items)) + ("," if len(items) == 1 else "")
        case _:
            return _print(index, _CONDITIONAL)


def _index_text_of_item(item: Expr) -> str:
    return _index_text(item) if isinstance(item, Slice | Ellipsis_) else _print(item, _CONDITIONAL)


# Reading


@dataclass(frozen=True, slots=True)
class Scope:
    """How an expression is parsed: the file's path for messages, and the functions and names that it may use.

    `parameters` are those of the functions around it. The parser adds those of each function to `ever`, because no
    later target may have their names.
    """

    path: str
    callables: Container[str]
    names: Container[str]
    parameters: frozenset[str] = frozenset()
    ever: set[str] = field(default_factory=set)


class _Everything:
    def __contains__(self, item: object) -> bool:
        return True


EVERYTHING: Final[Container[str]] = _Everything()
"""The callables or names of text that is ddefuzz's own, such as the templates of recipes."""


def parse_expression(source: str, path: str = "<template>", callables: Container[str] = EVERYTHING) -> Expr:
    """Parse a short text of ddefuzz's own. Any name may occur in it."""
    return read_expression(syntax.parse(source, path, mode="eval").body, Scope(path, callables, EVERYTHING))


def read_expression(node: ast.expr, scope: Scope) -> Expr:
    """The expression of a syntax node. Raises ProgramError for everything that a program may not contain.

    `-3` is `Literal(-3)` and `1.5 + 2j` is one complex literal. Everything else keeps its form.
    """

    def inner(child: ast.expr) -> Expr:
        return read_expression(child, scope)

    match node:
        case ast.Name(id):
            if id not in scope.names and id not in scope.parameters:
                refuse(node, scope.path, "an input or the target of an earlier step")
            return Name(id)
        case ast.Constant():
            return _read_constant(node, scope)
        case ast.Call():
            return _read_call(node, scope)
        case ast.Subscript(value, index):
            return Index(inner(value), _read_index(index, scope))
        case ast.Attribute(value, attr):
            if (path := _dotted(node)) is not None:
                if path not in CONSTANTS:
                    refuse(node, scope.path, "a dtype, layout, memory format or number of torch, or a call")
                return Constant(path)
            if attr not in ATTRIBUTES:
                refuse(node, scope.path, f"one of the attributes {', '.join(sorted(ATTRIBUTES))}, or a call")
            return Attribute(inner(value), attr)
        case ast.BoolOp(op, values):
            return reduce(partial(Binary, _BINARY_OF_NODE[type(op)]), map(inner, values))
        case ast.BinOp(left, op, right):
            if type(op) not in _BINARY_OF_NODE:
                refuse(node, scope.path, f"one of the operators {' '.join(BINARY)}")
            return _fold_complex(Binary(_BINARY_OF_NODE[type(op)], inner(left), inner(right)))
        case ast.Compare(left, [comparison], [right]):
            if type(comparison) not in _BINARY_OF_NODE:
                refuse(node, scope.path, f"one of the operators {' '.join(BINARY)}")
            return Binary(_BINARY_OF_NODE[type(comparison)], inner(left), inner(right))
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)) if not isinstance(value, bool):
            literal = _read_constant(node.operand, scope)
            return Literal(-value) if isinstance(literal, Literal) else literal
        case ast.UnaryOp(op, operand):
            if type(op) not in _UNARY_OF_NODE:
                refuse(node, scope.path, f"one of the operators {' '.join(UNARY)}")
            return Unary(_UNARY_OF_NODE[type(op)], inner(operand))
        case ast.IfExp(test, body, orelse):
            return Conditional(inner(test), inner(body), inner(orelse))
        case ast.Tuple(items) | ast.List(items):
            return Sequence(tuple(map(inner, items)), isinstance(node, ast.List))
        case _:
            refuse(node, scope.path, "a call, index, operator, literal or name")


def refuse(node: ast.AST, path: str, expected: str) -> NoReturn:
    """Raise the ProgramError with the position and the source of `node`."""
    try:
        text = " ".join(ast.unparse(node).split())
    except ValueError:  # Python cannot print it: an int of thousands of digits, a character of a string within `f""`
        text = type(node).__name__
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    raise ProgramError(path, getattr(node, "lineno", 1), repr(shown), expected)


def _read_constant(node: ast.expr, scope: Scope) -> Expr:
    value = node.value if isinstance(node, ast.Constant) else ...
    match value:
        case bool() | None:
            return Literal(value)
        case int():
            if value > MAX_INT:
                raise ProgramError(scope.path, node.lineno, "an int above 2**63", "an int of 64 bits")
            return Literal(value)
        case float():
            if not math.isfinite(value):
                refuse(node, scope.path, "a finite float, or torch.inf")
            return Literal(value)
        case complex():
            if not cmath.isfinite(value):
                refuse(node, scope.path, "a finite complex number")
            return Literal(value)
        case str():
            if len(value) > MAX_STRING:
                refuse(node, scope.path, f"a string of at most {MAX_STRING} characters")
            return Literal(value)
        case _:
            refuse(node, scope.path, "a number, string, bool or None")


def _read_call(node: ast.Call, scope: Scope) -> Expr:
    if isinstance(node.func, ast.Call) and not is_mapped(node.func):
        if node.keywords:
            refuse(node, scope.path, "no keyword arguments in a call of what a call returns")
        function = _read_call(node.func, scope)
        assert isinstance(function, Call | Apply)
        return Apply(function, tuple(_read_argument(arg, scope) for arg in node.args))
    name, args = _read_function(node, scope)
    if name not in scope.callables:
        raise ProgramError(scope.path, node.lineno, f"a call of {name!r}", "a function of the catalogue")
    kwargs: list[tuple[str, Expr]] = []
    for keyword_node in node.keywords:
        if keyword_node.arg is None or not is_keyword_name(keyword_node.arg):
            refuse(node, scope.path, "keyword arguments by name, without **")
        if keyword_node.arg in dict(kwargs):
            refuse(node, scope.path, f"the keyword argument {keyword_node.arg} once")
        kwargs.append((keyword_node.arg, _read_argument(keyword_node.value, scope)))
    call = Call(name, args + tuple(_read_argument(arg, scope) for arg in node.args), tuple(kwargs))
    if is_made_before(call) and scope.names is not EVERYTHING and not is_settled(call):
        refuse(node, scope.path, "a module whose settings are constants")
    if name.startswith(MODULE_PREFIX) and not is_made_before(call):
        refuse(node, scope.path, "a module of torch.nn before the method")
    return call


def _read_argument(node: ast.expr, scope: Scope) -> Expr:
    """An argument of a call, the only place of a function."""
    if not isinstance(node, ast.Lambda):
        return read_expression(node, scope)
    given = node.args
    if given.posonlyargs or given.vararg or given.kwonlyargs or given.kwarg or given.defaults:
        refuse(node, scope.path, "plain parameters without defaults")
    names = tuple(argument.arg for argument in given.args)
    for name in names:
        is_taken = scope.names is not EVERYTHING and name in scope.names
        if not is_name(name) or is_taken or name in scope.parameters or names.count(name) > 1:
            raise ProgramError(scope.path, node.lineno, f"the parameter {name!r}", "a new name, not reserved")
    scope.ever.update(names)
    return Lambda(names, read_expression(node.body, replace(scope, parameters=scope.parameters.union(names))))


def _read_function(node: ast.Call, scope: Scope) -> tuple[str, tuple[Expr, ...]]:
    """The catalogue's name of the called function, and the receiver if it is a method."""
    match node.func:
        case ast.Name(id):
            return id, ()
        case ast.Call(_, [inner]) as mapped if is_mapped(mapped):
            return f"{MAPPED_PREFIX}{_dotted(inner)})", ()
        case ast.Attribute(value, attr) as function:
            if (path := _dotted(function)) is not None:
                return path, ()
            method = f"{OTHER_METHODS.get(attr, METHOD_PREFIX)}{attr}"
            # The name is looked at before the receiver, so that the message names the outermost call.
            return method, (read_expression(value, scope),) if method in scope.callables else ()
        case _:
            refuse(node, scope.path, "a call of a function or method by name")


def is_mapped(node: ast.Call) -> bool:
    """Whether a call is `torch.vmap` of a function of torch: its name is a function of the catalogue."""
    match node:
        case ast.Call(ast.Attribute(ast.Name("torch"), "vmap"), [ast.Attribute() as inner], []):
            return _dotted(inner) is not None
        case _:
            return False


def _dotted(node: ast.expr) -> str | None:
    """`torch.a.b` as text; None if it does not start at one of `ROOTS`, or reads an attribute of a constant."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in ROOTS or (len(parts) > 1 and f"torch.{parts[-1]}" in CONSTANTS):
        return None
    return ".".join((node.id, *reversed(parts)))


def _read_index(node: ast.expr, scope: Scope) -> Expr:
    match node:
        case ast.Tuple(items) if items:
            return Sequence(tuple(_read_index_item(item, scope) for item in items))
        case _:
            return _read_index_item(node, scope)


def _read_index_item(node: ast.expr, scope: Scope) -> Expr:
    match node:
        case ast.Slice(lower, upper, step):
            return Slice(*(None if bound is None else read_expression(bound, scope) for bound in (lower, upper, step)))
        case ast.Constant(value) if value is ...:
            return Ellipsis_()
        case _:
            return read_expression(node, scope)


def _fold_complex(expr: Binary) -> Expr:
    match expr:
        case Binary("+", Literal(float() as real), Literal(complex() as imaginary)) if imaginary.real == 0:
            return Literal(complex(real, imaginary.imag))
        case Binary("+", Literal(float() as real), Unary("-", Literal(complex() as imaginary))) if imaginary.real == 0:
            return Literal(complex(real, -imaginary.imag))
        case _:
            return expr
