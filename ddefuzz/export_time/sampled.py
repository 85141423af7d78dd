"""Samples of the Python stack while something runs, and the file that speedscope.app opens."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from ddefuzz.export_time.model import Profiled

INTERVAL: Final = 0.002
"""Seconds between two samples."""

Where = tuple[str, str, int]
"""A function: its name, its file as torch's own code names files (`torch/_ops.py`), and its first line."""


@dataclass(slots=True)
class Samples:
    """The stacks that were seen, outermost function first, each with the seconds until the next sample."""

    stacks: list[tuple[tuple[Where, ...], float]] = field(default_factory=list)


@contextmanager
def sampled() -> Iterator[Samples]:
    """Sample this thread while the block runs, from a thread of its own."""
    samples, thread, ended = Samples(), threading.get_ident(), threading.Event()
    depth = len(_stack(sys._getframe(2)))  # the caller, behind the context manager

    def watch() -> None:
        before = time.perf_counter()
        while not ended.wait(INTERVAL):
            # A frame that stays referenced keeps its tensors, which export takes for leaked constants.
            stack = _stack(sys._current_frames().get(thread))[depth:]
            now = time.perf_counter()
            if stack:
                samples.stacks.append((stack, now - before))
            before = now

    switching = sys.getswitchinterval()
    sys.setswitchinterval(INTERVAL / 4)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield samples
    finally:
        ended.set()
        watcher.join()
        sys.setswitchinterval(switching)


def _stack(frame: FrameType | None) -> tuple[Where, ...]:
    found: list[Where] = []
    while frame is not None:
        code = frame.f_code
        file = code.co_filename.replace("\\", "/").rpartition("/site-packages/")[2]
        found.append((code.co_qualname if sys.version_info >= (3, 11) else code.co_name, file, code.co_firstlineno))
        frame = frame.f_back
    return tuple(reversed(found))


def speedscope(profiles: dict[str, Profiled], exporter: str) -> dict[str, Any]:
    """The stacks in speedscope's own format (https://www.speedscope.app/file-format-schema.json), a profile each."""
    frames: dict[tuple[str, str, int], int] = {}
    written = []
    for name, one in profiles.items():
        number = [frames.setdefault(function, len(frames)) for function in one.functions]
        weights = [round(seconds, 6) for _, seconds in one.stacks]
        written.append(
            {
                "type": "sampled",
                "name": name,
                "unit": "seconds",
                "startValue": 0,
                "endValue": round(sum(weights), 6),
                "samples": [[number[at] for at in stack] for stack, _ in one.stacks],
                "weights": weights,
            }
        )
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": exporter,
        "shared": {"frames": [{"name": name, "file": file, "line": line} for name, file, line in frames]},
        "profiles": written,
    }
