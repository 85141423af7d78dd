"""Which programs of an op are run: its samples, unlike ones first, in the forms that their rank allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from ddefuzz.generate import opinfo
from ddefuzz.generate.make import singles, spread
from ddefuzz.generate.variants import variants
from ddefuzz.ops.catalogue import OPS
from ddefuzz.program.model import Program
from ddefuzz.program.text import digest
from ddefuzz.sweep.tasks import SweepTask

SOME_FORMS: Final = frozenset({"static", "all", "every", "shared", "mask"})
PLAIN_FORMS: Final = frozenset({"all"})
OTHER_DTYPES_FORMS: Final = frozenset({"all", "every"})


class Chosen(NamedTuple):
    """A program to run, and the name of its form."""

    form: str
    dtype: str
    program: Program
    sample: int


def chosen(task: SweepTask, dropped: Counter[str]) -> Iterator[Chosen]:
    """The programs of an op in the order in which they are run, each once. All of them run in eager."""
    seen = set(task.skip)
    for one in _candidates(task, dropped):
        name = digest(one.program)
        if name not in seen:
            seen.add(name)
            yield one


def _candidates(task: SweepTask, dropped: Counter[str]) -> Iterator[Chosen]:
    caps = task.caps
    if task.source == "catalogue":
        specs = [spec for spec in OPS if str(spec) == task.op]  # one template may have several rows
        drawn = (program for spec in specs for program in singles(spec, caps.drawn))
        for number, program in enumerate(drawn):
            dtype = program.inputs[0].dtype if program.inputs else ""
            yield Chosen("drawn", dtype, program, number)
            if len(program.steps) == 1 and not _unbacked_dims(program):
                yield from _forms(program, number, dtype, None)
        return
    taken = opinfo.dtypes(task.op)
    number = effort = 0
    for dtype in taken[:1]:
        for program in spread(opinfo.samples(task.op, dtype, dropped))[: caps.samples]:
            allowed = None if number < caps.full else SOME_FORMS if number < caps.some else PLAIN_FORMS
            for one in _forms(program, number, dtype, allowed):
                effort += 1 + _unbacked_dims(one.program)
                if effort <= caps.effort:
                    yield one
            number += 1
    for dtype in (dtype for dtype in taken[1:] if dtype in opinfo.DTYPES):
        for program in spread(opinfo.samples(task.op, dtype))[: caps.others]:
            yield from _forms(program, number, dtype, OTHER_DTYPES_FORMS)
            number += 1


def _unbacked_dims(program: Program) -> int:
    return sum(dim.symbol is not None for item in program.inputs for dim in item.shape)


def _forms(program: Program, number: int, dtype: str, allowed: frozenset[str] | None) -> Iterator[Chosen]:
    """The forms of a program. Of the candidates of one name, the first that runs in eager."""
    accepted = set()
    for form, made in variants(program):
        if (allowed is None or form in allowed) and form not in accepted and opinfo.accepts(made):
            accepted.add(form)
            yield Chosen(form, dtype, made, number)
