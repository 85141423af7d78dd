"""Torch's own sample calls of the functions by which programs reach a guard, as programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice

import msgspec

from ddefuzz.execute.worker import late
from ddefuzz.program.sizes import static

MOST = 6  # samples of one op
MADE = 30  # samples of one op that are made, to choose unlike ones from


class SampleRequest(msgspec.Struct, frozen=True):
    """The functions by which programs reach a site, as findings name them: `torch.roll`, `Tensor.roll`.

    `of_numbers` says that a number of each sample call is read from a tensor, and that sizes are static: the guard
    asks for a value.
    """

    functions: tuple[str, ...]
    of_numbers: bool = False


def samples(request: SampleRequest) -> tuple[str, ...]:
    """The programs of all samples, as a task of a worker."""
    form = "number" if request.of_numbers else "all"
    return tuple(chain.from_iterable(islice(_samples(name, form), MOST) for name in request.functions))


def _samples(function: str, form: str) -> Iterator[str]:
    opinfo, variants = late("ddefuzz.generate.opinfo"), late("ddefuzz.generate.variants")
    text, spread = late("ddefuzz.program.text"), late("ddefuzz.generate.make")
    for name in (name for name in opinfo.entries() if is_of(name, function)):
        for dtype in opinfo.dtypes(name)[:1]:
            for program in spread.spread(opinfo.samples(name, dtype, most=MADE)):
                for variant in variants.variants(program, (form,)):
                    if opinfo.accepts(variant.program):
                        yield text.print_program(static(variant.program) if form == "number" else variant.program)


def is_of(entry: str, function: str) -> bool:
    """Whether an entry of OpInfo has the samples of a function: `add.alpha` is one of `torch.add`."""
    short = function.removeprefix("torch.").removeprefix("Tensor.").removeprefix("ops.aten.").rstrip("_")
    return entry == short or entry.startswith(f"{short}.")


_FLOAT = re.compile(r"\bzuf\d")
"""A float that data decides, in an expression (torch/utils/_sympy/symbol.py, `prefix_str`)."""


def is_of_value(expression: str) -> bool:
    """Whether a guard asks for a number from data, not for a size."""
    return _FLOAT.search(expression) is not None
