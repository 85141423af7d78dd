"""Protect ddefuzz from user code in a worker: the code may not remove or replace modules and functions of ddefuzz, nor
send signals to its processes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import ModuleType

from ddefuzz.errors import InputError

OWN = "ddefuzz"

HARMLESS = frozenset({0, signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH})
"""Signals that end or stop no process, unless it asked for that."""

_running: list[str] = []
"""The files of the user code that runs now."""


@contextmanager
def kept_intact(path: str) -> Iterator[None]:
    """Run user code of the file `path`. Raises `InputError` if it removes or replaces a part of ddefuzz.

    `tempfile.tempdir`, which decides where ddefuzz writes, and the current folder are what they were afterwards.

    What was removed is restored first, so that the worker can report it. If the code sends a signal to its worker, or
    to the processes that started it, `RuntimeError` is raised in the code. Otherwise the end of the worker would look
    like a crash of PyTorch.
    """
    _watch_signals()
    modules = dict(sys.modules)
    own = {name: module for name, module in modules.items() if name.partition(".")[0] == OWN}
    functions = {name: _functions(module) for name, module in own.items()}
    _running.append(path)
    temporary, folder = tempfile.tempdir, current_folder()
    try:
        yield
    finally:
        _running.pop()
        tempfile.tempdir = temporary
        enter_folder(folder)
        harmed = [name for name, module in own.items() if sys.modules.get(name) is not module]
        if harmed:
            sys.modules.update(modules)
        for name, module in own.items():
            now = vars(module)
            replaced = [key for key, function in functions[name].items() if now.get(key) is not function]
            now.update((key, functions[name][key]) for key in replaced)
            harmed += [f"{name}.{key}" for key in replaced]
        if harmed:
            raise InputError(
                f"{path}: found code that removes or replaces {min(harmed)} in its worker, "
                "expected code that leaves ddefuzz as it is"
            )


def current_folder() -> str:
    """The current folder, empty if it has been removed."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def enter_folder(folder: str) -> None:
    """Make it the current folder, if it still is there."""
    with suppress(OSError):
        os.chdir(folder)


def _functions(module: ModuleType) -> dict[str, object]:
    """The module's own functions and classes. Names with two underscores are dynamo's: it compiles into a module, and
    removes that again.
    """
    return {key: value for key, value in vars(module).items() if callable(value) and not key.startswith("__")}


@cache
def _watch_signals() -> None:
    """An audit hook cannot be removed, so there is one for each process."""
    sys.addaudithook(_refuse_signals)


def _refuse_signals(event: str, arguments: tuple[object, ...]) -> None:
    if not _running or event not in {"os.kill", "os.killpg"}:
        return
    process, number = arguments
    campaign = multiprocessing.parent_process()
    own = {0, -1, os.getpid(), os.getppid(), -os.getpgrp(), campaign.pid if campaign is not None else 0}
    target = -process if event == "os.killpg" and isinstance(process, int) else process
    if target not in own or not isinstance(number, int) or number in HARMLESS:
        return
    # A signal that the code handles itself.
    if target == os.getpid() and signal.getsignal(number) not in {signal.SIG_DFL, None}:
        return
    raise RuntimeError(f"the code sends signal {number} to the process {process}, in which ddefuzz runs it")
