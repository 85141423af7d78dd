"""The form of a catalogue entry: one call written as Python, and the rules for filling each name in it.

An op is one row: `op("torch.narrow(x, d, a, n)", x=Tensor(1), d=DimOf("x"), a=Size(0, high=At("x", "d")),
n=Size(...))`. The template is text in the language of programs, so calls, subscripts, arithmetic and branches are
written the same way. Slots are filled in the order given, so a slot may refer to earlier ones by name. A slot
describes what is worth trying, not what is legal. torch is the type checker: a call that raises is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from ddefuzz.program.expressions import parse_expression
from ddefuzz.program.model import Call, Constant, Expr, walk
from ddefuzz.program.model import Literal as Value

Kind: TypeAlias = Literal["float", "int", "bool", "complex", "number", "any"]
"""Families of dtypes; `number` is float or int."""


@dataclass(frozen=True, slots=True)
class At:
    """The size of a dim of an earlier tensor slot, plus `plus`; `dim` is a number or the name of a `DimOf` slot."""

    slot: str
    dim: int | str
    plus: int = 0


Extent: TypeAlias = int | str | At
"""A number, the name of an earlier slot that is a size, or the size of a dim."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor, preferably one that has an unbacked size.

    `shape` requires exactly these sizes, `like` the shape of an earlier slot, and `broadcast` a shape that
    broadcasts with it. If no such tensor exists yet, one is made. `shape` overrides the ranks. `others` are shapes
    that may take its place.
    """

    min_rank: int = 0
    max_rank: int = 4
    kind: Kind = "float"
    shape: tuple[Extent, ...] | None = None
    like: str | None = None
    broadcast: str | None = None
    max_numel: int = 512
    others: tuple[tuple[Extent, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Indices:
    """An int64 tensor with values in [0, `below`), preferably of a data-dependent length, or without dims."""

    below: Extent
    min_rank: int = 1
    max_rank: int = 1
    shape: tuple[Extent, ...] | None = None
    like: str | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """An int in [`low`, `high`], preferably computed from unbacked sizes; without `high` at most 24."""

    low: Extent = 0
    high: Extent | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """A literal int in [`low`, `high`]."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some expressions."""

    options: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class DimOf:
    """A literal dim of an earlier tensor slot, in [-r, r) with r its rank plus `extra`."""

    slot: str
    extra: int = 0


@dataclass(frozen=True, slots=True)
class DimsOf:
    """A tuple of distinct dims of an earlier tensor slot: some of them, or all in some order (`permute`)."""

    slot: str
    permute: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """A tuple of sizes whose product is at most 512."""

    min_rank: int = 1
    max_rank: int = 3


@dataclass(frozen=True, slots=True)
class ReshapeOf:
    """A shape with as many elements as an earlier slot: dims merged, split, swapped, reordered or factored otherwise,
    one of them possibly -1.

    With `dim`, a shape with as many elements as that dim alone.
    """

    slot: str
    dim: str | None = None


@dataclass(frozen=True, slots=True)
class ExpandOf:
    """A shape that an earlier slot can be expanded to."""

    slot: str


@dataclass(frozen=True, slots=True)
class SplitOf:
    """A list of sizes that add up to the size of a dim of an earlier slot; with `bounds`, positions in it."""

    slot: str
    dim: str
    bounds: bool = False


@dataclass(frozen=True, slots=True)
class Data:
    """An input whose values decide sizes: a bool `mask`, int64 `sizes`, or int64 values, some `distinct`."""

    recipe: Literal["mask", "sizes", "distinct"]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A float input of these sizes. Each of the dims `unbacked` has its own symbol. With `gradient`, its gradient is
    computed.

    `layout` is one of `recipes.LAYOUTS`.
    """

    shape: tuple[int, ...]
    unbacked: tuple[int, ...] = ()
    layout: str = "contiguous"
    gradient: bool = True


@dataclass(frozen=True, slots=True)
class Body:
    """What a function of the template computes, drawn as a few steps: an expression of the function's parameters.

    `parameters` are their names, each with a template of a value that it has in a call. The result has the shape and
    dtype of the template `shape`, the dtype and rank of the result of an earlier slot `like`, or is one float
    (`scalar`). It shares no memory with the parameters, because torch's control flow does not allow that.
    """

    parameters: tuple[tuple[str, str], ...]
    shape: str | None = None
    like: str | None = None
    scalar: bool = False


Slot: TypeAlias = (
    Tensor
    | Indices
    | Size
    | Number
    | Choice
    | DimOf
    | DimsOf
    | Shape
    | ReshapeOf
    | ExpandOf
    | SplitOf
    | Data
    | Leaf
    | Body
)


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One way to call a function of the catalogue.

    `stops` marks a call that usually stops capture on an unbacked size. The generator draws it mainly as the op
    in focus, so that programs get long enough to reach other sites.
    """

    template: str
    slots: tuple[tuple[str, Slot], ...]
    stops: bool = False

    @property
    def callables(self) -> tuple[str, ...]:
        """The catalogue names that the template calls."""
        return callables_in(self.template)

    def __str__(self) -> str:
        return self.template


def op(template: str, /, *, stops: bool = False, **slots: Slot) -> OpSpec:
    """The op written as `template`, with its names filled by `slots`."""
    return OpSpec(template, tuple(slots.items()), stops)


def choice(*options: int | float | bool | str | Constant | None) -> Choice:
    """One of these literals. A constant of torch is given as a `Constant`."""
    return Choice(tuple(option if isinstance(option, Constant) else Value(option) for option in options))


def body(*, shape: str | None = None, like: str | None = None, scalar: bool = False, **parameters: str) -> Body:
    """What a function of these parameters computes."""
    return Body(tuple(parameters.items()), shape, like, scalar)


FLAG = choice(False, True)


@cache
def callables_in(template: str) -> tuple[str, ...]:
    """The catalogue names that a template calls: `torch.chunk`, `int`, `Tensor.view`, `torch.vmap(torch.cat)`."""
    calls = (node for node in walk(parse_expression(template)) if isinstance(node, Call))
    return tuple(dict.fromkeys(call.function for call in calls))
