"""The result of `ddefuzz check`: which captures succeed, and each problem once, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.answers.model import Control, data_dependent
from ddefuzz.checking.chain import Caller, Symbol, chain_of, own_caller, stacks_of, symbols_of
from ddefuzz.checking.change_summary import loop_of
from ddefuzz.checking.changes import Advice, Change
from ddefuzz.checking.loops import REMEDY as LOOP_REMEDY
from ddefuzz.checking.not_data import DRAWS, TYPES, remedy
from ddefuzz.checking.owner import YOURS, Owner, torch_itself
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.kind import GUARD_EXCEPTIONS
from ddefuzz.classify.signature import Cause, Site
from ddefuzz.execute.calls import Agreement, Call, Difference
from ddefuzz.execute.protocol import EXPLICIT, SIZE_OBLIVIOUS, TRACED, ExceptionInfo, Observation, Outcome, Stage
from ddefuzz.findings.by_key import KnownFinding
from ddefuzz.instrument.events import Answered, Frame
from ddefuzz.internal import guarded
from ddefuzz.oracles.capture import KINDS, classify, judge
from ddefuzz.oracles.program import Tried
from ddefuzz.oracles.table import oracle_of, row_of
from ddefuzz.oracles.verdict import Verdict, needs_second_run, verdict
from ddefuzz.program.sizes import CallSize

SCHEMA = "ddefuzz.check/2"

CapturedOutcome: TypeAlias = Outcome | Literal["wrong"]
"""`wrong`: it was captured, but an oracle says that the captured program is wrong (`KindRow.wrong`)."""


class Called(msgspec.Struct, frozen=True):
    """A call of what was captured, at data sizes of this name. `eager` and `captured` are errors, empty if it returned.

    `agreement` is None if one of the two did not return.
    """

    sizes: CallSize
    eager: str
    captured: str
    agreement: Agreement | None
    differences: tuple[Difference, ...] = ()
    why: str = ""


class Captured(msgspec.Struct, frozen=True):
    """One capture. `seconds` are those of the clock, `exception` is the type and first line of the final exception.

    `verdict` compares the two semantics if both were asked for. `keys` are those of its problems.
    """

    case: str
    stage: Stage
    outcome: CapturedOutcome
    seconds: float
    cpu_seconds: float
    semantics: str = "explicit"
    reason: str = ""
    exception: str | None = None
    verdict: Verdict | None = None
    keys: tuple[str, ...] = ()
    calls: tuple[Called, ...] = ()


class Stacks(msgspec.Struct, frozen=True):
    """The frames of a failure, outermost first: the Python stack, the stack that dynamo traced, and the C++ stack."""

    python: tuple[Frame, ...] = ()
    traced: tuple[Frame, ...] = ()
    native: tuple[Frame, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    """How an undecided guard was answered, in `stage`, so that the capture continued."""

    stage: Stage
    value: bool | int | float


class Problem(msgspec.Struct, frozen=True):
    """One problem: a failure with its site, however many captures and visits show it.

    `stages` are the captures that it stops, or whose captured program has it. There are none if it only shows once the
    problems before it are answered (`answers`). `keys` has the key of each signature under which captures report it.
    `chain` are the calls from the user's code to the site; `module` is the path of the module that runs there.
    `about_data` is None if it is not known, `control` the capture with static sizes. `consequence` says that an answer
    may have led to it.
    """

    case: str
    stages: tuple[Stage, ...]
    owner: Owner
    oracle: str
    kind: Kind
    site: Site
    anchor: str
    cause: Cause
    rule: str
    key: str
    keys: tuple[str, ...]
    exception: str | None = None
    evidence: str = ""
    expression: str | None = None
    chain: tuple[Caller, ...] = ()
    module: str = ""
    symbols: tuple[Symbol, ...] = ()
    about_data: bool | None = None
    control: Control | None = None
    answers: tuple[Answer, ...] = ()
    consequence: bool = False
    remedy: str = ""
    frames: Stacks | None = None


class Offered(msgspec.Struct, frozen=True):
    """A change that lets the captures of a case succeed."""

    case: str
    change: Change


class Document(msgspec.Struct, frozen=True):
    """The whole result. `changes` are in order of harm; `advice` has what else was tried for each case that fails."""

    target: str
    torch: str
    captures: tuple[Captured, ...] = ()
    problems: tuple[Problem, ...] = ()
    changes: tuple[Offered, ...] = ()
    advice: tuple[tuple[str, Advice], ...] = ()
    known: tuple[KnownFinding, ...] = ()
    schema: str = SCHEMA


class CaseRuns(msgspec.Struct, frozen=True):
    """All runs of one case: its captures, those with answered guards, and captures with static sizes by key."""

    case: str
    tried: tuple[Tried, ...]
    continued: tuple[Observation, ...] = ()
    controls: tuple[tuple[str, Control], ...] = ()


class Found(msgspec.Struct, frozen=True):
    """A failure and how it was met: in a plain capture, or after answers."""

    named: Classified
    stops: bool
    answer: Answer | None = None
    consequence: bool = False


def found_in(runs: CaseRuns) -> tuple[Found, ...]:
    """The failures of a case under explicit semantics, in the order in which they were met.

    A timeout after answers is none: a loop whose condition is answered True each time does not end.
    """
    found = [Found(named, stops=True) for named in failures_of(runs.tried)]
    for seen in runs.continued:
        found += [
            Found(named, stops=False, answer=Answer(seen.stage, one.value))
            for one in seen.answered
            if (named := _as_raised(seen, one)) is not None
        ]
        found += [Found(classify(one), stops=False, consequence=True) for one in judge([seen]) if one.kind != "timeout"]
    return tuple(found)


def failures_of(tried: Sequence[Tried]) -> tuple[Classified, ...]:
    """The failures of plain captures under explicit semantics. There are none for a case that fails in eager."""
    observations = [one.observation for one in tried]
    if _refused(observations) is not None:
        return ()
    named = list[Classified]()
    for failure in judge(observations):
        if failure.observation.semantics == EXPLICIT:
            with guarded(failure.observation.stage), guarded(failure.kind):
                named.append(classify(failure))
    wrong = [one for tried_one in tried for one in tried_one.failures if one.failure.kind not in KINDS]
    return (*named, *wrong)


def captures_of(runs: CaseRuns) -> tuple[Captured, ...]:
    """The captures of a case, and eager if the case fails there."""
    observations = [one.observation for one in runs.tried]
    refused = _refused(observations)
    failures = failures_of(runs.tried)
    made = []
    for seen in observations:
        keys = tuple(dict.fromkeys(one.signature.key for one in failures if _is_of(one.failure.observation, seen)))
        wrong = [one for one in failures if _is_of(one.failure.observation, seen) and row_of(one.failure.kind).wrong]
        captured = Captured(
            runs.case,
            seen.stage,
            "wrong" if wrong else seen.outcome,
            seconds=round(seen.seconds, 3),
            cpu_seconds=round(seen.cpu_seconds, 3),
            semantics=str(seen.semantics),
            reason=wrong[0].failure.evidence if wrong else seen.reason,
            exception=exception_of(seen),
            verdict=_verdict(seen, observations),
            keys=keys,
            calls=tuple(map(_called, seen.calls)),
        )
        if refused is not None and seen.stage != "eager" and seen.outcome != "ok":
            reason = f"it fails in eager: {exception_of(refused) or refused.reason}"
            captured = msgspec.structs.replace(captured, outcome="not-judged", reason=reason)
        made.append(captured)
    return tuple(made)


def problems_of(runs: CaseRuns) -> tuple[Problem, ...]:
    """The problems of a case, each once, the worst first."""
    controls = dict(runs.controls)
    groups: dict[str, list[Found]] = {}
    for one in found_in(runs):
        groups.setdefault(one.named.signature.key, []).append(one)
    problems: list[Problem] = []
    for group in groups.values():
        problem = _problem(runs.case, group, controls)
        same = next((at for at, other in enumerate(problems) if _is_the_same(other, problem)), None)
        if same is None:
            problems.append(problem)
        else:
            problems[same] = _joined(problems[same], problem)
    return tuple(sorted(problems, key=_badness))


def failed(captures: Iterable[Captured]) -> bool:
    """Whether a capture or eager failed, a captured program is wrong, or nothing was judged.

    Size-oblivious semantics do not count.
    """
    outcomes = {one.outcome for one in captures if not one.semantics.startswith("size-oblivious")}
    return bool(outcomes - {"ok", "not-judged"}) or outcomes == {"not-judged"}


def exception_of(seen: Observation) -> str | None:
    """The type and first line of the final exception."""
    if not seen.exceptions:
        return None
    final = seen.exceptions[0]
    return f"{final.name}: {final.message.strip().partition(chr(10))[0]}"


def _refused(observations: Sequence[Observation]) -> Observation | None:
    return next((one for one in observations if one.stage == "eager" and one.outcome != "ok"), None)


def _is_of(failed_run: Observation, seen: Observation) -> bool:
    return failed_run.stage == seen.stage and failed_run.semantics == seen.semantics


def _as_raised(seen: Observation, answered: Answered) -> Classified | None:
    """The failure that a guard would have been, had it not been answered."""
    expression = answered.raised.expression
    error = ExceptionInfo(min(GUARD_EXCEPTIONS), f"Could not guard on data-dependent expression {expression}")
    alone = msgspec.structs.replace(
        seen, outcome="fail", reason="", exceptions=(error,), raised=answered.raised, answered=(), calls=()
    )
    failures: tuple[Failure, ...] = tuple(judge([alone]))
    return classify(failures[0]) if failures else None


def _problem(case: str, group: Sequence[Found], controls: Mapping[str, Control]) -> Problem:
    first = next((one for one in group if one.stops), group[0])
    named, seen = first.named, first.named.failure.observation
    raised, chain = seen.raised, chain_of(seen)
    control = controls.get(named.signature.key)
    python, traced, native = stacks_of(seen)
    about_data = data_dependent(named.failure, control)
    own = own_caller(chain)
    at_own = named.signature.site.module == "user code" or named.cause in ("user", "python-value", "refused")
    draws = own is not None and DRAWS.search(own.code) is not None
    said = "\n".join([own.code if own is not None else "", *(one.message for one in seen.exceptions)])
    if draws or (about_data is None and TYPES.search(said)):
        about_data = False
    help_ = LOOP_REMEDY if loop_of(named) else remedy(said) if about_data is False else ""
    return Problem(
        case,
        tuple(dict.fromkeys(one.named.failure.observation.stage for one in group if one.stops)),
        _owner(own, at_own=at_own or bool(help_)),
        oracle_of(named.signature.kind).name,
        named.signature.kind,
        named.signature.site,
        named.signature.anchor,
        named.cause,
        named.rule,
        named.signature.key,
        (named.signature.key,),
        exception=exception_of(seen) if first.stops or first.consequence else None,
        evidence=named.failure.evidence,
        expression=raised.expression if raised is not None else None,
        chain=chain,
        module=(raised.module if raised is not None else "") or seen.module,
        symbols=symbols_of(raised),
        about_data=about_data,
        control=control,
        answers=tuple(dict.fromkeys(one.answer for one in group if one.answer is not None)),
        consequence=first.consequence and about_data is not False,
        remedy=help_,
        frames=Stacks(python, traced, native),
    )


def _owner(own: Caller | None, *, at_own: bool) -> Owner:
    if not at_own:
        return torch_itself()
    return own.owner if own is not None else YOURS


def _is_the_same(one: Problem, other: Problem) -> bool:
    """Whether captures report one problem under two signatures: at one line and one piece of code, in other stages."""
    if set(one.stages) & set(other.stages) or one.consequence or one.anchor != other.anchor:
        return False
    mine, theirs = own_caller(one.chain), own_caller(other.chain)
    return mine is not None and theirs is not None and (mine.file, mine.line) == (theirs.file, theirs.line)


def _joined(one: Problem, other: Problem) -> Problem:
    return msgspec.structs.replace(
        one,
        stages=(*one.stages, *other.stages),
        keys=(*one.keys, *other.keys),
        answers=tuple(dict.fromkeys((*one.answers, *other.answers))),
    )


def is_minor(kind: Kind) -> bool:
    """Whether a kind of failure neither stops capture nor makes the captured program wrong."""
    return kind not in KINDS and kind != "regressed" and not row_of(kind).wrong


def _badness(problem: Problem) -> tuple[bool, bool, bool, bool, int]:
    """Sort key: a wrong result first, then what ends a process, then what stops most captures, then consequences, and
    what is minor last.
    """
    row = row_of(problem.kind)
    return (is_minor(problem.kind), problem.consequence, not row.wrong, not row.deadly, -len(problem.stages))


def _called(call: Call) -> Called:
    return Called(call.size, call.eager.error, call.captured.error, call.agreement, call.differences, call.why)


def _verdict(observation: Observation, observations: Sequence[Observation]) -> Verdict | None:
    if observation.stage not in TRACED or observation.semantics != EXPLICIT:
        return None
    others = [one for one in observations if one.stage == observation.stage and one.semantics != EXPLICIT]
    second = next((one for one in others if one.semantics == SIZE_OBLIVIOUS), others[0] if others else None)
    if second is None and needs_second_run(observation):
        return None
    return verdict(observation, second)
