"""The records of what the stages make, and the tasks that workers do. Nothing here imports torch."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import decisive
from ddefuzz.classify.site import user_frame
from ddefuzz.execute.protocol import EXPLICIT, Observation, Outcome, Semantics, Stage, Subject
from ddefuzz.execute.worker import Task, late
from ddefuzz.instrument.events import Guard
from ddefuzz.oracles import capture

SCHEMA = "ddefuzz.artifacts/1"

PartKind: TypeAlias = Literal["graph", "code", "guards", "diff", "log"]
"""A `diff` is what a step of inductor changed. A `log` is another entry of torch's trace log."""

DIFFED: dict[Stage, str] = {
    "export": "export graph",
    "export-strict": "export graph",
    "compile": "dynamo graph",
    "aot": "forward graph",
    "inductor": "graph that inductor lowers",
}
"""The graph of each stage that diffs compare."""


class Part(msgspec.Struct, frozen=True):
    """One text that a stage made. `assertions` are the lines that check something, from 1. `nodes` counts those of a
    graph, and the calls of kernels in generated code.
    """

    name: str
    file: str
    kind: PartKind
    text: str
    assertions: tuple[int, ...] = ()
    nodes: int = 0


class Symbol(msgspec.Struct, frozen=True):
    """A symbol of a graph: its range, the op that makes it, the user's line. The op is `input` for a size of an input,
    also where the capture of a program makes it: export of programs selects the elements of inputs by masks.
    """

    name: str
    range: str
    op: str
    line: str = ""


_PLACE = re.compile(r"(.+?):(\d+)(?: |$)")


class Link(msgspec.Struct, frozen=True):
    """The way from a line of the user's code to a node of the graph, and to the kernel that computes it.

    `kernel` is empty in a stage without kernels, and for nodes that need none, such as arithmetic of sizes. `number` is
    the node's line in the graph, from 1.
    """

    line: str
    node: str
    op: str
    kernel: str = ""
    number: int = 0

    @property
    def place(self) -> tuple[str, int] | None:
        """File and number of the user's line; None if there is none."""
        match = _PLACE.match(self.line)
        return (match[1], int(match[2])) if match is not None else None

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, one for each call of one."""
        return tuple(self.kernel.split(", ")) if self.kernel else ()


class Kernel(msgspec.Struct, frozen=True):
    """A kernel that generated code calls: how often, and the CPU microseconds of these calls."""

    name: str
    calls: int
    microseconds: float


class Source(msgspec.Struct, frozen=True):
    """Lines of a file of the user's, from `first` on. `file` is as in the lines of nodes."""

    file: str
    first: int
    text: str


class Cause(msgspec.Struct, frozen=True):
    """A failure, or the exception that breaks a graph, as ddefuzz classifies it. `line` is the user's line."""

    kind: str
    site: str
    anchor: str
    cause: str
    evidence: str
    message: str
    line: str = ""


class Break(msgspec.Struct, frozen=True):
    """A place where torch.compile(fullgraph=False) ends a graph. `reason` is what dynamo says, `count` how often."""

    reason: str
    cause: Cause
    count: int = 1


class Frame(msgspec.Struct, frozen=True):
    """A function that dynamo compiled: the user's, or one with which it resumes after a break.

    `name` is dynamo's: `1/0` is the second function, compiled for the first time. `line` is where the function starts.
    `failure` is that of the stage on the frame's graph.
    """

    name: str
    function: str
    line: str = ""
    parts: tuple[Part, ...] = ()
    failure: Cause | None = None


class GraphBreaks(msgspec.Struct, frozen=True):
    """What torch.compile(fullgraph=False) makes: the number of graphs, the breaks in order of first visit, and the
    frames in the order in which dynamo compiled them.

    `error` is what the call raised, if it did not end.
    """

    graphs: int = 0
    breaks: tuple[Break, ...] = ()
    error: str = ""
    frames: tuple[Frame, ...] = ()


class CacheUse(msgspec.Struct, frozen=True):
    """What a cache of inductor did for a graph in a compilation (1 or 2, of the same): `hit`, `miss` or `bypass`."""

    cache: str
    compilation: int
    use: str
    reason: str = ""


class StageOutput(msgspec.Struct, frozen=True):
    """What one stage made under one semantics. `fallbacks` are the guards that it could not decide, `kernels` the
    kernels of its code and `caches` what inductor's caches did, if it was timed, and `sources` the lines of the user's
    that made nodes.
    """

    stage: Stage
    semantics: str
    outcome: Outcome
    reason: str = ""
    failure: Cause | None = None
    parts: tuple[Part, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    links: tuple[Link, ...] = ()
    fallbacks: tuple[Guard, ...] = ()
    seconds: float = 0.0
    kernels: tuple[Kernel, ...] = ()
    caches: tuple[CacheUse, ...] = ()
    sources: tuple[Source, ...] = ()

    @property
    def assertions(self) -> int:
        """The assertions of the text that runs last: the generated code if there is some, else the graph of diffs."""
        last = next((part for part in self.parts if part.kind == "code"), self.graph)
        return len(last.assertions) if last is not None else 0

    @property
    def graph(self) -> Part | None:
        """The graph that diffs compare."""
        return next((part for part in self.parts if part.name == DIFFED[self.stage]), None)


class Diff(msgspec.Struct, frozen=True):
    """A unified diff of two normalized graphs. Without a text, `note` says why: they are the same, or one is
    missing.
    """

    name: str
    file: str
    text: str
    note: str = ""


class CallAt(msgspec.Struct, frozen=True):
    """One call of a finding's program: the size of its data, and what happened."""

    size: str
    result: str


class About(msgspec.Struct, frozen=True):
    """What a finding reports: `meaning` is that of its kind, `stages` are those in which it was seen.

    `calls` are empty if the capture fails. `shared` says which calls of a finding on recompilation need one graph only.
    """

    title: str
    kind: str
    meaning: str
    stages: tuple[str, ...] = ()
    calls: tuple[CallAt, ...] = ()
    shared: str = ""


class Artifacts(msgspec.Struct, frozen=True):
    """The whole document. `program` is empty for the user's own code. `about` is the finding, if there is one.
    `others` are the same stages elsewhere: under another torch, whose name is the first of the pair.
    """

    torch: str
    target: str
    program: str
    stages: tuple[StageOutput, ...]
    broken: GraphBreaks | None = None
    others: tuple[tuple[str, Artifacts], ...] = ()
    diffs: tuple[Diff, ...] = ()
    about: About | None = None
    schema: str = SCHEMA


class MakeTask(msgspec.Struct, frozen=True):
    """A stage to run for what it makes; `timed` for the times of inductor's kernels, too."""

    subject: Subject
    stage: Stage
    semantics: Semantics = EXPLICIT
    timed: bool = False


make = Task("ddefuzz.artifacts.worker:make", MakeTask, StageOutput)


def find_breaks(task: MakeTask) -> GraphBreaks:
    """Compile with fullgraph=False, and let each part go through the stage."""
    result: GraphBreaks = late("ddefuzz.artifacts.breaks").find_breaks(task.subject, task.stage)
    return result


def version(package: str) -> str:
    """The version of a package in a worker."""
    return str(late(package).__version__)


def failure_of(observed: Observation) -> Cause | None:
    """The failure of a capture, classified; None if there is none."""
    failures = capture.judge([observed])
    return cause_of(capture.classify(failures[0])) if failures else None


def cause_of(classified: Classification) -> Cause:
    """A classified failure. The user's line is the innermost one that dynamo traced, or that ran."""
    observed = classified.failure.observation
    exception = decisive(observed)[1] if observed.exceptions else None
    raised = observed.raised
    stacks = (
        raised.traced if raised is not None else (),
        exception.traced if exception is not None else (),
        raised.python if raised is not None else (),
        exception.frames if exception is not None else (),
    )
    frame = next((found for found in map(user_frame, stacks) if found is not None), None)
    return Cause(
        kind=classified.signature.kind,
        site=str(classified.signature.site),
        anchor=classified.signature.anchor,
        cause=classified.cause,
        evidence=classified.failure.evidence,
        message=exception.message.strip() if exception is not None else "",
        line=f"{frame.file}:{frame.line} {frame.code}".strip() if frame is not None else "",
    )
