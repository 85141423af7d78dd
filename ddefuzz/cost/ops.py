"""Draws ops of the catalogue, and programs of several ops, whose cost is measured. Runs in a worker."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice

from ddefuzz.cost.model import DrawTask
from ddefuzz.generate.draw import case
from ddefuzz.generate.make import singles
from ddefuzz.generate.profiles import CAPTURES
from ddefuzz.ops.catalogue import OPS
from ddefuzz.program.expressions import print_expression
from ddefuzz.program.model import Program, functions_in
from ddefuzz.program.recipes import FLOATS
from ddefuzz.program.text import print_program

PROFILE = CAPTURES
"""The profile of the programs of several ops: those that capture well."""

TRIED = 4
"""The programs of an op of which the first that fits is taken."""


def draw(task: DrawTask) -> tuple[tuple[str, str], ...]:
    """Programs of ops, then those that the generator draws: name and text."""
    return (*_of_ops(task), *islice(_drawn(task), task.draws))


def _drawn(task: DrawTask) -> Iterator[tuple[str, str]]:
    for index in count():
        program = case(PROFILE, task.seed, index)
        if not task.with_dims or any(dim.symbol for item in program.inputs for dim in item.shape):
            yield f"{PROFILE}-{task.seed}-{index}", print_program(program)


def _of_ops(task: DrawTask) -> list[tuple[str, str]]:
    """Programs, each of another op, chosen by the seed: the call of the op, and the text. Each has a float input with
    an unbacked dim, and takes no gradients, which dynamo does not capture.
    """
    texts: list[tuple[str, str]] = []
    for spec in random.Random(task.seed).sample(OPS, len(OPS)):
        if len(texts) == task.ops:
            break
        program = next(filter(_fits, singles(spec, TRIED)), None)
        if program is not None:
            texts.append((print_expression(program.steps[-1].value), print_program(program)))
    return texts


def _fits(program: Program) -> bool:
    inputs = [item for item in program.inputs if any(dim.symbol for dim in item.shape)]
    takes_gradients = any("grad" in name or "backward" in name for name in functions_in(program))
    return not takes_gradients and any(item.dtype in FLOATS for item in inputs)
