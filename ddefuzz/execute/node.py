"""The workers of one node of a Ray cluster: an actor that has today's pools, so that every limit holds there.

Arguments and results are JSON, as between a pool and its workers.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any, Final

import msgspec

from ddefuzz.errors import DdefuzzError
from ddefuzz.execute.engine import LocalWorkers, Setup
from ddefuzz.execute.pool import LostTask
from ddefuzz.execute.scratch import remove_tree, scratch_folder
from ddefuzz.execute.server import end_server
from ddefuzz.execute.worker import NOTHING, Task, hide_main, signature

PACKAGE: Final = Path(__file__).parent.parent


class Versions(msgspec.Struct, frozen=True):
    """What has to be the same on all nodes. `source` is the digest of the modules of ddefuzz."""

    ddefuzz: str
    source: str
    torch: str
    python: str

    def __str__(self) -> str:
        return f"ddefuzz {self.ddefuzz} (source {self.source}), torch {self.torch}, Python {self.python}"


class Refusal(msgspec.Struct, frozen=True):
    """A `DdefuzzError` that a task has raised about what was handed in or the environment."""

    exit_code: int
    text: str


class Reply(msgspec.Struct, frozen=True):
    """What came of a task: what its worker has sent, its loss, or a refusal. `journal` are the lines that the workers
    of the node have written since the last reply. The node numbers its replies; -1: it is the driver's own.
    """

    answer: msgspec.Raw = NOTHING
    lost: LostTask | None = None
    refusal: Refusal | None = None
    journal: str = ""
    number: int = -1


def versions() -> Versions:
    """The versions in this process."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.read_bytes())
    return Versions(version("ddefuzz"), digest.hexdigest()[:12], version("torch"), platform.python_version())


def named(function: Callable[..., Any]) -> str:
    """The name by which a node finds the function of a task, and with a `Task` that of its argument."""
    if isinstance(function, Task):
        return f"{function.function} {named(function.argument)}"
    return f"{function.__module__}:{function.__qualname__}"


def _of_name(name: str) -> Any:
    function, _, argument = name.partition(" ")
    if argument:
        return Task(function, _of_name(argument), object)
    module, _, attribute = function.partition(":")
    return getattr(import_module(module), attribute)


class Node:
    """The actor. Ray calls its methods in threads."""

    def __init__(self, jobs: int, setup: bytes) -> None:
        hide_main()
        given = msgspec.json.decode(setup, type=Setup)
        for number, (variable, text) in enumerate(given.files.items()):
            path = scratch_folder() / f"file-{number}"
            path.write_text(text, encoding="utf-8")
            os.environ[variable] = str(path)
        self._journal = scratch_folder() / "journal"
        self._journal.mkdir()
        self._read: dict[Path, int] = {}
        self._reading = Lock()
        self._replies = 0
        self._workers = LocalWorkers(jobs, self._journal, given.tasks_per_worker)

    def describe(self) -> bytes:
        """The `Versions` of the node."""
        return msgspec.json.encode(versions())

    def run(self, function: str, argument: bytes, timeout: float, cold: bool) -> bytes:
        """Run a task. Returns a `Reply`."""
        task = _of_name(function)
        kind, _ = signature(task)
        future = self._workers.submit(task, msgspec.json.decode(argument, type=kind), timeout, cold=cold)
        try:
            answer = future.answer()
        except DdefuzzError as error:
            reply = Reply(refusal=Refusal(error.exit_code, str(error)))
        else:
            reply = Reply(lost=answer) if isinstance(answer, LostTask) else Reply(msgspec.Raw(answer))
        number, lines = self._new_lines()
        return msgspec.json.encode(msgspec.structs.replace(reply, journal=lines, number=number))

    def end(self) -> None:
        """End all processes of the node, and remove its files."""
        self._workers.__exit__(None, None, None)
        end_server()
        remove_tree(scratch_folder())

    def _new_lines(self) -> tuple[int, str]:
        """The number of a reply, and what workers have written since the last one, as whole lines."""
        lines: list[bytes] = []
        with self._reading:
            for path in sorted(self._journal.glob("worker-*.jsonl")):
                with path.open("rb") as file:
                    file.seek(self._read.get(path, 0))
                    whole, end, _ = file.read().rpartition(b"\n")
                lines += [whole + end]
                self._read[path] = self._read.get(path, 0) + len(whole + end)
            self._replies += 1
            return self._replies - 1, b"".join(lines).decode(errors="replace")
