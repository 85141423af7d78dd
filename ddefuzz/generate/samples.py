"""Samples of an op in the forms of `variants`. A sample is a call from OpInfo, or the catalogue's op alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

from ddefuzz.generate import opinfo
from ddefuzz.generate.origin import Sample
from ddefuzz.generate.single import singles
from ddefuzz.generate.spread import spread
from ddefuzz.generate.variants import UNBACKED_FORMS, variants
from ddefuzz.ops.catalogue import CALLABLES, OPS
from ddefuzz.ops.spec import OpSpec
from ddefuzz.program.model import Dim, Program, functions_in

LISTED, SAMPLES = 16, 6
"""How many samples of an op are made, and how many of them, unlike ones first, are used."""

FROM_DATA: Final = frozenset({"mask", "item"})
"""Kinds of forms whose inputs are static: a step makes what is unbacked."""

TRIES = 8
"""How many samples of an op are tried, the requested one first, until eager accepts one."""

SPECS: Final[dict[str, list[OpSpec]]] = defaultdict(list)
"""The ops of the catalogue by template. One template may have several rows."""

for _spec in OPS:
    SPECS[str(_spec)].append(_spec)


def sampled(wanted: Sample) -> tuple[Program, Sample] | None:
    """The requested sample, else another of the op's samples, by `word`. None if eager accepts none of a few."""
    for form, number in islice(_choices(wanted), TRIES):
        candidates = _forms(wanted.op, form)[number:][:1]
        program = next((one for group in candidates for one in group if opinfo.accepts(one)), None)
        if program is not None:
            return program, Sample(wanted.op, form, number, wanted.word)
    return None


def _choices(wanted: Sample) -> Iterator[tuple[str, int]]:
    yield wanted.form, wanted.number
    known = [(form, number) for form in UNBACKED_FORMS for number in range(len(_forms(wanted.op, form)))]
    at = wanted.word % len(known) if known else 0
    yield from (*known[at:], *known[:at])


@lru_cache(maxsize=64)
def _forms(op: str, kind: str) -> tuple[tuple[Program, ...], ...]:
    """The forms of one kind, sample by sample: for each, the candidates. The first accepted one counts."""
    found = (group for program in _samples(op) for group in groupby(variants(program, (kind,)), attrgetter("name")))
    forms = (tuple(one.program for one in candidates) for _, candidates in found)
    return tuple(form for form in forms if kind in FROM_DATA or form[0] != static(form[0]))


@lru_cache(maxsize=256)
def _samples(op: str) -> tuple[Program, ...]:
    """With static dims, the samples of the main dtype. Cached, because making them takes longer than running one."""
    if op in SPECS:
        alone = (program for spec in SPECS[op] for program in singles(spec, SAMPLES) if len(program.steps) == 1)
        return tuple(dict.fromkeys(map(static, alone)))[:SAMPLES]
    listed = (program for dtype in opinfo.dtypes(op)[:1] for program in opinfo.samples(op, dtype, most=LISTED))
    return tuple(spread(program for program in listed if CALLABLES.issuperset(functions_in(program)))[:SAMPLES])


def in_doubt(program: Program) -> Program:
    """A program of one step on static dims, with every dim unbacked if eager accepts that. Any other program
    unchanged.
    """
    if len(program.steps) > 1 or program != static(program):
        return program
    return next((form.program for form in variants(program, ("all",)) if opinfo.accepts(form.program)), program)


def static(program: Program) -> Program:
    """The program with no dim unbacked."""
    inputs = (replace(item, shape=tuple(Dim(dim.size) for dim in item.shape)) for item in program.inputs)
    return replace(program, inputs=tuple(inputs))
