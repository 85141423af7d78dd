"""The record of an oracle: the kinds of failures that it reports, with all that belongs to each, and how it judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec

from ddefuzz.classify.cause import Classification, ruled
from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.recognition import ExpectedFailure, by_call
from ddefuzz.classify.rules import current
from ddefuzz.classify.signature import Cause, Signature, Site
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import CHEAP_TO_CALL, RETRACES, STAGES, Observation, Record, Run, Runner, Stage, differs
from ddefuzz.instrument.events import Frame
from ddefuzz.oracles.blame import OracleInput, unknown
from ddefuzz.program.sizes import CallSize

MOST_SLOW = 16
"""How often inductor compiles a program again to find the site of a failure, at 1 to 2 CPU seconds each, and 10 for the
first in a process. It is a number of captures, not of seconds, because a confirmation has to find the same site.
"""

Severity: TypeAlias = Literal[
    "wrong values",
    "ends the process",
    "wrong layout",
    "accepts what eager refuses",
    "refuses what eager accepts",
    "cannot capture",
    "compiles again",
    "slow",
    "minor",
]
"""What a failure does to who uses the captured program, the worst first. Lists are in this order."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)

Locate: TypeAlias = Callable[[Failure, OracleInput, Runner], Location]
"""Finds the site of a failure. It may run the program again."""

Title: TypeAlias = str | Callable[[Classification], str]
"""The default title of a finding: a text with `{site}`, `{anchor}`, `{stage}` and `{evidence}`, or a function."""

Recognize: TypeAlias = Callable[[Classification, bool], ExpectedFailure]
"""The facts by which a stand-alone script recognizes a failure. It is also told whether the script has the program of
the failure, or another one with the same signature."""


CAUGHT = 'found = {"exception": type(error).__name__, "message": str(error).partition("\\n")[0]}'
"""What a script notes of an exception."""


class Script(NamedTuple):
    """What the stand-alone script of a kind has of its own.

    `verdicts` say in its docstring what 1, 0, 3 and 4 mean as its exit code, `needs` what it needs to run. `body` is
    what comes before `main`, with `$expected` and the names of `parts`; their values are code. In `main`, `attempt` is
    tried, and `caught` done if it raises. `expected` are the facts that the script compares. `copied` is the text of a
    module whose functions it copies as `$functions`, from the line of dashes on, with its imports.
    """

    verdicts: tuple[str, str, str, str]
    body: str
    attempt: str
    expected: Mapping[str, str] = {}
    parts: Mapping[str, object] = {}
    copied: str = ""
    caught: str = CAUGHT
    start: str = 'verdict, found = "not judged", None\ntorch.set_num_threads(1)'
    needs: str = "only torch (2.6 or later). It prints one JSON line, and exits with"


MakeScript: TypeAlias = Callable[[str, Stage, Failure], Script]
"""Makes the script for a program, a stage of its oracle, and the stored failure. Raises `InputError`."""

MakeSnippet: TypeAlias = Callable[[str, Stage, Failure], str]
"""The same for a snippet, the lines that show the failure in an issue."""


class KindRow(NamedTuple):
    """One kind of failure.

    `cause` is that of all its failures, or a function of one and its site; with None, the rules of `classify.cause`
    decide from the exceptions of a failed capture. `deadly` says that what shows it ends the process. `about_data` says
    that it cannot occur if all sizes and values are static. `wrong` says that the captured program computes other
    values than eager, takes or refuses other inputs, or fixes a size. `severity` is the worst that it may do. `script`
    and `snippet` are for a kind whose oracle has a stage of its own; all others have those of the capture (`expected`).
    """

    meaning: str
    title: Title
    locate: Locate
    expected: Recognize = by_call
    cause: Cause | Callable[[Failure, Site], Cause] | None = "wrong-capture"
    deadly: bool = False
    about_data: bool = False
    wrong: bool = False
    severity: Severity = "cannot capture"
    script: MakeScript | None = None
    snippet: MakeSnippet | None = None


class OwnStage(NamedTuple):
    """A stage that an oracle brings. It runs with torch's own settings.

    `run` is the path (`module:function`) of the function that does a run (`Run → Observation`). It is imported in the
    worker, because it needs torch. `label` is what an issue calls the stage. A campaign runs one in `every` of the
    cases that call what was captured, beginning with case `turn` of these, if it has one of the stages `beside`; stages
    of one oracle alternate. `slower` is how much longer a case may take. With `every` 0, no campaign runs it.

    `owners` is the label of a test file's owners in PyTorch. `shown_by` is the capture that a snippet shows in place of
    the stage, and `hint` the comment that says what to do with it.
    """

    name: Stage
    run: str
    label: str
    every: int = 0
    turn: int = 0
    beside: tuple[Stage, ...] = ()
    slower: int = 1
    owners: str = ""
    shown_by: Stage | None = None
    hint: str = ""


def measured_in(failure: Failure, record: type[Record]) -> Record:
    """What the oracle's stage measured. Raises `InputError` if the failure, which a finding stores, lacks it."""
    measurement = failure.observation.measurement(record)
    if measurement is None:
        raise InputError("found no measurement in its stored failure, expected that of a stage of its oracle")
    return measurement


def only_differing(failure: Failure) -> Failure:
    """The failure with only the calls in which the captured program differs from eager."""
    calls = tuple(filter(differs, failure.observation.calls))
    return msgspec.structs.replace(failure, observation=msgspec.structs.replace(failure.observation, calls=calls))


class Oracle(NamedTuple):
    """One oracle. `about` says in `--help` what it reports.

    `judge` reports the failures in what was seen of a program. `calls` are the sizes at which it needs calls of the
    captured program. Without any, it judges the capture itself. `keep` is the part of a failure that a finding stores;
    later runs call the program at the sizes of the calls in it. `compares` says that it needs the run under other
    semantics too. `stages` are its own; without any, it judges all that capture a program once. `by_default` says that
    campaigns use it unless `--oracle` chooses, `of_programs` that it judges programs and models.

    `measures` is the record that its stages measure (`Observation.measurement`), `facts` gives what a finding shows of
    it, with labels, and `frame` the line that a finding shows, if the oracle knows it.
    """

    name: str
    about: str
    kinds: Mapping[Kind, KindRow]
    judge: Callable[[OracleInput], tuple[Failure, ...]]
    calls: tuple[CallSize, ...] = ()
    keep: Callable[[Failure], Failure] = only_differing
    compares: bool = False
    stages: tuple[OwnStage, ...] = ()
    by_default: bool = True
    of_programs: bool = True
    measures: type[msgspec.Struct] | None = None
    facts: Callable[[Failure], Iterable[tuple[str, str]]] = lambda _failure: ()
    frame: Callable[[Failure], Frame | None] = lambda _failure: None

    def is_for(self, stage: Stage) -> bool:
        """Whether it judges runs in a stage."""
        return stage in (one.name for one in self.stages) if self.stages else stage in STAGES


def attributed(oracle: Oracle, failure: Failure, seen: OracleInput, runner: Runner) -> Classification:
    """A failure that an oracle reports, with its site and cause, and the signature that the rules give it."""
    classified = _classified(oracle, failure, seen, runner)
    own = classified.signature
    if prefix := after(failure):
        own = msgspec.structs.replace(own, anchor=f"{prefix}{own.anchor}")
    signature = current().applied(own, failure)
    return classified if signature == classified.signature else msgspec.structs.replace(classified, signature=signature)


def _classified(oracle: Oracle, failure: Failure, seen: OracleInput, runner: Runner) -> Classification:
    row = oracle.kinds[failure.kind]
    located = _located(row, failure, seen, runner)
    if row.cause is None:
        return ruled(failure, located)
    cause = row.cause(failure, located.site) if callable(row.cause) else row.cause
    failure = msgspec.structs.replace(failure, path=located.path)
    signature = Signature(failure.kind, located.site, located.anchor)
    return Classification(failure, signature, cause, oracle.name, located.frame)


def after(failure: Failure) -> str:
    """What begins the anchor of a failure that shows only after another stage; empty for all others. The same code may
    be the site of a failure of that stage, for another reason.
    """
    retrace = RETRACES.get(failure.observation.stage)
    return "" if retrace is None else f"after {retrace.begins}: "


class _EnoughError(Exception):
    """Ends the search for a site."""


def _located(row: KindRow, failure: Failure, seen: OracleInput, runner: Runner) -> Location:
    """The site of a failure. In a stage that is slow to call it is unknown after `MOST_SLOW` more captures."""
    left = MOST_SLOW

    def few(run: Run) -> Observation:
        nonlocal left
        if not left and run.calls and run.stage not in CHEAP_TO_CALL:
            raise _EnoughError
        left -= run.calls != () and run.stage not in CHEAP_TO_CALL
        return runner(run)

    try:
        return row.locate(failure, seen, few)
    except _EnoughError:
        return unknown(seen)


def only_the_call(failure: Failure) -> Failure:
    """The failure with only the call that shows it; with any one call if the capture alone shows it.

    Without a call, what was captured is not looked at.
    """
    calls = failure.observation.calls
    shown = tuple(call for call in calls if call.size == failure.size) or calls[:1]
    return msgspec.structs.replace(failure, observation=msgspec.structs.replace(failure.observation, calls=shown))


def by_ending(classified: Classification, same_program: bool) -> ExpectedFailure:
    """The facts of the call that shows the failure. Raises `InputError` if only the captured graph shows it."""
    failure = classified.failure
    if not any(call.size == failure.size and differs(call) for call in failure.observation.calls):
        raise InputError(
            f"found a failure of kind {failure.kind}, expected one in which the captured program and eager end "
            "differently: only the captured graph shows it, and no script can show that"
        )
    return by_call(classified, same_program)
