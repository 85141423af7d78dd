"""The records between a campaign and the processes that run its cases: runs to do, and observations.

This module does not import torch. Oracles, classification and minimizing use only these records; their tests make
them by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from ddefuzz.errors import InputError
from ddefuzz.instrument.events import (
    Answer,
    AnsweredGuard,
    Constraint,
    Fault,
    Frame,
    Guard,
    Mechanism,
    Place,
    RaisedError,
)
from ddefuzz.ops import catalogue
from ddefuzz.program.model import Program
from ddefuzz.program.sizes import CallSize
from ddefuzz.program.text import is_key

What: TypeAlias = Literal[
    "structure",
    "number",
    "dtype",
    "shape",
    "values",
    "strides",
    "mutation",
    "gradient",
    "requires_grad",
    "alias",
    "placement",
    "global state",
]
Agreement: TypeAlias = Literal["same", "differs", "incomparable"]


class CallEnd(msgspec.Struct, frozen=True):
    """How a call ended. `error` is the class and the first line of the message of the exception, empty if it returned.

    `expression` is the condition of a run-time assertion that failed, as torch printed it; empty for other errors.
    `follows` is the assertion that torch derived this condition from, empty if it made the condition itself. `frames`
    are those of a data-dependent error; a call has real sizes, so that a size of the trace was left in what it ran.
    """

    error: str = ""
    expression: str = ""
    follows: str = ""
    frames: tuple[Frame, ...] = ()

    @property
    def returned(self) -> bool:
        """Whether the call returned a result."""
        return not self.error


class Difference(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """One thing in which the captured program differs from eager.

    `where` names the value (`result[0]`, `input x`), `how` says how much in one line. `frames` are the lines of the
    user's code, and of torch's modules, that made the value in an exported program, as its graph has them.
    """

    what: What
    where: str
    how: str
    frames: tuple[Frame, ...] = ()

    def __str__(self) -> str:
        """In one line: `values of result[0]: …`, `gradient 0: …`."""
        return f"{self.where if self.what == 'gradient' else f'{self.what} of {self.where}'}: {self.how}"


class NodeDifference(msgspec.Struct, frozen=True):
    """The first node of a captured graph of whose value the graph says what is not so (`meta["val"]`).

    `target` is what the node calls, `op` the op of which the fake kernel is wrong: that, or one inside of it. `file`
    and `function` are the kernel, empty if it is not in Python. `lowered` says that the graph is AOTAutograd's.
    """

    target: str
    what: What
    how: str
    op: str
    file: str = ""
    function: str = ""
    lowered: bool = False


class Call(msgspec.Struct, frozen=True):
    """One call of a captured program and of eager, at the data sizes of this name.

    `symbols` are the values of the capture's unbacked symbols in this call, as far as they are known. `failing` is the
    condition of the first assertion of the traced graph that is not true in this call. `agreement` is None if one of
    the two did not return. `accepted` are differences that explicit unbacked semantics allow. `why` says why results
    are incomparable. `same` are other sizes that lead to the same inputs: they are called once. `node` is what the
    graph says wrongly of a value, looked for in some calls. `everywhere` says whether values of DTensors were compared
    in all processes: `compared`, or why not. It is empty if no input spans processes.
    """

    size: CallSize
    eager: CallEnd
    captured: CallEnd
    agreement: Agreement | None = None
    differences: tuple[Difference, ...] = ()
    accepted: tuple[Difference, ...] = ()
    why: str = ""
    symbols: tuple[tuple[str, int | float], ...] = ()
    failing: str = ""
    recompiled: bool = False
    same: tuple[CallSize, ...] = ()
    node: NodeDifference | None = None
    everywhere: str = ""


ACCEPTED: Final[frozenset[What]] = frozenset({"alias", "placement"})
"""A fallback may take the general path: a copy where eager returns a view. The program cannot see it without mutation,
and a mutation is compared by its effect. So it is with a DTensor that is sharded where eager has gathered it.
"""


ONLY_IN_EAGER: Final = "only in eager"
"""The end of the line of a difference of memory that is shared in eager and not when captured."""


NO_VALUES: Final = "none: a fake tensor, eager has a real one"
"""The line of a difference of values, if a captured program returns a tensor of its own trace."""

EXPANDED: Final = " (expanded)"
"""The end of the line of a difference of strides, if eager's tensor is an expanded view and the captured one is not."""


def is_accepted(difference: Difference, among: Iterable[Difference]) -> bool:
    """Whether explicit unbacked semantics allow a difference, `among` all those of its call.

    A difference in aliasing is allowed, and one in the placements of a DTensor. So are the strides of a copy where
    eager returns a view, of another tensor or of its own elements.
    """
    if difference.what != "strides":
        return difference.what in ACCEPTED
    if difference.how.endswith(EXPANDED):
        return True
    return any(
        other.what == "alias" and other.where == difference.where and other.how.endswith(ONLY_IN_EAGER)
        for other in among
    )


def differs(call: Call) -> bool:
    """Whether eager and the captured program differ in a call: in their results, or only one of them returned."""
    return call.agreement == "differs" or call.eager.returned != call.captured.returned


def harm(call: Call) -> int:
    """How bad a difference is, in the order of the severities of kinds: 4 for other values, 3 for other strides alone
    or a graph that says something wrong, 2 if only the captured program returned, 1 if only eager did, 0 for none.
    """
    if not differs(call):
        return 0 if call.node is None else 3
    if call.agreement == "differs":
        return 4 if any(one.what != "strides" for one in call.differences) else 3
    return 2 if call.captured.returned else 1


FormName: TypeAlias = Literal["traced", "lowered", "generated"]
"""
traced     the graph that the frontend captured: that of torch.export, or dynamo's, which a backend gets
lowered    the forward graph that AOTAutograd makes of it
generated  the Python code that inductor makes of that
"""


class RuntimeAssertion(msgspec.Struct, frozen=True):
    """One run-time assertion of a captured program.

    `message` is what it says when it fails. `own` says that the user's code makes it at this place, by
    `torch._check`. `after` are the ops before it that use its sizes: they run unprotected.
    """

    condition: str
    message: str
    own: bool = False
    after: tuple[str, ...] = ()


class Form(msgspec.Struct, frozen=True):
    """A captured program in one of its forms, with its assertions in order."""

    name: FormName
    assertions: tuple[RuntimeAssertion, ...]


def condition_of(message: str, forms: Iterable[Form]) -> str:
    """The condition of the assertion with this message; empty if there is none."""
    asserted = (one for form in forms for one in form.assertions)
    return next((one.condition for one in asserted if one.message == message), "")


Stage: TypeAlias = str
"""The name of a way to run a program: one of `STAGES`, or one that an oracle brings (`oracles.table.stages`)."""


class Retrace(NamedTuple):
    """What users do with a captured program: it is captured in the stage `begins`, then `how`.

    `compiles` says that its C++ is compiled before a call. `owners` is the label of a test file's owners in PyTorch.
    """

    begins: Stage
    how: str
    compiles: bool = False
    owners: str = "oncall: export"


DECOMPOSED: Stage = "aot-decomposed"
"""The graphs of AOTAutograd after inductor's decompositions. They run as they are, without C++."""

RETRACES: Mapping[Stage, Retrace] = MappingProxyType(
    {
        "decompose": Retrace("export", "run_decompositions()"),
        "reexport": Retrace("export", "export of the exported program's module"),
        "saved": Retrace("export", "torch.export.save and load"),
        "unflatten": Retrace("export", "torch.export.unflatten"),
        "aoti": Retrace("export", "AOTInductor", compiles=True, owners="module: aotinductor"),
        DECOMPOSED: Retrace("aot", "inductor's decompositions", owners="module: decompositions"),
        "cpp-wrapper": Retrace("inductor", "cpp_wrapper", compiles=True, owners="module: inductor"),
    }
)
"""The stages that go on where another one ends. If that one fails, it is what the observation of a run is of."""

FRONTENDS: tuple[Stage, ...] = ("export", "export-strict", "compile", "aot")
"""The captures whose result is a graph that runs as it is."""

SAYS_VALUES: tuple[Stage, ...] = (*FRONTENDS, "decompose", "reexport")
"""The stages whose graphs say of their values what fake kernels computed. Those of other stages are not their own, or
do not say which values share memory (`saved`).
"""

CAPTURE_STAGES: tuple[Stage, ...] = (*FRONTENDS, "inductor", *RETRACES)

TRACED: tuple[Stage, ...] = ("fake", *CAPTURE_STAGES)  # the stages that evaluate guards, so that semantics matter

STAGES: tuple[Stage, ...] = ("eager", *TRACED)
"""The stages that several oracles judge: eager, FakeTensorMode, and the captures."""

DEFAULT_STAGES: tuple[Stage, ...] = ("export", "export-strict", "compile")
"""The stages of a campaign and of a check."""

CHEAP_RETRACES: tuple[Stage, ...] = tuple(stage for stage, row in RETRACES.items() if not row.compiles)

AFTER_EXPORT: tuple[Stage, ...] = tuple(stage for stage in CHEAP_RETRACES if RETRACES[stage].begins == "export")
"""What users do with an exported program, without C++."""

CHEAP_TO_CALL: tuple[Stage, ...] = (*FRONTENDS, *CHEAP_RETRACES)
"""The stages whose captured programs are called at no more than the cost of a capture."""

COMPILES: tuple[Stage, ...] = tuple(stage for stage in CAPTURE_STAGES if stage not in CHEAP_TO_CALL)
"""The stages that compile C++ first. They choose freely among equal values, and `as_strided` checks nothing there."""

SCREEN: Stage = "fake"  # the stage that runs before a capture, at a fifth of its cost

Record = TypeVar("Record", bound=msgspec.Struct)

Outcome: TypeAlias = Literal["ok", "fail", "crash", "timeout", "not-judged"]


class Semantics(msgspec.Struct, frozen=True):
    """How an undecided guard is answered.

    `without` withholds the fallback at the named places and `faults` are wrong assumptions there (planted faults).
    `answers` are those of an experiment.
    """

    mechanism: Mechanism = "explicit"
    without: tuple[Place, ...] = ()
    answers: tuple[Answer, ...] = ()
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        places = ",".join(f"{place.file}:{place.line}" for place in self.without)
        answers = ",".join(f"{one.place.file}:{one.place.line}={one.value}" for one in self.answers)
        faults = ",".join(f"{one.kind} {one.place.file}:{one.place.line}" for one in self.faults)
        parts = ((" without ", places), (" with ", answers), (" and ", faults))
        return self.mechanism + "".join(f"{word}{text}" for word, text in parts if text)


EXPLICIT = Semantics()
SIZE_OBLIVIOUS = Semantics("size-oblivious")


class ProgramSubject(msgspec.Struct, frozen=True, tag="program"):
    """A generated or stored program, by its text form; with `backed` its dims with a symbol are dynamic, but backed."""

    text: str
    backed: bool = False

    def program(self, where: str = "<program>") -> Program:
        """The program. Raises ProgramError, which names `where`, if the text is not one of the catalogue."""
        return catalogue.parse(self.text, where).program


class CallableSubject(msgspec.Struct, frozen=True, tag="callable"):
    """The user's own code, which is executed to be read: `FILE:NAME`, or one case of a module with `CASES`.

    `path` is a file, the name of a module (`package.module`), or a saved exported program (`.pt2`). Exactly one of
    `name` and `case` is set, none for a saved program. `unbacked` is what `check --unbacked` was given. With `static`,
    all sizes of the arguments are static; with `backed`, those that would be unbacked are `Dim.AUTO`.
    """

    path: str
    name: str | None = None
    case: str | None = None
    unbacked: str = ""
    static: bool = False
    backed: bool = False


class KeySubject(msgspec.Struct, frozen=True, tag="key"):
    """A case of a key function, as text. Without `trust`, only a function of `KEY_FUNCTIONS` is called."""

    text: str
    trust: bool = False


Subject: TypeAlias = ProgramSubject | CallableSubject | KeySubject


def subject_of(text: str, *, trust: bool = False) -> ProgramSubject | KeySubject:
    """The subject that a stored text is: a program, or a case of a key function."""
    return KeySubject(text, trust) if is_key(text) else ProgramSubject(text)


class Part(msgspec.Struct, frozen=True):
    """A part of inductor that a run may leave out (`execute.parts`): a function in a file of torch. `name` says of
    which one of several that it makes (an op, a pass).
    """

    group: str
    file: str
    function: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.group}: {self.file}:{self.function} {self.name}".rstrip()


class Run(msgspec.Struct, frozen=True):
    """One run to do: capture the subject, then call what was captured at the sizes `calls`.

    `graph` requests the graph's text. It costs time and is compared only if answers differ. With `answer_guards`, every
    undecided guard that would raise is answered, so that the capture continues to the next one. What was captured is
    not called if its digest is `called` (see `Observation.digest`): another run has called the same. `seed` is that of
    the drawn sizes. `out` are the parts of inductor that it leaves out, groups by name and others by their text, and
    `symbols` the sizes by which its questions are answered then.
    """

    subject: Subject
    stage: Stage
    semantics: Semantics = EXPLICIT
    graph: bool = False
    calls: tuple[CallSize, ...] = ()
    answer_guards: bool = False
    called: str = ""
    seed: int = 0
    out: tuple[str, ...] = ()
    symbols: tuple[tuple[str, int | float], ...] = ()


class PatchedRun(msgspec.Struct, frozen=True):
    """A run with the text `source` in place of a file of torch, named as in frames (`torch/_refs/__init__.py`).

    With `eager`, nothing is captured: the calls compare eager with the change (as captured) with eager without it.
    """

    run: Run
    file: str
    source: str
    eager: bool = False


class ExceptionInfo(msgspec.Struct, frozen=True):
    """One exception of the chain: its class's qualified name (`torch.fx…GuardOnDataDependentSymNode`), message,
    frames.

    `frames` are those of its `__traceback__`. `traced` is the stack that dynamo was tracing, from the
    exception's `real_stack` (dynamo's own exceptions have one). `native` are the C++ frames under an op that
    raises because its output depends on values (torch's `DataDependentOutputException`), and `maker` is the op
    that made its first argument (`aten.ge.Scalar`). All are outermost first, as in `RaisedError`, and empty if
    unknown.
    """

    type: str
    message: str
    frames: tuple[Frame, ...] = ()
    traced: tuple[Frame, ...] = ()
    native: tuple[Frame, ...] = ()
    maker: str = ""

    @property
    def name(self) -> str:
        """The class's bare name."""
        return self.type.rpartition(".")[2]


class Observation(msgspec.Struct, frozen=True):
    """What one run did.

    `exceptions` is the chain of the final failure: the final one first, then by `__cause__`, else `__context__`.
    `guards` are the guards that took their fallback, in order of first visit. `output` is the end of what the run
    printed. `calls` are the calls of the captured program and of eager, `forms` the assertions that it has.
    `constraints` are those assumptions on unbacked symbols that are not true in some call, or have a message.
    `answered` are the guards that a run with `answer_guards` answered. `unbacked` counts the unbacked symbols that were
    made. `module` is the path of the innermost nn.Module that ran when an exception was raised. `seconds` of the clock
    are those of the capture, as `cpu_seconds` are. `peak_rss_mb` is the resident memory of the worker after the run, in
    10^6 bytes. `measured` is the record of what a stage of an oracle measured, as JSON with its tag (`type`); see
    `measurement`. `digest` is that of a captured program, if it is called or its graph is requested: captures with the
    same digest compute the same. `parts` are those of the groups that a run leaves out, or leaves a part out of.
    """

    stage: Stage
    semantics: Semantics
    outcome: Outcome
    reason: str = ""
    exceptions: tuple[ExceptionInfo, ...] = ()
    raised: RaisedError | None = None
    guards: tuple[Guard, ...] = ()
    graph: str | None = None
    calls: tuple[Call, ...] = ()
    forms: tuple[Form, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    answered: tuple[AnsweredGuard, ...] = ()
    unbacked: int = 0
    module: str = ""
    compiles: int = 0
    cpu_seconds: float = 0.0
    seconds: float = 0.0
    peak_rss_mb: float = 0.0
    output: str = ""
    measured: dict[str, Any] | None = None
    digest: str = ""
    parts: tuple[Part, ...] = ()

    def measurement(self, kind: type[Record]) -> Record | None:
        """What was measured, as its record; None if that is of another kind. Raises InputError for damaged JSON."""
        if self.measured is None or self.measured.get("type") != kind.__struct_config__.tag:
            return None
        try:
            return msgspec.convert(self.measured, kind, str_keys=True)
        except msgspec.ValidationError as error:
            raise InputError(f"found a damaged measurement of the stage {self.stage}: {error}") from error


def measured(record: msgspec.Struct) -> dict[str, Any]:
    """A record with a tag, as the value of `Observation.measured`."""
    as_json: dict[str, Any] = json.loads(json.dumps(msgspec.to_builtins(record, str_keys=True)))
    return as_json


REASON_LIMIT = 2000  # characters kept of the reason for which a run is not judged


def not_judged(run: Run, reason: str) -> Observation:
    """The observation of a run that says nothing of its subject."""
    return Observation(run.stage, run.semantics, "not-judged", reason[:REASON_LIMIT])


Runner: TypeAlias = Callable[[Run], Observation]
"""Runs are done by a function. Tests pass a plain function here and need no torch."""

PatchedRunner: TypeAlias = Callable[[PatchedRun], Observation]
"""The same for runs with a change of torch."""
