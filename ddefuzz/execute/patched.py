"""Runs with a changed file of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ddefuzz.errors import InputError
from ddefuzz.execute.exchanged import exchanged
from ddefuzz.execute.observe import observe, observe_in
from ddefuzz.execute.prepared import Prepared
from ddefuzz.execute.protocol import Observation, PatchedRun
from ddefuzz.execute.stages import Capture
from ddefuzz.execute.subject import prepare
from ddefuzz.files import read_text
from ddefuzz.instrument import torch_api


def observe_patched(task: PatchedRun) -> Observation:
    """Do a run with a change of torch, as a task of a worker."""
    if not task.eager:
        with patched(task.file, task.source):
            return observe(task.run)

    def stage(_prepared: Prepared) -> Capture:
        def with_change(fresh: Prepared) -> Any:
            with patched(task.file, task.source):
                return fresh.call(*fresh.args, **fresh.kwargs)

        graph = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
        return Capture(
            graph, with_change, lambda fresh: fresh.call(*fresh.args, **fresh.kwargs), lambda _fresh: None, lambda: 1
        )

    return observe_in(stage, lambda: prepare(task.run.subject), task.run)


@contextmanager
def patched(file: str, source: str) -> Iterator[None]:
    """Run with the text `source` in place of a file of torch, named as in frames (`torch/_refs/__init__.py`)."""
    path = torch_api.torch_parent() / file
    with exchanged(str(path), read_text(path), source) as count:
        if not count:
            raise InputError(f"{file}: found no function of it in this process, expected a module that torch imports")
        yield
