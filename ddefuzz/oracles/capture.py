"""The capture oracle: if eager accepts a program, every stage must capture it. A failure has one of seven kinds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.kind import decisive
from ddefuzz.execute.protocol import STAGES, ExceptionInfo, Observation, Outcome

KINDS: Mapping[Kind, str] = {
    "dde": "a guard over an unbacked size could not be decided",
    "pending-unbacked": "an op made an unbacked symbol that none of its outputs has",
    "data-dependent-output": "an op has no fake kernel, or an output that depends on data",
    "unsupported": "dynamo does not trace it",
    "crash": "the process that captured it died",
    "timeout": "the capture did not end in time",
    "internal-error": "the capture raised any other error",
}

EXPECTED_AFTER: dict[Outcome, frozenset[Outcome]] = {
    "fail": frozenset({"fail"}),
    "timeout": frozenset({"fail", "timeout"}),
    "crash": frozenset({"fail", "timeout", "crash"}),
}
"""For each outcome of eager, the outcomes that are then no failures of the stages after it."""


def judge(observations: Iterable[Observation]) -> tuple[Failure, ...]:
    """The failures among one program's observations, in the order of stages, cheapest first.

    If eager raises for a program, errors of the stages after it prove nothing. A crash or a hang is a failure,
    unless eager has it too.
    """
    ordered = sorted(observations, key=lambda observation: STAGES.index(observation.stage))
    eager = next((observation for observation in ordered if observation.stage == "eager"), None)
    expected = EXPECTED_AFTER.get(eager.outcome, frozenset()) if eager is not None else frozenset()
    found = (_judged(one) for one in ordered if one.outcome not in expected or (one is eager and one.outcome != "fail"))
    return tuple(failure for failure in found if failure is not None)


def _judged(observation: Observation) -> Failure | None:
    match observation.outcome:
        case "ok" | "not-judged":
            return None
        case "crash":
            return Failure("crash", observation, observation.reason or "the worker died")
        case "timeout":
            return Failure("timeout", observation, observation.reason or "the time limit was reached")
        case "fail":
            kind, exception = decisive(observation)
            return Failure(kind, observation, _evidence(observation, kind, exception))


def _evidence(observation: Observation, kind: Kind, exception: ExceptionInfo) -> str:
    if kind == "dde" and observation.raised is not None:
        return observation.raised.expression
    first_line = exception.message.strip().partition("\n")[0]
    return f"{exception.name}: {first_line}" if exception.name else first_line
