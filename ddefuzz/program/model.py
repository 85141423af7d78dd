"""Records that make up a program: an immutable expression tree, its steps and its inputs.

Nothing here imports torch. The text form of these records is Python (`text`). Recipes describe the values of inputs
(`inputs`), and `evaluate` runs steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

DEFAULT_UNBACKED_SIZE = 6
"""The example size of an input dim written `u0` without a size. `u0=3` gives one."""


@dataclass(frozen=True, slots=True)
class Name:
    """An input, or the target of an earlier step."""

    id: str


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A Python constant. Floats are finite (`torch.inf` and `torch.nan` are `Constant`s).

    Equality is by type and text, because in Python `1 == True == 1.0` and `-0.0 == 0.0`, but in a program these
    differ.
    """

    value: int | float | bool | str | complex | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str]:
        return type(self.value).__name__, repr(self.value)


@dataclass(frozen=True, slots=True)
class Constant:
    """A named value of torch: a dtype, layout, memory format or number, such as `torch.float32`."""

    path: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list or tuple display."""

    items: tuple[Expr, ...]
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Slice:
    """`start:stop:step` inside an index; a missing bound is None."""

    start: Expr | None = None
    stop: Expr | None = None
    step: Expr | None = None


@dataclass(frozen=True, slots=True)
class Ellipsis_:  # noqa: N801 - Python has taken the bare name
    """`...` inside an index."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a catalogue function.

    `function` is the catalogue's name: `torch.chunk`, `torch.nn.functional.pad`, `int`, or `Tensor.view` for a
    method. The receiver of a method is `args[0]`, and it prints as `x.view(...)`.
    """

    function: str
    args: tuple[Expr, ...] = ()
    kwargs: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True, slots=True)
class Index:
    """`value[index]`; several indices are a tuple `Sequence`."""

    value: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class Attribute:
    """A read of one of the allowed attributes: `x.shape`, `x.T`."""

    value: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, bitwise or comparison operator: `a + b`, `a // b`, `a >= b`. `op` is its Python spelling."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Unary:
    """`-a`, `~a` or `not a`."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Conditional:
    """`body if test else orelse`, the only kind of branch: a Python branch of the user's own code."""

    test: Expr
    body: Expr
    orelse: Expr


@dataclass(frozen=True, slots=True)
class Lambda:
    """A function that a call takes: a branch of `torch.cond`, the body of a loop, what `torch.func.grad` derives.

    It may read names of the program around it. No input, target or enclosing function has the name of a parameter, so
    a substitution captures nothing. Two functions that are beside each other may have the same parameters.
    """

    parameters: tuple[str, ...]
    body: Expr


@dataclass(frozen=True, slots=True)
class Apply:
    """A call of what a call returns: `torch.func.grad(lambda a: a.sum())(x)`, `torch.no_grad()(lambda a: a + 1)(x)`.

    The function is a name only where modules are variables (`modules.hoisted`); the text of a case has calls.
    """

    function: Call | Apply | Name
    args: tuple[Expr, ...]


Expr: TypeAlias = (
    Name
    | Literal
    | Constant
    | Sequence
    | Slice
    | Ellipsis_
    | Call
    | Index
    | Attribute
    | Binary
    | Unary
    | Conditional
    | Lambda
    | Apply
)


@dataclass(frozen=True, slots=True)
class Step:
    """One statement: `target = value`, `a, b = value` (`unpack`), or a bare call if there is no target."""

    targets: tuple[str, ...]
    value: Expr
    unpack: bool = False


@dataclass(frozen=True, slots=True)
class Dim:
    """One dim of an input: its example size and, if it is to be unbacked, its symbol (`u0`).

    Dims with the same symbol share one unbacked size.
    """

    size: int
    symbol: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the values of an input are made: `normal`, `trues(4)`, `sizes(3, 4)`. `recipes` lists the kinds."""

    kind: str
    args: tuple[int | float | bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor argument. `dtype` is its name in torch (`float32`). `layout` is one of `recipes.ARRANGED`."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    recipe: Recipe
    layout: str = "contiguous"
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a capture, by its name in `options.OPTIONS`: `dynamic`, or `min(u0=2)` for the dims of a symbol."""

    name: str
    symbol: str | None = None
    number: int | None = None

    def __str__(self) -> str:
        if self.symbol is None:
            return self.name
        return f"{self.name}({self.symbol}{'' if self.number is None else f'={self.number}'})"


@dataclass(frozen=True, slots=True)
class Program:
    """A straight-line function over torch functions: one test case.

    Options of symbols that no input has are dropped, so that a program whose inputs are replaced is a program.
    """

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    returns: Expr
    options: tuple[Option, ...] = ()

    def __post_init__(self) -> None:
        if self.options:
            symbols = {dim.symbol for item in self.inputs for dim in item.shape} | {None}
            options = tuple(option for option in self.options if option.symbol in symbols)
            object.__setattr__(self, "options", options)


def children(expr: Expr) -> Iterator[Expr]:
    """The direct subexpressions, left to right."""
    match expr:
        case Sequence(items):
            yield from items
        case Slice(start, stop, step):
            yield from (part for part in (start, stop, step) if part is not None)
        case Call(_, args, kwargs):
            yield from args
            yield from (value for _, value in kwargs)
        case Lambda(_, body):
            yield body
        case Apply(function, args):
            yield function
            yield from args
        case Name() | Literal() | Constant() | Ellipsis_():
            return
        case _:
            for field in fields(expr):
                value = getattr(expr, field.name)
                if not isinstance(value, str):
                    yield value


def walk(expr: Expr) -> Iterator[Expr]:
    """`expr` and all of its subexpressions, outermost first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def walk_outside(expr: Expr) -> Iterator[Expr]:
    """`expr` and its subexpressions that have a value where `expr` has one: all but what is inside of a `Lambda`."""
    yield expr
    if not isinstance(expr, Lambda):
        for child in children(expr):
            yield from walk_outside(child)


def parameters_in(expr: Expr) -> frozenset[str]:
    """The parameters of the functions in `expr`."""
    return frozenset(name for node in walk(expr) if isinstance(node, Lambda) for name in node.parameters)


def names_in(expr: Expr) -> frozenset[str]:
    """The inputs and targets that `expr` reads."""
    read = frozenset(node.id for node in walk(expr) if isinstance(node, Name))
    return read - parameters_in(expr)


def mapped(expr: Expr, inner: Callable[[Expr], Expr]) -> Expr:
    """`expr` with `inner` applied to each of its direct subexpressions. A negated number becomes a number."""
    match expr:
        case Name() | Literal() | Constant() | Ellipsis_():
            return expr
        case Sequence(items):
            return replace(expr, items=tuple(map(inner, items)))
        case Slice(start, stop, step):
            return Slice(*(None if part is None else inner(part) for part in (start, stop, step)))
        case Call(_, args, kwargs):
            return replace(expr, args=tuple(map(inner, args)), kwargs=tuple((k, inner(v)) for k, v in kwargs))
        case Index(value, index):
            return Index(inner(value), inner(index))
        case Attribute(value):
            return replace(expr, value=inner(value))
        case Binary(_, left, right):
            return replace(expr, left=inner(left), right=inner(right))
        case Unary(op, operand):
            changed = inner(operand)
            if op == "-" and isinstance(changed, Literal) and type(changed.value) in (int, float):
                return Literal(-changed.value)  # type: ignore[operator]
            return Unary(op, changed)
        case Conditional(test, body, orelse):
            return Conditional(inner(test), inner(body), inner(orelse))
        case Lambda(parameters, body):
            return Lambda(parameters, inner(body))
        case Apply(function, args):
            called = inner(function)
            return Apply(called if isinstance(called, Call | Apply | Name) else function, tuple(map(inner, args)))


def with_object(expr: Expr, old: Expr, new: Expr) -> Expr:
    """`expr` with the object `old` replaced. Equal objects are kept."""
    return new if expr is old else mapped(expr, lambda child: with_object(child, old, new))


def substitute(expr: Expr, values: dict[str, Expr]) -> Expr:
    """`expr` with every `Name` in `values` replaced."""
    if isinstance(expr, Name):
        return values.get(expr.id, expr)
    return mapped(expr, lambda child: substitute(child, values))


def expressions(program: Program) -> Iterator[Expr]:
    """The steps' values and what is returned, in order."""
    yield from (step.value for step in program.steps)
    yield program.returns


def functions_in(program: Program) -> tuple[str, ...]:
    """The catalogue functions that the program calls, in order of first use."""
    names: dict[str, None] = {}
    for expr in expressions(program):
        for node in walk(expr):
            if isinstance(node, Call):
                names.setdefault(node.function)
    return tuple(names)


def writes(step: Step) -> bool:
    """Whether a step may write into a tensor that has other names."""
    calls = [node for node in walk(step.value) if isinstance(node, Call)]
    return not step.targets or any(
        call.function.endswith("_") or any(name in {"out", "inplace"} for name, _ in call.kwargs) for call in calls
    )


def written_numbers(program: Program) -> bool:
    """Whether the program may write into an input without dims, or into what it made of one (not of its `.item()`)."""
    names = {item.name for item in program.inputs if not item.shape}
    for step in (*program.steps, Step(("",), program.returns)):
        if names & names_in(step.value):
            if writes(step):
                return True
            read = any(isinstance(node, Call) and node.function == "Tensor.item" for node in walk(step.value))
            names |= set() if read else set(step.targets)
    return False
