"""Makes the tensors that a program is run on."""

from __future__ import annotations

from typing import Final

import torch

from ddefuzz.program.evaluate import evaluate
from ddefuzz.program.model import Input, Name, Program
from ddefuzz.program.recipes import input_expression

_GENERATOR: Final = Name("generator")


def materialize(program: Program) -> dict[str, torch.Tensor]:
    """The program's inputs by name, as new tensors with the same values at every call.

    Random values are seeded by the position of the input. torch's global generators are not used.
    """
    return {item.name: materialize_input(item, position) for position, item in enumerate(program.inputs)}


def materialize_input(item: Input, position: int) -> torch.Tensor:
    """The tensor of one input, which is at `position` in its program."""
    generator = torch.Generator().manual_seed(position)
    tensor: torch.Tensor = evaluate(input_expression(item, _GENERATOR), {"generator": generator})
    return tensor
