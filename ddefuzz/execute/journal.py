"""What a worker is about to do, written to disk first, so that a crash or a hang can be attributed.

The journal is one file per worker with a JSON line per entry; the worker itself never reads it. A line is kept if its
writer dies, because the kernel has it when `write` returns. The phases of a run are in a file for each task, which a
task that returns removes. Python's fault handler writes into it too, when torch's code ends the process by a signal.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from ddefuzz.execute.channel import out_of_reach
from ddefuzz.program.sizes import CallSize

Part: TypeAlias = Literal["capture", "eager", "captured", "reading", "kernel"]
"""
capture   the capture, or the whole run in a stage that captures nothing
eager     a call of eager, with which the captured program is compared
captured  a call of the captured program
reading   ddefuzz reads the captured program (its assertions, or its nodes one by one), or compares results
kernel    a call of the real kernel of an op that is checked
"""


class Phase(msgspec.Struct, frozen=True):
    """A part of a run. `size` is that of a call. `gradient` says that its gradient is computed.

    `eager` are the CPU seconds that eager took for the same call, if it is one of a captured program. `call` is that of
    a kernel, as text.
    """

    part: Part = "capture"
    size: CallSize | None = None
    gradient: bool = False
    eager: float = 0.0
    call: str = ""

    def __str__(self) -> str:
        text = {
            "eager": f"in eager at size {self.size}",
            "captured": f"in the captured program at size {self.size}",
            "kernel": f"in or after the call {self.call}",
            "reading": "while ddefuzz read what was captured or returned",
        }.get(self.part, "")
        return f"{text}, in the gradient" if self.gradient else text


class TaskTrace(NamedTuple):
    """The content of a lost task's file: its last phase, and the stack that the fault handler printed, if any."""

    phase: Phase = Phase()
    stack: str = ""


EXTENSIONS = "Extension modules:"
"""How the list of modules begins that the fault handler prints after the stack."""


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
        with suppress(OSError):  # user code may have changed the user of this process
            path.unlink(missing_ok=True)


def enter(
    part: Part, size: CallSize | None = None, *, gradient: bool = False, eager: float = 0.0, call: str = ""
) -> None:
    """Begin a part of a run. Outside a task nothing is written."""
    if _open:
        os.write(_open[-1], msgspec.json.encode(Phase(part, size, gradient, eager, call)) + b"\n")


def left_by(path: Path) -> TaskTrace:
    """Read the file of a lost task."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return TaskTrace()
    phase, at = Phase(), 0
    for number, line in enumerate(lines):
        try:
            phase, at = msgspec.json.decode(line, type=Phase), number + 1
        except msgspec.DecodeError:
            continue
    printed = b"\n".join(lines[at:]).decode(errors="replace")
    return TaskTrace(phase, printed.partition(EXTENSIONS)[0].strip())


_ENCODER = msgspec.json.Encoder()


class Entry(msgspec.Struct, frozen=True):
    """`case` is the index in the campaign. `stage` is a stage of `protocol` or `draw`. `step` counts drawn
    steps.

    Work on a finding uses NO_CASE as its `case`: stage `minimize` for a candidate that is about to be tried,
    `smaller` for one that was accepted, with its number of operations in `step`, then each other stage that it
    is run in.
    """

    case: int
    stage: str
    program: str = ""
    step: int = 0
    semantics: str = ""
    worker: int = 0
    finding: str = ""


class Journal:
    """The journal of this process. It is only appended to."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)  # what it is in has been removed if the command has ended
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(folder / f"worker-{os.getpid()}.jsonl", flags, 0o644)

    def note(self, entry: Entry) -> None:
        """Append one entry. Raises OSError if the disk is full."""
        entry = msgspec.structs.replace(entry, worker=os.getpid())
        os.write(self._descriptor, _ENCODER.encode(entry) + b"\n")


def entries(folder: Path) -> Iterator[Entry]:
    """All entries, one worker after the other. The incomplete last line of a killed worker is skipped."""
    for path in sorted(folder.glob("worker-*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            try:
                yield msgspec.json.decode(line, type=Entry)
            except msgspec.DecodeError:
                continue


def last_of_case(folder: Path, case: int) -> Entry | None:
    """The last entry of any worker for a case, None if no worker began it."""
    last = None
    for entry in entries(folder):
        if entry.case == case:
            last = entry
    return last
