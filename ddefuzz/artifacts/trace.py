"""Torch's trace log (TORCH_TRACE): its entries as texts that people read, in the frames of dynamo that made them."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from ddefuzz.artifacts.graph import assertions_in, assertions_in_code, count_of
from ddefuzz.artifacts.model import Part, PartKind
from ddefuzz.instrument import torch_api
from ddefuzz.oracles.kernels import kernels_in


class Entry(NamedTuple):
    """An entry of the log: its name (`aot_forward_graph`), its text, and the frame of dynamo in which it was written:
    `1/0` is the second frame, compiled for the first time. Empty outside of a frame.
    """

    name: str
    text: str
    frame: str = ""


GRAPHS = {
    "dynamo_output_graph": "dynamo graph",
    "aot_joint_graph": "joint graph",
    "aot_inference_graph": "forward graph",
    "aot_forward_graph": "forward graph",
    "aot_backward_graph": "backward graph",
    "inductor_post_grad_graph": "graph that inductor lowers",
    "make_fx_fail_partial": "graph up to the failure",
}
"""The graphs, by the name of the entry. Without gradients torch writes the inference graph."""

CODE = "inductor_output_code"
GUARDS = "dynamo_cpp_guards_str"
FRAME = "dynamo_start"
EVENT = "chromium_event"
BEFORE_FUSION, AFTER_FUSION = "ir_pre_fusion", "ir_post_fusion"
KERNELS_OF_NODES = "inductor_provenance_tracking_node_mappings"

PASSES = {
    "pre-grad passes": ("before_pre_grad_graph", "after_pre_grad_graph"),
    "post-grad passes": ("before_post_grad_graph", "inductor_post_grad_graph"),
    "fusion": (BEFORE_FUSION, AFTER_FUSION),
}
"""What inductor changes in one step: the entries before and after it, of which the diff is a part."""

ORDER = (*dict.fromkeys(GRAPHS.values()), "generated code", "guards", *PASSES)
"""The order of parts on a page. Other graphs come first, other entries last."""

WITHOUT_PAYLOAD = ("compilation_metrics", "bwd_compilation_metrics", FRAME)
"""Entries whose metadata is their text. Others without a payload are tables for tools: names of files, tensors."""

TIMELINE = "timeline"
"""The part with the events of a compilation, as Chrome's and Perfetto's trace viewers read them."""

_RESUME = re.compile(r"^torch_dynamo_resume_in_\w+_(?=ORIGINAL|MODIFIED)")
_SYMBOLIC_GUARD = re.compile(r"SYMBOLIC_SHAPE_GUARD|LAMBDA_GUARD: .*\.size\(\)")
_ADDRESS = re.compile(r"\b(?:\d{12,}|0x[0-9a-f]{6,})\b")

OWN_FOLDER = str(Path(__file__).parents[1])
OWN = "ddefuzz/"
"""How the names of ddefuzz's own files start in graphs."""

SUFFIXES: Mapping[PartKind, str] = {"graph": "py", "code": "py", "guards": "txt", "diff": "diff", "log": "txt"}


@contextmanager
def traced() -> Iterator[list[Entry]]:
    """The entries that are written meanwhile. Inductor also writes its IR before and after fusion, and the kernel of
    each node, and AOTAutograd lowers the backward graph at once.
    """
    entries: list[Entry] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # torch passes its metadata and its text as attributes of the record.
            metadata: dict[str, Any] = getattr(record, "metadata", {})
            entries.extend(_entry(metadata, getattr(record, "payload", None)))

    def noted(name: str, nodes: Any) -> None:
        text = torch_api.bound(torch_api.IR_TEXT)(nodes)
        entries.append(Entry(name, str(text), entries[-1].frame if entries else ""))

    log: logging.Logger = torch_api.TRACE_LOG.get()
    listener, level = Listener(), log.level
    with ExitStack() as stack:
        provenance, at_once = {torch_api.PROVENANCE: 1}, {torch_api.BACKWARD_AT_ONCE: True}
        stack.enter_context(torch_api.changed_settings(torch_api.INDUCTOR_CONFIG, provenance))
        stack.enter_context(torch_api.changed_settings(torch_api.AOT_CONFIG, at_once))
        stack.enter_context(torch_api.IR_BEFORE_FUSION.replaced(partial(noted, BEFORE_FUSION)))
        stack.enter_context(torch_api.IR_AFTER_FUSION.replaced(partial(noted, AFTER_FUSION)))
        stack.callback(log.setLevel, level)
        stack.callback(log.removeHandler, listener)
        log.addHandler(listener)
        log.setLevel(logging.DEBUG)
        yield entries


def _entry(metadata: Mapping[str, Any], payload: object) -> Iterator[Entry]:
    name, value = next(iter(metadata.items()), ("", None))
    frame = "{frame_id}/{frame_compile_id}".format_map(metadata) if "frame_compile_id" in metadata else ""
    if isinstance(payload, str):
        # An artifact is named by its own name.
        yield Entry(str(value.get("name", name)) if isinstance(value, dict) else name, payload, frame)
    elif name in WITHOUT_PAYLOAD:
        yield Entry(name, json.dumps(value, indent=1, default=str), frame)


def parts_of(entries: Sequence[Entry]) -> tuple[Part, ...]:
    """The entries as parts, in the order of pages, and what inductor's passes changed as diffs."""
    made = [_part(entry) for entry in entries if entry.name not in (FRAME, EVENT)]
    events = [entry.text for entry in entries if entry.name == EVENT]
    if events:
        made.append(Part(TIMELINE, f"{TIMELINE}.json", "log", "[" + ",\n".join(events) + "]\n"))
    texts = {name: [_readable(entry.text) for entry in entries if entry.name == name] for name in _PASSED}
    for step, (before, after) in PASSES.items():
        for old, new in zip(texts[before], texts[after], strict=False):
            lines = unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), before, after)
            if text := "".join(lines):
                made.append(Part(step, f"{_file(step)}.diff", "diff", text))
    return _numbered(made)


_PASSED = tuple(name for names in PASSES.values() for name in names)


def _part(entry: Entry) -> Part:
    if entry.name in GRAPHS:
        return part_of(GRAPHS[entry.name], "graph", entry.text)
    if entry.name == CODE:
        return part_of("generated code", "code", entry.text)
    if entry.name == GUARDS:
        return part_of("guards", "guards", entry.text)
    name = entry.name if "." in entry.name else _RESUME.sub("", entry.name).replace("_", " ").lower()
    return part_of(name, "log", entry.text)


def part_of(name: str, kind: PartKind, raw: str) -> Part:
    """A text as people read it, with the lines that check something, and its count."""
    text = _readable(raw)
    marked, number = tuple[int, ...](), 0
    match kind:
        case "graph":
            marked, number = assertions_in(text), count_of(text)
        case "code":
            marked, number = assertions_in_code(text), kernels_in(text).number
        case "guards":
            lines = enumerate(text.splitlines(), 1)
            marked, number = tuple(at for at, line in lines if _SYMBOLIC_GUARD.search(line)), text.count("+- ")
    suffix = "json" if kind == "log" and text.startswith(("{", "[")) else SUFFIXES[kind]
    return Part(name, f"{_file(name)}.{suffix}", kind, text, marked, number)


def _file(name: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", name)


def _readable(text: str) -> str:
    """The text without what differs from run to run, and without this machine's folders."""
    text = _ADDRESS.sub("…", text).replace(str(Path(torch.__file__).parents[1]) + "/", "")
    return text.replace(OWN_FOLDER + "/", OWN).replace(f"{Path.cwd()}/", "").strip("\n") + "\n"


def _numbered(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts in the order in which stages make them, with a number where one made several of a name (inductor: of
    the forward graph, then of the backward graph).
    """
    numbers: Counter[str] = Counter()
    made = []
    for part in parts:
        numbers[part.name] += 1
        number = numbers[part.name]
        stem, _, suffix = part.file.rpartition(".")
        named = msgspec.structs.replace(part, name=f"{part.name} {number}", file=f"{stem}-{number}.{suffix}")
        made.append(part if number == 1 else named)
    return tuple(sorted(made, key=_place))


def _place(part: Part) -> tuple[bool, list[bool]]:
    return part.kind == "log", [part.name.startswith(name) for name in reversed(ORDER)]
