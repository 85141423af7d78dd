"""torch's own sample calls of an op, as programs with unbacked dims: what a patch is tried with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

import msgspec

from ddefuzz.execute.worker import late

MOST = 6
"""Samples of one op."""

MADE = 30
"""Samples of one op that are made, to choose unlike ones from."""


class SampleRequest(msgspec.Struct, frozen=True):
    """The functions by which programs reach a site, as findings name them: `torch.roll`, `Tensor.roll`."""

    functions: tuple[str, ...]


def samples(request: SampleRequest) -> tuple[str, ...]:
    """The programs of all samples, as a task of a worker."""
    return tuple(chain.from_iterable(islice(_samples(name), MOST) for name in request.functions))


def _samples(function: str) -> Iterator[str]:
    opinfo, variants = late("ddefuzz.generate.opinfo"), late("ddefuzz.generate.variants")
    text, spread = late("ddefuzz.program.text"), late("ddefuzz.generate.spread")
    for name in (name for name in opinfo.entries() if _is_of(name, function)):
        for dtype in opinfo.dtypes(name)[:1]:
            for program in spread.spread(opinfo.samples(name, dtype, most=MADE)):
                for variant in variants.variants(program, ("all",)):
                    if opinfo.accepts(variant.program):
                        yield text.print_program(variant.program)


def _is_of(entry: str, function: str) -> bool:
    """Whether an entry of OpInfo has the samples of a function: `add.alpha` is one of `torch.add`."""
    short = function.removeprefix("torch.").removeprefix("Tensor.").removeprefix("ops.aten.").rstrip("_")
    return entry == short or entry.startswith(f"{short}.")
