"""Compiles a subject with fullgraph=False, and lists the places where dynamo ends a graph, each with its cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.fx import GraphModule

from ddefuzz.artifacts.model import Break, Broken, failure_of
from ddefuzz.execute.observe import captured_output, clean_slate, failed_by, kept_apart
from ddefuzz.execute.protocol import Observation, Run, Subject
from ddefuzz.execute.stages import as_compiled, mark
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.guards import watch
from ddefuzz.instrument.recorder import Recorder

REASON_LINES = 12
"""The lines that are kept of what dynamo says."""


def find_breaks(subject: Subject) -> Broken:
    """Call the compiled subject once, with dynamo's eager backend.

    After a break, what ran eagerly has plain sizes: dynamo continues with them as with any sizes of an input.
    """
    run = Run(subject, "compile")
    graphs: list[GraphModule] = []

    def count(graph: GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        del inputs
        graphs.append(graph)
        return graph.forward

    with captured_output(), kept_apart(subject), clean_slate():
        prepared = prepare(subject)
        compiled = torch.compile(as_compiled(prepared), backend=count, fullgraph=False)
        mark(prepared)
        error = ""
        with watch() as recorder, breaks_seen(run, recorder) as seen:
            try:
                compiled(*prepared.args, **prepared.kwargs)
            except BaseException as raised:  # noqa: BLE001 the subject is under test: whatever it raises is told
                error = f"{type(raised).__name__}: {str(raised).strip().partition(chr(10))[0]}"
    return Broken(len(graphs), _each_once(seen), error)


@contextmanager
def breaks_seen(run: Run, recorder: Recorder) -> Iterator[list[tuple[str, Observation]]]:
    """What dynamo says of each break meanwhile, and the observation that its exception would have been."""
    seen: list[tuple[str, Observation]] = []
    hooked = torch_api.LOG_GRAPH_BREAK
    original = torch_api.bound(hooked)

    def ddefuzz_log_graph_break(translator: Any, code_options: Any, reason: str, exc: BaseException) -> Any:
        if not getattr(exc, "logged", False):
            seen.append((reason, failed_by(run, exc, recorder)))
        return original(translator, code_options, reason, exc)

    with mock.patch.object(hooked.owner(), hooked.name, ddefuzz_log_graph_break):
        yield seen


def _each_once(seen: list[tuple[str, Observation]]) -> tuple[Break, ...]:
    """The breaks by site and line. A call that is not inlined is traced on its own, and breaks again at the same line:
    the reason is the last one.
    """
    found: dict[tuple[str, ...], Break] = {}
    for reason, observed in seen:
        cause = failure_of(observed)
        if cause is not None:
            key = (cause.kind, cause.site, cause.anchor, cause.line)
            count = found[key].count + 1 if key in found else 1
            found[key] = Break(_shortened(reason), cause, count)
    return tuple(found.values())


def _shortened(reason: str) -> str:
    """What dynamo says, up to the advice about logs."""
    lines = [line.rstrip() for line in reason.splitlines() if line.strip()]
    end = next((at for at, line in enumerate(lines) if line.startswith("For more information")), REASON_LINES)
    return "\n".join(lines[: min(end, REASON_LINES)])
