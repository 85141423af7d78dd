"""Calls a subject under torch.compile(fullgraph=False): where dynamo ends a graph, and what each part makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import torch
from torch.fx import GraphModule

from ddefuzz.artifacts.model import Break, Cause, Frame, GraphBreaks, failure_of
from ddefuzz.artifacts.trace import CODE, FRAME, Entry, parts_of, traced
from ddefuzz.execute.observe import captured_output, clean_slate, failed_by, kept_apart
from ddefuzz.execute.protocol import Observation, Run, Stage, Subject
from ddefuzz.execute.stages import AOT, as_compiled, code_only, mark
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.guards import watch
from ddefuzz.instrument.recorder import Recorder

REASON_LINES = 12
"""The lines that are kept of what dynamo says."""


BACKENDS: dict[Stage, str] = {"aot": AOT, "inductor": "inductor"}
"""The backend that lowers a frame's graph, by the stage. In others there is dynamo's graph only."""


def find_breaks(subject: Subject, stage: Stage = "compile") -> GraphBreaks:
    """Call the compiled subject once. Each graph goes through the stage for what that makes, and then runs as it is.

    After a break, what ran eagerly has plain sizes: dynamo continues with them as with any sizes of an input.
    """
    run = Run(subject, stage)
    graphs: list[GraphModule] = []
    failures: dict[str, Cause | None] = {}

    def lower(graph: GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        # Inductor's passes change the graph: its code of now is what runs.
        as_it_is, code = graph.forward, list[str]()
        if stage in BACKENDS:
            frame = entries[-1].frame if entries else ""
            try:
                with code_only(code):
                    torch_api.bound(torch_api.LOOKUP_BACKEND)(BACKENDS[stage])(graph, inputs)
            except Exception as raised:  # noqa: BLE001 the stage is under test: whatever it raises is told
                failures[frame] = failure_of(failed_by(run, raised, recorder))
            entries.extend(Entry(CODE, text, frame) for text in code)
        return as_it_is

    with captured_output(), kept_apart(subject), clean_slate():
        prepared = prepare(subject)
        compiled = torch.compile(as_compiled(prepared), backend=lower, fullgraph=False)
        mark(prepared)
        error = ""
        with watch() as recorder, traced() as entries, breaks_seen(run, recorder) as seen:
            try:
                compiled(*prepared.args, **prepared.kwargs)
            except BaseException as raised:  # noqa: BLE001 the subject is under test: whatever it raises is told
                error = f"{type(raised).__name__}: {str(raised).strip().partition(chr(10))[0]}"
    return GraphBreaks(len(graphs), _each_once(seen), error, tuple(_frames(entries, failures)))


def _frames(entries: Sequence[Entry], failures: Mapping[str, Cause | None]) -> Iterator[Frame]:
    """What was made in each frame, in the order in which dynamo began with them."""
    for frame in dict.fromkeys(entry.frame for entry in entries if entry.frame):
        own = [entry for entry in entries if entry.frame == frame]
        starts = (msgspec.json.decode(entry.text, type=_Start) for entry in own if entry.name == FRAME)
        stack = next(starts, _Start()).stack
        last = stack[-1] if stack else _Place()
        line = f"line {last.line} {last.loc}".rstrip() if last.line else ""
        yield Frame(frame, last.name, line, parts_of(own), failures.get(frame))


class _Place(msgspec.Struct, frozen=True):
    """A frame of a stack in torch's trace log."""

    name: str = ""
    line: int = 0
    loc: str | None = ""


class _Start(msgspec.Struct, frozen=True):
    """The metadata of the entry with which a frame starts."""

    stack: tuple[_Place, ...] = ()


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

    with hooked.replaced(ddefuzz_log_graph_break):
        yield seen


def _each_once(seen: list[tuple[str, Observation]]) -> tuple[Break, ...]:
    """The breaks by site and line. A call that is not inlined is traced on its own, and breaks again at the same line:
    the reason is the last one.
    """
    breaks: dict[tuple[str, ...], Break] = {}
    for reason, observed in seen:
        cause = failure_of(observed)
        if cause is not None:
            key = (cause.kind, cause.site, cause.anchor, cause.line)
            count = breaks[key].count + 1 if key in breaks else 1
            breaks[key] = Break(_shortened(reason), cause, count)
    return tuple(breaks.values())


def _shortened(reason: str) -> str:
    """What dynamo says, up to the advice about logs."""
    lines = [line.rstrip() for line in reason.splitlines() if line.strip()]
    end = next((at for at, line in enumerate(lines) if line.startswith("For more information")), REASON_LINES)
    return "\n".join(lines[: min(end, REASON_LINES)])
