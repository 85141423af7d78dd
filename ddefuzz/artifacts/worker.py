"""Runs a stage in this process, and collects what it made."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import msgspec
import torch

from ddefuzz.artifacts.caches import cache_uses
from ddefuzz.artifacts.graph import GraphNode, nodes_of, symbols_in
from ddefuzz.artifacts.kernels import time_kernels
from ddefuzz.artifacts.model import (
    DIFFED,
    Link,
    MakeTask,
    Part,
    Source,
    StageOutput,
    Symbol,
    failure_of,
)
from ddefuzz.artifacts.trace import CODE, KERNELS_OF_NODES, OWN, Entry, part_of, parts_of, traced
from ddefuzz.execute.observe import observe_in
from ddefuzz.execute.preparation import PreparedSubject
from ddefuzz.execute.protocol import Run, Subject
from ddefuzz.execute.stages import Capture, StageFunction, stage_function
from ddefuzz.execute.subject import prepare

T = TypeVar("T")

_HANDLE = re.compile(r":\d+$")
"""The number that inductor adds to the name of a kernel: `extern_kernels.mm:1`."""


def make(task: MakeTask) -> StageOutput:
    """Run the stage once. Whatever it raises becomes the failure of the record."""
    entries: list[Entry] = []
    own: list[Part] = []
    ranges: dict[str, str] = {}

    def then(capture: Capture) -> None:
        if task.stage in ("export", "export-strict"):
            own.append(part_of("export graph", "graph", capture.graph.print_readable(print_output=False)))
        entries.extend(Entry(CODE, code) for code in capture.generated())
        ranges.update(ranges_of(capture))

    stage = partial(_listened, stage_function(task.stage, called=False), entries)
    make_subject = prepare if task.stage != "export" else _prepared_as_forward
    run = Run(task.subject, task.stage, task.semantics)
    observed = observe_in(stage, lambda: make_subject(task.subject), run, then)
    parts = (*own, *parts_of(entries))
    graph = next((part.text for part in parts if part.name == DIFFED[task.stage]), "")
    kernels = next((kernels_of(entry.text) for entry in entries if entry.name == KERNELS_OF_NODES), {})
    links = tuple(
        Link(user_line(node), node.name, node.op, kernels.get(node.name, ""), node.number)
        for node in nodes_of(graph)
        if node.expression
    )
    timed, again = task.timed and observed.outcome == "ok", partial(prepare, task.subject)
    return StageOutput(
        stage=task.stage,
        semantics=str(task.semantics),
        outcome=observed.outcome,
        reason=observed.reason,
        failure=failure_of(observed),
        parts=parts,
        symbols=tuple(
            Symbol(
                name,
                ranges.get(name, ""),
                "input" if node.source.startswith(OWN) else node.op or "input",
                user_line(node),
            )
            for name, node in symbols_in(graph).items()
        ),
        links=links,
        fallbacks=observed.guards,
        seconds=round(observed.seconds, 3),
        kernels=_collected(task, lambda prepared: time_kernels(prepared, again)) if timed else (),
        caches=_collected(task, lambda _: cache_uses(again)) if timed else (),
        sources=tuple(sources_of(links)),
    )


def _collected(task: MakeTask, collect: Callable[[PreparedSubject], Iterable[T]]) -> tuple[T, ...]:
    """What is collected of the subject, compiled for real; nothing if its code cannot be compiled or called."""
    collected: list[T] = []

    def stage(prepared: PreparedSubject) -> None:
        collected.extend(collect(prepared))

    observe_in(stage, lambda: prepare(task.subject), Run(task.subject, task.stage, task.semantics))
    return tuple(collected)


BESIDE = 2
"""The lines of a file that are shown before the first line that made a node, and after the last."""


def sources_of(links: Iterable[Link]) -> Iterator[Source]:
    """The lines of the user's files that made nodes, with those between. torch's own files are left out."""
    numbers: dict[str, list[int]] = {}
    for link in links:
        if (place := link.place) is not None:
            numbers.setdefault(place[0], []).append(place[1])
    for file, lines in numbers.items():
        path = file if Path(file).is_absolute() else str(Path.cwd() / file)
        text = linecache.getlines(path) or linecache.getlines(file)
        first = max(1, min(lines) - BESIDE)
        if text and not file.startswith("torch/"):
            yield Source(file, first, "".join(text[first - 1 : max(lines) + BESIDE]))


def _prepared_as_forward(subject: Subject) -> PreparedSubject:
    """The subject, whose function is called `forward`: non-strict export keeps the lines of such functions only
    (torch/fx/experimental/proxy_tensor.py).
    """
    prepared = prepare(subject)
    call = prepared.call
    if not isinstance(call, FunctionType):
        return prepared
    code = call.__code__.replace(co_name="forward")
    named = FunctionType(code, call.__globals__, call.__name__, call.__defaults__, call.__closure__)
    named.__kwdefaults__ = call.__kwdefaults__
    return replace(prepared, call=named)


def _listened(stage: StageFunction, entries: list[Entry], prepared: PreparedSubject) -> Capture | None:
    """The stage, with torch's log of what it makes."""
    with traced() as log:
        try:
            return stage(prepared)
        finally:
            entries.extend(log)


def ranges_of(capture: Capture) -> dict[str, str]:
    """The range of each symbol in the values of a captured graph, as the ShapeEnv of the capture has it."""
    ranges: dict[str, str] = {}
    most = torch.iinfo(torch.int64).max
    for node in capture.graph.graph.nodes:
        for size in _sizes(node.meta.get("val", node.meta.get("example_value"))):
            for symbol in size.node.expr.free_symbols:
                if str(symbol) not in ranges:
                    bounds = size.node.shape_env.bound_sympy(symbol)
                    low, high = bounds.lower, bounds.upper
                    lower = "-∞" if not low.is_finite or low <= -most - 1 else low
                    upper = "∞" if not high.is_finite or high >= most - 1 else high
                    ranges[str(symbol)] = f"{lower} to {upper}"
    return ranges


def _sizes(value: Any) -> Iterator[Any]:
    match value:
        case torch.SymInt():
            yield value
        case torch.Tensor() if value.layout == torch.strided:
            yield from _sizes(tuple(value.shape))
        case list() | tuple():
            for item in value:
                yield from _sizes(item)


def kernels_of(mapping: str) -> dict[str, str]:
    """The kernel of each node, from inductor's log of provenance."""
    by_node: dict[str, list[str]] = {}
    for kernel, nodes in msgspec.json.decode(mapping).get("cppCodeToPost", {}).items():
        for node in nodes:
            by_node.setdefault(node, []).append(_HANDLE.sub("", kernel))
    return {node: ", ".join(dict.fromkeys(kernels)) for node, kernels in by_node.items()}


def user_line(node: GraphNode) -> str:
    """The line of the user's code that made a node. Empty if torch kept only a line of ddefuzz: of the code that gives
    a program its inputs with unbacked sizes.
    """
    return "" if node.source.startswith(OWN) else node.source
