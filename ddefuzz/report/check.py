"""The rows of `ddefuzz check`: one for each case, stage and semantics, judged and classified."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ddefuzz.classify.classify import Classified, classify
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Cause, Site
from ddefuzz.execute.protocol import EXPLICIT, SIZE_OBLIVIOUS, Observation, Outcome, Stage
from ddefuzz.instrument.events import Frame, SymbolOrigin
from ddefuzz.oracles.capture import judge
from ddefuzz.oracles.verdict import Verdict, needs_second_run, verdict
from ddefuzz.report.advice import Advice

SCHEMA = "ddefuzz.check/1"


class Stacks(msgspec.Struct, frozen=True):
    """The frames of a failure, outermost first: the Python stack, the stack that dynamo traced, and the C++ stack."""

    python: tuple[Frame, ...] = ()
    traced: tuple[Frame, ...] = ()
    native: tuple[Frame, ...] = ()


class Row(msgspec.Struct, frozen=True):
    """One run. The fields from `kind` on are set only if it failed.

    `verdict` is set on the explicit run and compares it with the size-oblivious run of the stage. `exception` is the
    type and first line of the final exception. `key` is that of the signature, for `check --key`.
    """

    case: str
    stage: Stage
    semantics: str
    outcome: Outcome
    reason: str = ""
    verdict: Verdict | None = None
    cpu_seconds: float = 0.0
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
    advice: Advice | None = None
    schema: str = SCHEMA


class Checked(msgspec.Struct, frozen=True):
    """A row with the observation that it was made from."""

    row: Row
    observation: Observation
    classified: Classified | None = None


def check_case(case: str, observations: Sequence[Observation]) -> tuple[Checked, ...]:
    """The rows of one case, in the order of its observations, which include one of the stage `eager`.

    The oracle decides which rows are failures: a run that ends as in eager is not judged.
    """
    failures = judge(observations)
    return tuple(
        _checked(case, one, observations, next((failure for failure in failures if failure.observation is one), None))
        for one in observations
    )


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
        row,
        kind=named.signature.kind,
        site=named.signature.site,
        anchor=named.signature.anchor,
        cause=named.cause,
        rule=named.rule,
        key=named.signature.key,
        expression=raised.expression if raised is not None else None,
        symbols=raised.symbols if raised is not None else (),
        frames=_stacks(observation),
    )
    return Checked(found, observation, named)


def _verdict(observation: Observation, observations: Sequence[Observation]) -> Verdict | None:
    if observation.stage == "eager" or observation.semantics != EXPLICIT:
        return None
    second = next((o for o in observations if o.stage == observation.stage and o.semantics == SIZE_OBLIVIOUS), None)
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
