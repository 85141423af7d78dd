"""Example arguments for an op that has none, drawn from its schema by trying what the real kernel takes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from typing import Any, Final

import torch

from ddefuzz.custom_ops.arguments import Arguments
from ddefuzz.custom_ops.log import TestedOp

SHAPES: Final = ((4, 5), (5, 4), (5,), (2, 3, 8, 8), (3, 4, 5), ())
DTYPES: Final = (torch.float32, torch.int64, torch.bool)
MOST_TRIES: Final = 400
OTHER_INTS: Final = (1, 2, 3, 0)
LEFT_OUT: Final = object()


def drawn_arguments(tested: TestedOp) -> Arguments | None:
    """Arguments that the real kernel takes. None if none of those tried are taken."""
    return next(filter(tested.takes, islice(_candidates(tested), MOST_TRIES)), None)


def _candidates(tested: TestedOp) -> Iterator[Arguments]:
    """All tensors of one kind first, then of different kinds. Parameters with a default have it."""
    needed = [one for one in tested.schema.arguments if not one.has_default_value()]
    count = sum("Tensor" in str(one.real_type) and "Optional" not in str(one.real_type) for one in needed)
    kinds = list(product(DTYPES[:2], SHAPES))
    matrices = product(kinds[:2], repeat=count)
    same = ((kind,) * count for kind in kinds)
    mixed = product(kinds, repeat=count) if count > 1 else ()
    for chosen in dict.fromkeys((*islice(matrices, 2**3), *same, *islice(mixed, MOST_TRIES))):
        for number in OTHER_INTS[: 1 + 3 * any("nt" in str(one.real_type) for one in needed)]:
            tensors = iter(chosen)
            values = {one.name: _value(one, tensors, number) for one in needed}
            if any(value is LEFT_OUT for value in values.values()):
                return
            args = tuple(values[one.name] for one in needed if not one.kwarg_only)
            yield Arguments(args, {one.name: values[one.name] for one in needed if one.kwarg_only})


def _value(parameter: Any, tensors: Iterator[tuple[torch.dtype, tuple[int, ...]]], number: int) -> Any:
    """A value of the parameter's type. LEFT_OUT if there is none that may be right."""
    kind = str(parameter.real_type)
    match kind:
        case _ if kind.startswith("Optional"):
            return None
        case "Tensor":
            return _tensor(*next(tensors))
        case "List[Tensor]":
            made = _tensor(*next(tensors))
            return [made, made.clone()]
        case "int" | "SymInt":
            return number
        case "number" | "float":
            return 0.5
        case "bool":
            return False
        case "List[int]" | "List[SymInt]":
            return [number] * (parameter.N or 2)
        case "List[float]":
            return [0.5, 0.5]
    return LEFT_OUT


def _tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    if dtype == torch.float32:
        return torch.randn(shape, generator=generator)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)
