"""Order programs so that different ones come first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ddefuzz.program.model import Call, Literal, Name, Program, walk


def spread(programs: Iterable[Program]) -> list[Program]:
    """Programs in an order that puts unlike ones first: one of each kind, then a second of each, and so on."""
    kinds: dict[object, list[Program]] = defaultdict(list)
    for program in programs:
        kinds[_kind(program)].append(program)
    rounds = max(map(len, kinds.values()), default=0)
    return [group[turn] for turn in range(rounds) for group in kinds.values() if turn < len(group)]


def _kind(program: Program) -> object:
    """What a guard may depend on: ranks, empty and one-element dims, layouts, and which arguments are given in
    which form.
    """
    inputs = tuple((item.dtype, item.layout, tuple(min(dim.size, 2) for dim in item.shape)) for item in program.inputs)
    return inputs, tuple(_shape_of_call(node) for step in program.steps for node in walk(step.value))


def _shape_of_call(node: object) -> str:
    match node:
        case Call(function, args, kwargs):
            return f"{function}({len(args)}, {', '.join(name for name, _ in kwargs)})"
        case Literal(str() | bool() | None as value):
            return repr(value)
        case Name():
            return "x"
        case Literal(value):
            return type(value).__name__
        case _:
            return type(node).__name__
