"""One op over a sequence of sizes, in a worker: its rows, with and without out=, in every mode."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch

from ddefuzz.classify.site import USER_SITE, site
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.protocol import EXPLICIT, ProgramSubject, Stage
from ddefuzz.execute.subject import prepare
from ddefuzz.findings.model import Sighting, sighting
from ddefuzz.instrument.torch_api import SYMBOLIC_SHAPES_FILE
from ddefuzz.oracles import recompilation
from ddefuzz.oracles.program import judge_program, observe
from ddefuzz.oracles.recompilation import MODE_OF, Mode, Repeated, as_raised
from ddefuzz.oracles.recompilation_run import count
from ddefuzz.sweep.recompile_model import Described, DescribeTask, Form, Owner, Recompiled, RecompileTask, Row
from ddefuzz.sweep.recompile_modules import MODULES, Made
from ddefuzz.sweep.recompile_sequence import UnsizedError, ops, sequenced

DYNAMIC: dict[Mode, bool | str | None] = {
    "default": None,
    "dynamic": True,
    "marked": "marked",
    "unbacked": "unbacked",
}
"""What a row says of its mode."""


DUCK_SIZING = f"{SYMBOLIC_SHAPES_FILE.path}:create_symbol"
"""The code that gives sizes one symbol if they are the same in the first call (`use_duck_shape`)."""


def describe(_: DescribeTask) -> Described:
    """What this torch has."""
    return Described(str(torch.__version__), tuple(sorted((*ops(), *MODULES))))


STAGE: dict[Mode, Stage] = {mode: stage for stage, mode in MODE_OF.items()}
"""The stages in which a needless compilation becomes a finding, by their mode."""


def run_recompile(task: RecompileTask) -> Recompiled:
    """Count one op in every form and mode."""
    started = time.process_time()
    sightings: tuple[Sighting, ...] = ()
    with captured_output(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            subjects = _subjects(task)
        except UnsizedError as reason:
            return Recompiled(task.op, dropped=str(reason), cpu_seconds=round(time.process_time() - started, 2))
        rows = _rows(task, subjects)
    if task.record:
        sightings = tuple(_sightings(subjects, rows))
    return Recompiled(task.op, tuple(rows), sightings, cpu_seconds=round(time.process_time() - started, 2))


class Subject(NamedTuple):
    """A function in one form: `calls` makes a new function with the arguments of each call."""

    calls: Callable[[], tuple[Callable[..., Any], list[tuple[Any, ...]]]]
    symbolic: str | None = None


def _subjects(task: RecompileTask) -> dict[Form, Subject]:
    if task.op in MODULES:
        return {"module": Subject(lambda: _of_module(MODULES[task.op], task.sizes))} if "module" in task.forms else {}
    made = sequenced(task.op, task.sizes, task.forms)
    return {form: Subject(partial(_of_texts, one.texts), one.symbolic) for form, one in made.items()}


def _of_module(made: Made, sizes: tuple[int, ...]) -> tuple[Callable[..., Any], list[tuple[Any, ...]]]:
    return made.module(), [(made.argument(size),) for size in sizes]


def _of_texts(texts: tuple[str, ...]) -> tuple[Callable[..., Any], list[tuple[Any, ...]]]:
    prepared = [prepare(ProgramSubject(text)) for text in texts]
    return prepared[0].call, [one.args for one in prepared]


def _rows(task: RecompileTask, subjects: dict[Form, Subject]) -> list[Row]:
    rows: list[Row] = []
    for mode in task.modes:
        without_out: int | None = None
        for form, subject in subjects.items():
            row = row_of(task, mode, form, subject, without_out if form == "out" else None)
            without_out = row.compilations if form == "plain" else without_out
            rows.append(row)
    return rows


def row_of(task: RecompileTask, mode: Mode, form: Form, subject: Subject, without_out: int | None) -> Row:
    """The row of one function in one mode. `without_out` is given for a function with out=."""
    call, calls = subject.calls()
    target = call.forward if isinstance(call, torch.nn.Module) else call
    counted = count(call, list(inspect.signature(target).parameters), calls, mode)
    frame, owner, line = _blamed(counted)
    return Row(
        op=task.op,
        out=form == "out",
        dynamic=DYNAMIC[mode],
        sizes=task.sizes,
        compilations=len(counted.compiled),
        allowed=counted.allowed,
        guard=counted.guard or (counted.raised.expression if counted.raised is not None else ""),
        frame=frame,
        owner=owner,
        shareable=tuple(tuple(task.sizes[at] for at in group) for group in counted.shareable),
        without_out=without_out,
        error=counted.error,
        line=line,
        form=form,
    )


def _sightings(subjects: dict[Form, Subject], rows: list[Row]) -> Iterator[Sighting]:
    """The needless compilations of functions that one program states for all sizes."""
    modes = {said: mode for mode, said in DYNAMIC.items()}
    for row in rows:
        text, stage = subjects[row.form].symbolic, STAGE.get(modes[row.dynamic])
        if row.is_above and text is not None and stage is not None:
            for judged in judge_program(text, (stage,), (EXPLICIT,), observe, oracles=(recompilation.ORACLE.name,)):
                for found in judged.failures:
                    yield sighting(found, text, judged.verdict, str(torch.__version__))


def _blamed(counted: Repeated) -> tuple[str, Owner, str]:
    """The code that made the failed guard, whose it is, and the line."""
    raised = as_raised(counted.failed) if counted.failed is not None else counted.raised
    if raised is None:
        return (DUCK_SIZING, "torch", "") if counted.guard else ("", "", "")
    found, frame = site(raised)
    return str(found), "user" if found == USER_SITE else "torch", f"{frame.file}:{frame.line}" if frame.line else ""
