"""The baseline of the throughput ratio: plain calls of `torch.export.export`, without hooks."""

from __future__ import annotations

import contextlib
import os
import time
import warnings

import torch

from ddefuzz.bench.throughput import BareResult, BareTask
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.stages import as_exported
from ddefuzz.execute.subject import prepare
from ddefuzz.generate.draw import case as draw_case
from ddefuzz.program.text import print_program


def run_bare(task: BareTask) -> BareResult:
    """Export each case once. Only the calls are timed. It needs a process of its own: what torch prints is
    discarded.
    """
    spent = 0.0
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    for index in range(task.start, task.stop):
        drawn = prepare(ProgramSubject(print_program(draw_case(task.profile, task.seed, index))))
        module, args, kwargs, shapes = as_exported(drawn)
        started = time.process_time()
        # A program that cannot be exported costs what it costs.
        with contextlib.suppress(Exception):
            torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
        spent += time.process_time() - started
    return BareResult(spent)
