"""Forms of a program that evaluate other guards: which dims are unbacked and why, layouts, out=, backward.

Pure functions of a program. They say what is worth trying, not what is legal. The caller tries the candidates in
eager and takes the first one of a name that runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice, product
from math import isfinite
from typing import Final, NamedTuple

from ddefuzz.ops.opinfo import OPINFO, TAKES_OUT
from ddefuzz.program.expressions import METHOD_PREFIX
from ddefuzz.program.model import (
    Attribute,
    Binary,
    Call,
    Dim,
    Expr,
    Index,
    Input,
    Literal,
    Name,
    Program,
    Recipe,
    Sequence,
    Step,
    substitute,
    walk,
    with_object,
)
from ddefuzz.program.recipes import FLOATS, LAYOUTS, fault_of

MAX_DIMS: Final = 6
"""How many dims of a program are made unbacked one at a time."""


class Variant(NamedTuple):
    """A form by its name: that of a dim (`dim x0.1`), of a layout, or of a row of `FORMS`."""

    name: str
    program: Program


def variants(program: Program, kinds: Iterable[str] | None = None) -> Iterator[Variant]:
    """The forms of a program with static dims, of some `kinds` (names of `FORMS`) or of all.

    Each is a well-formed program. Candidates of one name are adjacent.
    """
    for kind in FORMS if kinds is None else kinds:
        yield from (variant for variant in FORMS[kind](program) if is_well_formed(variant.program))


def is_well_formed(program: Program) -> bool:
    """Whether every input can be made."""
    return all(fault_of(item) is None for item in program.inputs)


# Which dims are unbacked


def unbacked(program: Program, chosen: Callable[[Input, int], bool]) -> Program:
    """The program with every chosen dim (an input and the dim's position) unbacked, each with its own symbol."""
    names = (f"u{number}" for number in range(10_000))

    def made(item: Input) -> Input:
        shape = (Dim(dim.size, next(names)) if chosen(item, at) else dim for at, dim in enumerate(item.shape))
        return replace(item, shape=tuple(shape))

    return replace(program, inputs=tuple(map(made, program.inputs)))


def all_unbacked(program: Program) -> Program:
    """Every dim of size 2 or more unbacked: what a user marks, and what upstream's own test does."""
    return unbacked(program, lambda item, at: item.shape[at].size >= 2)


def _static(program: Program) -> Iterator[Variant]:
    yield Variant("static", program)


def _all(program: Program) -> Iterator[Variant]:
    if (made := all_unbacked(program)) != program:
        yield Variant("all", made)


def _every(program: Program) -> Iterator[Variant]:
    """Sizes 0 and 1 too, where broadcasting is decided."""
    made = unbacked(program, lambda _item, _at: True)
    if made not in (program, all_unbacked(program)):
        yield Variant("every", made)


def _single(program: Program) -> Iterator[Variant]:
    places = [(item.name, at) for item in program.inputs for at in range(len(item.shape))]
    for name, at in places[:MAX_DIMS]:
        yield Variant(f"dim {name}.{at}", unbacked(program, lambda item, dim, of=(name, at): (item.name, dim) == of))  # type: ignore[misc]


def _shared(program: Program) -> Iterator[Variant]:
    """Dims of one size share one symbol."""
    sizes = Counter(dim.size for item in program.inputs for dim in item.shape if dim.size >= 2)
    if not any(count > 1 for count in sizes.values()):
        return
    symbols = {size: f"u{number}" for number, size in enumerate(sizes)}

    def made(item: Input) -> Input:
        return replace(item, shape=tuple(Dim(dim.size, symbols.get(dim.size)) for dim in item.shape))

    yield Variant("shared", replace(program, inputs=tuple(map(made, program.inputs))))


# Unbacked from data


def _mask(program: Program) -> Iterator[Variant]:
    """The first dims of one size get as many elements as a mask has trues."""
    for size in _first_sizes(program):
        keep = Input("keep", "bool", (Dim(size),), Recipe("trues", (size,)))
        indices = Call("Tensor.squeeze", (Call("Tensor.nonzero", (Name("keep"),)), Literal(1)))
        steps = (Step(("kept",), indices),)
        yield Variant("mask", _from_data(program, keep, steps, size, lambda x: _call("index_select", x, 0, "kept")))


def _item(program: Program) -> Iterator[Variant]:
    """The first dims of one size are cut to a number from a tensor."""
    for size in _first_sizes(program):
        held = Input("held", "int64", (Dim(1),), Recipe("sizes", (size,)))
        number = Name("length")
        steps = (
            Step(("length",), Call("Tensor.item", (Name("held"),))),
            Step((), Call("torch._check", (Binary(">=", number, Literal(0)),))),
            Step((), Call("torch._check", (Binary("<=", number, Literal(size)),))),
        )
        yield Variant("item", _from_data(program, held, steps, size, lambda x: _call("narrow", x, 0, 0, "length")))


def _first_sizes(program: Program) -> list[int]:
    """The first of the first dims' sizes of 2 or more, if any."""
    return [item.shape[0].size for item in program.inputs if item.shape and item.shape[0].size >= 2][:1]


def _from_data(
    program: Program, data: Input, steps: tuple[Step, ...], size: int, cut: Callable[[str], Expr]
) -> Program:
    """Apply `cut` to inputs whose first dim has `size`. The data input is last: values depend on their position."""
    of_size = [item.name for item in program.inputs if item.shape and item.shape[0].size == size]
    names: dict[str, Expr] = {name: Name(f"{name}_cut") for name in of_size}
    cuts = tuple(Step((f"{name}_cut",), cut(name)) for name in of_size)
    rest = tuple(replace(step, value=substitute(step.value, names)) for step in program.steps)
    return replace(
        program,
        inputs=(*program.inputs, data),
        steps=(*steps, *cuts, *rest),
        returns=substitute(program.returns, names),
    )


def _call(method: str, *args: str | int) -> Call:
    given = tuple(Name(arg) if isinstance(arg, str) else Literal(arg) for arg in args)
    return Call(f"Tensor.{method}", given)


# Numbers from data

MOST_NUMBERS: Final = 3
"""How many numbers of a call are made to come from data, one at a time."""


def _number(program: Program) -> Iterator[Variant]:
    """A number of the last call is read from a tensor: a SymInt or a SymFloat."""
    for place, held, literal in _numbers(program):
        read = (Step(("read",), Call("Tensor.item", (Name("held"),))),)
        yield Variant(f"number {place}", _with_number(program, held, literal, read, Name("read")))


def _scalar(program: Program) -> Iterator[Variant]:
    """A number of the last call is a tensor without dims."""
    for place, held, literal in _numbers(program):
        yield Variant(f"scalar {place}", _with_number(program, held, literal, (), Name("held")))


def _numbers(program: Program) -> Iterator[tuple[int, Input, Literal]]:
    """Numbers in the last call, also in its shapes and inner calls, each with its position and a tensor that holds it.

    Ints that may be a dim are left out: their values do not come from data in what users write.
    """
    rank = max((len(item.shape) for item in program.inputs), default=0)
    match program.steps[-1].value:
        case Call(_, args, kwargs):
            parts = (*args, *(value for name, value in kwargs if "dim" not in name))
        case _:
            return
    numbers = (part for given in parts for part in walk(given) if isinstance(part, Literal))
    wanted = (part for part in numbers if _is_from_data(part.value, rank))
    for place, part in enumerate(islice(wanted, MOST_NUMBERS)):
        dtype, kind = ("int64", "sizes") if isinstance(part.value, int) else ("float32", "values")
        yield place, Input("held", dtype, (), Recipe(kind, (part.value,))), part  # type: ignore[arg-type]


def _is_from_data(value: object, rank: int) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and value >= max(rank, 1)


def _with_number(program: Program, held: Input, literal: Literal, read: tuple[Step, ...], number: Expr) -> Program:
    """The data input is last: values depend on their position."""
    made = _with_last(program, read, with_object(program.steps[-1].value, literal, number))
    return all_unbacked(replace(made, inputs=(*program.inputs, held)))


# Layouts


def _layouts(program: Program) -> Iterator[Variant]:
    for layout in LAYOUTS:
        made = replace(program, inputs=tuple(_laid_out(item, layout) for item in program.inputs))
        if made != program:
            yield Variant(layout, all_unbacked(made))


def _laid_out(item: Input, layout: str) -> Input:
    row = LAYOUTS[layout]
    return replace(item, layout=layout) if row.fits(len(item.shape)) else item


# DTensors

MOST_PLACED: Final = 6
"""How many of the ways to place the inputs of a program are tried."""


def placed(program: Program) -> Iterator[Variant]:
    """The program with its inputs as DTensors on a mesh of one dim, all dims unbacked, by the names of placements.

    What torch's own test tries, too: each input is whole, or sharded over one of its dims
    (torch/testing/_internal/distributed/_tensor/common_dtensor.py, `DTensorConverter`). All inputs are placed alike
    first, as far as their ranks allow, then in all other ways; the first input changes fastest.
    """
    if not program.inputs:
        return
    choices = [["replicate", *(f"shard{dim}" for dim in range(min(len(item.shape), 3)))] for item in program.inputs]
    alike = (tuple(name if name in one else "replicate" for one in choices) for name in max(choices, key=len))
    others = (way[::-1] for way in product(*reversed(choices)))
    for way in list(dict.fromkeys((*alike, *islice(others, 2 * MOST_PLACED))))[:MOST_PLACED]:
        inputs = tuple(replace(item, layout=name) for item, name in zip(program.inputs, way, strict=True))
        yield Variant(", ".join(way), all_unbacked(replace(program, inputs=inputs)))


# Other forms of the call


def _out(program: Program) -> Iterator[Variant]:
    """The last call once more, into tensors like its results."""
    match program.steps[-1]:
        case Step((target,), Call(function, args, kwargs)) if function in TAKES_OUT and "out" not in dict(kwargs):
            results: Iterable[tuple[Expr, ...]] = (
                (Name(target),),
                *(tuple(Index(Name(target), Literal(at)) for at in range(number)) for number in (2, 3)),
            )
            for parts in results:
                like: tuple[Expr, ...] = tuple(Call("torch.empty_like", (part,)) for part in parts)
                out = like[0] if len(like) == 1 else Sequence(like)
                again = Step(("written",), Call(function, args, (*kwargs, ("out", out))))
                made = replace(program, steps=(*program.steps, again), returns=Name("written"))
                yield Variant("out", all_unbacked(made))


def _method(program: Program) -> Iterator[Variant]:
    for call in as_method(program, ""):
        yield Variant("method", all_unbacked(_with_last(program, (), call)))


def _in_place(program: Program) -> Iterator[Variant]:
    """The in-place form, on a copy of the first argument."""
    for call in as_method(program, "_"):
        copy = Step(("changed",), Call("Tensor.clone", call.args[:1]))
        changing = replace(call, args=(Name("changed"), *call.args[1:]))
        yield Variant("in-place", all_unbacked(_with_last(program, (copy,), changing)))


def as_method(program: Program, suffix: str) -> Iterator[Call]:
    """The last call as the method of its name and suffix, if the table has it."""
    match program.steps[-1].value:
        case Call(function, (Name(), *_) as args, kwargs) if not function.startswith(METHOD_PREFIX):
            method = f"{METHOD_PREFIX}{function.rpartition('.')[2]}{suffix}"
            if method in OPINFO:
                yield Call(method, tuple(args), kwargs)


def _with_last(program: Program, before: tuple[Step, ...], value: Expr) -> Program:
    last = replace(program.steps[-1], value=value)
    return replace(program, steps=(*program.steps[:-1], *before, last))


def _backward(program: Program) -> Iterator[Variant]:
    """The gradient of the sum of the result, or of its first part, with respect to every float input."""
    inputs = tuple(replace(item, requires_grad=item.dtype in FLOATS) for item in program.inputs)
    wanted: tuple[Expr, ...] = tuple(Name(item.name) for item in inputs if item.requires_grad)
    if not wanted:
        return
    result = program.returns
    for part in (result, Attribute(result, "real"), Index(result, Literal(0))):
        total = Step(("total",), Call("Tensor.sum", (part,)))
        unused = (("allow_unused", Literal(True)),)
        grad = Step(("grads",), Call("torch.autograd.grad", (Name("total"), Sequence(wanted, is_list=True)), unused))
        made = replace(program, inputs=inputs, steps=(*program.steps, total, grad), returns=Name("grads"))
        yield Variant("backward", all_unbacked(made))


FORMS: Final[dict[str, Callable[[Program], Iterator[Variant]]]] = {
    "static": _static,
    "all": _all,
    "every": _every,
    "single": _single,
    "shared": _shared,
    "mask": _mask,
    "item": _item,
    "number": _number,
    "scalar": _scalar,
    "layout": _layouts,
    "out": _out,
    "method": _method,
    "in-place": _in_place,
    "backward": _backward,
}
"""The kinds of forms, in the order in which they are tried."""

UNBACKED_FORMS: Final = tuple(form for form in FORMS if form != "static")
"""Those with something unbacked."""
