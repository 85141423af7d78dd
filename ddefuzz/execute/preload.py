"""Imported once by the fork server: torch, and what a first export would otherwise import in every worker.

Nothing is exported here, so a new fork of the server is a cold process. Importing costs 2.5 CPU seconds once. A cold
export then costs 0.1 CPU seconds instead of 0.7.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from types import SimpleNamespace
from typing import Any

from ddefuzz.instrument import torch_api

UNSET = ("TORCH_LOGS", "TORCH_LOGS_OUT", "TORCH_TRACE", "TORCH_COMPILE_DEBUG", "TORCH_SYMBOLIZE_MODE", "PYTHONSAFEPATH")
"""torch's environment variables that change what a run prints, or stop torch from being imported (`TORCH_LOGS=""`). And
that by which the server is started without the current folder: it is not for the processes of user code.
"""

SINGLE_THREADED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
"""A campaign runs one worker per core. A thread of the server would not survive its forks."""

WATCH_SECONDS = 0.2

MODULES = (*torch_api.PRELOADED, "sympy.tensor.tensor", "ddefuzz.execute.observe")


@contextmanager
def ends_with_its_starter() -> Iterator[None]:
    """In the block, this process ends as soon as the one that started it has ended: even if that was killed."""
    starter, done = os.getppid(), threading.Event()

    def watch() -> None:
        while not done.wait(WATCH_SECONDS):
            if os.getppid() != starter:
                os._exit(1)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()  # a thread of the server would not survive its forks


def preload(modules: Iterable[str]) -> None:
    """Clean the environment, then import. A module that this torch does not have is left to the code that needs it.

    Nothing is collected meanwhile: that would take a tenth of the time, and nothing that is imported is garbage.
    """
    for name in UNSET:
        os.environ.pop(name, None)
    for name in SINGLE_THREADED:
        os.environ[name] = "1"
    gc.disable()
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    # What is imported stays: without it every collection in a worker would visit (and copy) all of torch's objects.
    gc.freeze()
    gc.enable()


def ended(pid: int, options: int) -> tuple[int, int]:
    """`os.waitpid` for the fork server, which expects that a child has ended. If user code lets the child be traced, it
    stops at a signal instead: it is killed.
    """
    child, status = os.waitpid(pid, options)
    while child and os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
        child, status = os.waitpid(child, 0)
    return child, status


def served(*args: Any) -> int:
    """What the fork server runs in a new child. If the process that asked for the child was killed before it said what
    the child has to do, it ends without a word.
    """
    try:
        return _serve_one(*args)
    except EOFError:
        return 1


_serve_one: Callable[..., int] = vars(forkserver)["_serve_one"]
vars(forkserver)["_serve_one"] = served
vars(forkserver)["os"] = SimpleNamespace(**vars(os) | {"waitpid": ended})
with ends_with_its_starter():
    preload(MODULES)
