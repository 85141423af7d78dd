"""How generation runs eager torch: on one thread, and independent of what ran before."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO

import torch


@contextmanager
def strict_eager() -> Iterator[None]:
    """Turn warnings into errors, and make torch repeat each of them, not once per process.

    So whether a step is dropped does not depend on what ran before. A warning that C++ gives before it raises
    cannot become an error. torch prints it (`PyWarningHandler` in torch/csrc/Exceptions.cpp), and it is
    discarded here.
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
    """Ignore warnings. They do not make a program invalid at a data size that it was not drawn at."""
    with _one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread. Starting a thread pool for a small convolution costs milliseconds on a busy machine."""
    threads = torch.get_num_threads()
    if threads != 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)
