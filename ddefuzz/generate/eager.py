"""How generation runs eager torch: on one thread, and independent of what ran before."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO

import torch


@contextmanager
def strict_eager() -> Iterator[None]:
    """Warnings are errors, and torch gives each of them every time, not once a process.

    So whether a step is dropped depends on nothing that happened before. What C++ warns of before it raises cannot
    become an error, and torch prints it (`PyWarningHandler` in torch/csrc/Exceptions.cpp): nobody asked for that.
    """
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with _one_thread(), warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("error")
            yield
    finally:
        torch.set_warn_always(always)


@contextmanager
def tolerant_eager() -> Iterator[None]:
    """Warnings are nothing: they do not make a program invalid at a data size that it was not drawn on."""
    with _one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """Handing a small convolution to a thread pool costs milliseconds on a busy machine."""
    threads = torch.get_num_threads()
    if threads != 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)
