"""Runs a stage in this process, and collects what it made; with fullgraph=False, where dynamo ends a graph."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import msgspec
import torch
from torch.fx import GraphModule

from ddefuzz.artifacts.graph import GraphNode, assertions_in, assertions_in_code, count_of, nodes_of, symbols_in
from ddefuzz.artifacts.model import (
    DIFFED,
    Break,
    GraphBreaks,
    Link,
    MakeTask,
    Part,
    PartKind,
    StageOutput,
    Symbol,
    failure_of,
)
from ddefuzz.execute.observe import captured_output, clean_slate, failed_by, kept_apart, observe_in
from ddefuzz.execute.preparation import PreparedSubject
from ddefuzz.execute.protocol import Observation, Run, Subject
from ddefuzz.execute.stages import Capture, StageFunction, as_compiled, mark, stage_function
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.guards import watch
from ddefuzz.instrument.recorder import Recorder
from ddefuzz.oracles.kernels import kernels_in


@contextmanager
def traced() -> Iterator[list[tuple[str, str]]]:
    """The entries of torch's trace log that are written meanwhile: names (`aot_forward_graph`) and texts."""
    entries: list[tuple[str, str]] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # torch passes its metadata and its text as attributes of the record.
            metadata: dict[str, Any] = getattr(record, "metadata", {})
            text = getattr(record, "payload", None)
            if metadata and isinstance(text, str):
                name, value = next(iter(metadata.items()))
                # An artifact is named by its own name.
                entries.append((value.get("name", name) if isinstance(value, dict) else name, text))

    log: logging.Logger = torch_api.TRACE_LOG.get()
    listener, level = Listener(), log.level
    log.addHandler(listener)
    log.setLevel(logging.DEBUG)
    try:
        yield entries
    finally:
        log.removeHandler(listener)
        log.setLevel(level)


GRAPHS = {
    "dynamo_output_graph": "dynamo graph",
    "aot_joint_graph": "joint graph",
    "aot_inference_graph": "forward graph",
    "aot_forward_graph": "forward graph",
    "aot_backward_graph": "backward graph",
    "inductor_post_grad_graph": "graph that inductor lowers",
    "make_fx_fail_partial": "graph up to the failure",
}
"""The graphs in torch's trace log, by the name of the entry. Without gradients torch writes the inference graph."""

ORDER = (*dict.fromkeys(GRAPHS.values()), "generated code", "guards")
"""The order of parts on a page. Others come first."""

GUARDS = "dynamo_cpp_guards_str"
KERNELS_OF_NODES = "inductor_provenance_tracking_node_mappings"

_SYMBOLIC_GUARD = re.compile(r"SYMBOLIC_SHAPE_GUARD|LAMBDA_GUARD: .*\.size\(\)")
_HANDLE = re.compile(r":\d+$")
"""The number that inductor adds to the name of a kernel: `extern_kernels.mm:1`."""

OWN_FOLDER = str(Path(__file__).parents[1])
_OWN = "ddefuzz/"
"""How the names of ddefuzz's own files start in graphs."""

_ADDRESS = re.compile(r"\b(?:\d{12,}|0x[0-9a-f]{6,})\b")


def make(task: MakeTask) -> StageOutput:
    """Run the stage once. Whatever it raises becomes the failure of the record."""
    entries: list[tuple[str, str]] = []
    own: list[Part] = []
    ranges: dict[str, str] = {}

    def then(capture: Capture) -> None:
        if task.stage in ("export", "export-strict"):
            own.append(part_of("export graph", "graph", capture.graph.print_readable(print_output=False)))
        own.extend(part_of("generated code", "code", code) for code in capture.generated())
        ranges.update(ranges_of(capture))

    stage = partial(_listened, stage_function(task.stage, called=False), entries)
    make_subject = prepare if task.stage != "export" else _prepared_as_forward
    run = Run(task.subject, task.stage, task.semantics)
    observed = observe_in(stage, lambda: make_subject(task.subject), run, then)
    graphs = [part_of(GRAPHS[name], "graph", text) for name, text in entries if name in GRAPHS]
    guards = [part_of("guards", "guards", text) for name, text in entries if name == GUARDS]
    parts = _numbered([*graphs, *guards, *own])
    graph = next((part.text for part in parts if part.name == DIFFED[task.stage]), "")
    kernels = next((kernels_of(text) for name, text in entries if name == KERNELS_OF_NODES), {})
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
                "input" if node.source.startswith(_OWN) else node.op or "input",
                user_line(node),
            )
            for name, node in symbols_in(graph).items()
        ),
        links=tuple(
            Link(user_line(node), node.name, node.op, kernels.get(node.name, ""))
            for node in nodes_of(graph)
            if node.expression
        ),
        fallbacks=observed.guards,
        seconds=round(observed.seconds, 3),
    )


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


def _listened(stage: StageFunction, entries: list[tuple[str, str]], prepared: PreparedSubject) -> Capture | None:
    """The stage, with torch's log of what it makes. The backward graph is lowered at once."""
    provenance = torch_api.changed_settings(torch_api.INDUCTOR_CONFIG, {torch_api.PROVENANCE: 1})
    at_once = torch_api.changed_settings(torch_api.AOT_CONFIG, {torch_api.BACKWARD_AT_ONCE: True})
    with provenance, at_once, traced() as log:
        try:
            return stage(prepared)
        finally:
            entries.extend(log)


def _readable(text: str) -> str:
    """The text without what differs from run to run, and without this machine's folders."""
    text = _ADDRESS.sub("…", text).replace(str(Path(torch.__file__).parents[1]) + "/", "")
    return text.replace(OWN_FOLDER + "/", _OWN).replace(f"{Path.cwd()}/", "").strip("\n") + "\n"


def part_of(name: str, kind: PartKind, raw: str) -> Part:
    """A text as people read it, with the lines that check something, and its count."""
    text = _readable(raw)
    match kind:
        case "graph":
            marked, number = assertions_in(text), count_of(text)
        case "code":
            marked, number = assertions_in_code(text), kernels_in(text).number
        case "guards":
            lines = enumerate(text.splitlines(), 1)
            marked, number = tuple(at for at, line in lines if _SYMBOLIC_GUARD.search(line)), text.count("+- ")
    suffix = "txt" if kind == "guards" else "py"
    return Part(name, f"{name.replace(' ', '-')}.{suffix}", kind, text, marked, number)


def _numbered(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts in the order in which stages make them, with a number where one made several of a name (inductor: of
    the forward graph, then of the backward graph).
    """
    numbers: Counter[str] = Counter()
    made = []
    for part in parts:
        numbers[part.name] += 1
        number = numbers[part.name]
        file = part.file.replace(".", f"-{number}.", 1)
        made.append(part if number == 1 else msgspec.structs.replace(part, name=f"{part.name} {number}", file=file))
    return tuple(sorted(made, key=lambda part: [part.name.startswith(name) for name in reversed(ORDER)]))


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
    return "" if node.source.startswith(_OWN) else node.source


REASON_LINES = 12
"""The lines that are kept of what dynamo says."""


def find_breaks(subject: Subject) -> GraphBreaks:
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
    return GraphBreaks(len(graphs), _each_once(seen), error)


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
