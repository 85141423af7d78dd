"""What a worker is about to do, on disk before it does it, so that a crash or a hang can be told.

One file a worker, one JSON line an entry, never read by the worker itself. A line survives the death of its writer
because the kernel has it as soon as `write` returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

_ENCODER = msgspec.json.Encoder()


class Entry(msgspec.Struct, frozen=True):
    """`case` is the index in the campaign; `stage` is a stage of `protocol` or `draw`; `step` counts drawn steps.

    What follows a finding has that as its `case`'s place: stage `minimize` for a candidate that is about to be tried,
    `smaller` for one that was taken, with its number of operations in `step`, then each other stage that it is put
    through.
    """

    case: int
    stage: str
    program: str = ""
    step: int = 0
    semantics: str = ""
    worker: int = 0
    finding: str = ""


class Journal:
    """The journal of this process, appended to."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(folder / f"worker-{os.getpid()}.jsonl", flags, 0o644)

    def note(self, entry: Entry) -> None:
        """Append one entry. Raises OSError where the disk is full."""
        entry = msgspec.structs.replace(entry, worker=os.getpid())
        os.write(self._descriptor, _ENCODER.encode(entry) + b"\n")


def entries(folder: Path) -> Iterator[Entry]:
    """All entries, a worker after the other; the torn last line of a worker that was killed is passed over."""
    for path in sorted(folder.glob("worker-*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            try:
                yield msgspec.json.decode(line, type=Entry)
            except msgspec.DecodeError:
                continue


def last_of_case(folder: Path, case: int) -> Entry | None:
    """The last thing that any worker was about to do for a case, None if none began it."""
    found = None
    for entry in entries(folder):
        if entry.case == case:
            found = entry
    return found
