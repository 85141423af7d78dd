"""The error that a worker prints if it cannot start."""

from __future__ import annotations

import sys
from multiprocessing import synchronize
from types import TracebackType


def print_error(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print an error that ends a new worker, unless the campaign ended while the worker started: then the semaphores
    that it shares with the campaign are gone (`SemLock._rebuild` in multiprocessing/synchronize.py).
    """
    last = traceback
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = "" if last is None else last.tb_frame.f_code.co_filename
    if not (isinstance(error, FileNotFoundError) and place == synchronize.__file__):
        sys.__excepthook__(kind, error, traceback)
