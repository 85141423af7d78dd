"""The part of a run that a task is in, written to a file first, so that the end of its process can be attributed.

One file for each task that observes a run. Python's fault handler writes into it too, when torch's code ends the
process by a signal. A task that returns removes its file.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from ddefuzz.execute.channel import out_of_reach
from ddefuzz.program.sizes import CallSize

Part: TypeAlias = Literal["capture", "eager", "captured", "reading"]
"""
capture   the capture, or the whole run in a stage that captures nothing
eager     a call of eager, with which the captured program is compared
captured  a call of the captured program
reading   ddefuzz reads the captured program: its assertions, or its nodes one by one
"""


class Phase(msgspec.Struct, frozen=True):
    """A part of a run. `size` is that of a call. `gradient` says that its gradient is computed."""

    part: Part = "capture"
    size: CallSize | None = None
    gradient: bool = False

    def __str__(self) -> str:
        said = {
            "eager": f"in eager at size {self.size}",
            "captured": f"in the captured program at size {self.size}",
            "reading": "while ddefuzz read the captured program",
        }.get(self.part, "")
        return f"{said}, in the gradient" if self.gradient else said


class Left(NamedTuple):
    """The content of a lost task's file: its last phase, and the stack that the fault handler printed, if any."""

    phase: Phase = Phase()
    stack: str = ""


EXTENSIONS = "Extension modules:"
"""How the list of modules begins that the fault handler prints after the stack."""

_ENCODER = msgspec.json.Encoder()

_open: list[int] = []
"""The descriptor of this process's file, if a task has one."""


@contextmanager
def kept_in(path: Path | None) -> Iterator[None]:
    """Keep the phases of one task in a file, which is removed at its end. Without a path nothing is kept.

    If the fault handler was enabled before, it is enabled for stderr afterwards. It does not tell which file it had.
    """
    if path is None:
        yield
        return
    descriptor = out_of_reach(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644))
    before = faulthandler.is_enabled()
    faulthandler.enable(descriptor, all_threads=False)
    _open.append(descriptor)
    try:
        yield
    finally:
        _open.clear()
        faulthandler.disable()
        if before:
            faulthandler.enable(2)
        os.close(descriptor)
        path.unlink(missing_ok=True)


def enter(part: Part, size: CallSize | None = None, *, gradient: bool = False) -> None:
    """Begin a part of a run. Outside a task nothing is written."""
    if _open:
        os.write(_open[-1], _ENCODER.encode(Phase(part, size, gradient)) + b"\n")


def left_by(path: Path) -> Left:
    """Read the file of a lost task."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return Left()
    phase, at = Phase(), 0
    for number, line in enumerate(lines):
        try:
            phase, at = msgspec.json.decode(line, type=Phase), number + 1
        except msgspec.DecodeError:
            continue
    printed = b"\n".join(lines[at:]).decode(errors="replace")
    return Left(phase, printed.partition(EXTENSIONS)[0].strip())
