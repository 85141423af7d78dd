"""One op over a sequence of sizes, in a worker: its rows, with and without out=, in every mode."""

from __future__ import annotations

import inspect
import time
import warnings

import torch

from ddefuzz.classify.site import USER_SITE, site
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.recompiling import count
from ddefuzz.execute.repeated import Mode, Repeated
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument.torch_api import SYMBOLIC_SHAPES_FILE
from ddefuzz.oracles.recompilation import as_raised
from ddefuzz.recompile.model import Described, DescribeTask, Owner, Recompiled, RecompileTask, Row
from ddefuzz.recompile.sequence import UnsizedError, ops, sequenced

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
    return Described(str(torch.__version__), ops())


def run_recompile(task: RecompileTask) -> Recompiled:
    """Count one op in every mode."""
    started = time.process_time()
    with captured_output(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = sequenced(task.op, task.sizes)
        except UnsizedError as reason:
            return Recompiled(task.op, dropped=str(reason), cpu_seconds=round(time.process_time() - started, 2))
        rows = []
        for mode in task.modes:
            plain = row_of(task, mode, made.plain, None)
            rows += [plain, row_of(task, mode, made.out, plain.compilations)]
    return Recompiled(task.op, tuple(rows), cpu_seconds=round(time.process_time() - started, 2))


def row_of(task: RecompileTask, mode: Mode, texts: tuple[str, ...], without_out: int | None) -> Row:
    """The row of one function in one mode. `without_out` is given for a function with out=."""
    prepared = [prepare(ProgramSubject(text)) for text in texts]
    names = list(inspect.signature(prepared[0].call).parameters)
    counted = count(prepared[0].call, names, [one.args for one in prepared], mode)
    frame, owner, line = _blamed(counted)
    return Row(
        op=task.op,
        out=without_out is not None,
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
    )


def _blamed(counted: Repeated) -> tuple[str, Owner, str]:
    """The code that made the failed guard, whose it is, and the line."""
    raised = as_raised(counted.failed) if counted.failed is not None else counted.raised
    if raised is None:
        return (DUCK_SIZING, "torch", "") if counted.guard else ("", "", "")
    found, frame = site(raised)
    return str(found), "user" if found == USER_SITE else "torch", f"{frame.file}:{frame.line}" if frame.line else ""
