"""The rows of `ddefuzz check`: one for each case, stage and semantics, judged and classified."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ddefuzz.classify.classify import Classified
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Cause, Site
from ddefuzz.execute.calls import Agreement, Call, Difference
from ddefuzz.execute.protocol import EXPLICIT, SIZE_OBLIVIOUS, Observation, Outcome, Stage
from ddefuzz.instrument.events import Frame, SymbolOrigin
from ddefuzz.oracles.capture import KINDS, classify, judge
from ddefuzz.oracles.program import Tried
from ddefuzz.oracles.table import oracle_of
from ddefuzz.oracles.verdict import Verdict, needs_second_run, verdict
from ddefuzz.program.sizes import CallSize
from ddefuzz.report.advice import Advice

SCHEMA = "ddefuzz.check/1"


class Stacks(msgspec.Struct, frozen=True):
    """The frames of a failure, outermost first: the Python stack, the stack that dynamo traced, and the C++ stack."""

    python: tuple[Frame, ...] = ()
    traced: tuple[Frame, ...] = ()
    native: tuple[Frame, ...] = ()


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


class Row(msgspec.Struct, frozen=True):
    """One run. The fields from `kind` on are set only if it failed.

    `verdict` is set on the explicit run and compares it with the size-oblivious run of the stage. `exception` is the
    type and first line of the final exception. `key` is that of the signature, for `check --key`.
    """

    case: str
    stage: Stage
    semantics: str
    outcome: Outcome | Literal["wrong"]
    reason: str = ""
    verdict: Verdict | None = None
    cpu_seconds: float = 0.0
    oracle: str | None = None
    kind: Kind | None = None
    site: Site | None = None
    anchor: str | None = None
    cause: Cause | None = None
    rule: str | None = None
    key: str | None = None
    expression: str | None = None
    exception: str | None = None
    symbols: tuple[SymbolOrigin, ...] = ()
    frames: Stacks | None = None
    calls: tuple[Called, ...] = ()
    advice: Advice | None = None
    schema: str = SCHEMA


class Checked(msgspec.Struct, frozen=True):
    """A row with the observation that it was made from."""

    row: Row
    observation: Observation
    classified: Classified | None = None


def check_case(case: str, tried: Sequence[Tried]) -> tuple[Checked, ...]:
    """The rows of one case, in the order of its runs, which include one of the stage `eager`.

    The capture oracle decides which captures are failures: a run that ends as in eager is not judged. A captured
    program that other oracles call wrong has a row for each failure.
    """
    observations = [one.observation for one in tried]
    failures = judge(observations)
    refused = any(one.stage == "eager" and one.outcome != "ok" for one in observations)
    rows: list[Checked] = []
    for seen, one in zip(observations, tried, strict=True):
        failure = next((failure for failure in failures if failure.observation is seen), None)
        checked = _checked(case, seen, observations, failure)
        wrong = [named for named in one.failures if named.failure.kind not in KINDS and not refused]
        rows += (_wrong(checked.row, seen, named) for named in wrong)
        rows += [] if wrong else [checked]
    return tuple(rows)


def _wrong(row: Row, observation: Observation, named: Classified) -> Checked:
    """The row of a captured program that is wrong."""
    return Checked(
        msgspec.structs.replace(_with_name(row, named), outcome="wrong", reason=named.failure.evidence),
        observation,
        named,
    )


def _with_name(row: Row, named: Classified) -> Row:
    return msgspec.structs.replace(
        row,
        oracle=oracle_of(named.signature.kind).name,
        kind=named.signature.kind,
        site=named.signature.site,
        anchor=named.signature.anchor,
        cause=named.cause,
        rule=named.rule,
        key=named.signature.key,
    )


def _called(call: Call) -> Called:
    return Called(call.size, call.eager.error, call.captured.error, call.agreement, call.differences, call.why)


def failed(checked: Iterable[Checked]) -> bool:
    """Whether a stage or eager failed. Failures under size-oblivious semantics do not count."""
    return any(
        one.row.outcome not in ("ok", "not-judged") and one.observation.semantics.mechanism != "size-oblivious"
        for one in checked
    )


def _checked(
    case: str, observation: Observation, observations: Sequence[Observation], failure: Failure | None
) -> Checked:
    row = Row(
        case=case,
        stage=observation.stage,
        semantics=str(observation.semantics),
        outcome=observation.outcome,
        reason=observation.reason,
        verdict=_verdict(observation, observations),
        cpu_seconds=round(observation.cpu_seconds, 4),
        exception=_exception(observation),
        calls=tuple(map(_called, observation.calls)),
    )
    if failure is None and observation.outcome not in ("ok", "not-judged"):
        if observation.stage == "eager":
            return Checked(msgspec.structs.replace(row, reason="the program fails in eager"), observation)
        eager = next(one for one in observations if one.stage == "eager")
        reason = f"the program fails in eager: {_exception(eager) or eager.reason}"
        return Checked(
            msgspec.structs.replace(row, outcome="not-judged", reason=reason, verdict="not-judged"), observation
        )
    if failure is None:
        return Checked(row, observation)
    named = classify(failure)
    raised = observation.raised
    found = msgspec.structs.replace(
        _with_name(row, named),
        expression=raised.expression if raised is not None else None,
        symbols=raised.symbols if raised is not None else (),
        frames=_stacks(observation),
    )
    return Checked(found, observation, named)


def _verdict(observation: Observation, observations: Sequence[Observation]) -> Verdict | None:
    if observation.stage == "eager" or observation.semantics != EXPLICIT:
        return None
    others = [one for one in observations if one.stage == observation.stage and one.semantics != EXPLICIT]
    second = next((one for one in others if one.semantics == SIZE_OBLIVIOUS), others[0] if others else None)
    if second is None and needs_second_run(observation):
        return None
    return verdict(observation, second)


def _exception(observation: Observation) -> str | None:
    if not observation.exceptions:
        return None
    final = observation.exceptions[0]
    return f"{final.name}: {final.message.strip().partition(chr(10))[0]}"


def _stacks(observation: Observation) -> Stacks:
    raised = observation.raised
    if raised is not None:
        return Stacks(raised.python, raised.traced, raised.native)
    exceptions = observation.exceptions
    return Stacks(
        next((exception.frames for exception in reversed(exceptions) if exception.frames), ()),
        next((exception.traced for exception in exceptions if exception.traced), ()),
    )
