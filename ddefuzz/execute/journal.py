"""A worker's journal: each thing that it is about to do, written to disk first, so that a crash or a hang can be
attributed.

One file per worker, one JSON line per entry. The worker itself never reads it. A line is kept if its writer
dies, because the kernel has it when `write` returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

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
        folder.mkdir(parents=True, exist_ok=True)
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
    found = None
    for entry in entries(folder):
        if entry.case == case:
            found = entry
    return found
