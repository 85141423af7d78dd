"""The capture oracle: eager accepts the program, so a stage that does not is wrong, in one of seven kinds."""

from __future__ import annotations

from collections.abc import Iterable

from ddefuzz.execute.protocol import STAGES, ExceptionInfo, Observation, Outcome
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.torch_api import names_of
from ddefuzz.oracles.failure import Failure, Kind

GUARD_EXCEPTIONS = names_of([torch_api.GUARD_ERROR])

KINDS: tuple[tuple[frozenset[str], Kind], ...] = (
    (GUARD_EXCEPTIONS, "dde"),
    (names_of([torch_api.PENDING_ERROR]), "pending-unbacked"),
    (names_of(torch_api.OUTPUT_ERRORS), "data-dependent-output"),
    (names_of([torch_api.DYNAMO_INTERNAL_ERROR]), "internal-error"),
    (names_of(torch_api.DYNAMO_REFUSALS), "unsupported"),
)
"""The kind by the exceptions of the chain, wherever in it they are: dynamo wraps what it meets in a `UserError`,
`Unsupported` or `InternalTorchDynamoError`. The first row that applies decides; anything else is an internal error."""


EXPECTED_AFTER: dict[Outcome, frozenset[Outcome]] = {
    "fail": frozenset({"fail"}),
    "timeout": frozenset({"fail", "timeout"}),
    "crash": frozenset({"fail", "timeout", "crash"}),
}
"""By how eager ends, the ends of the stages after it that are not theirs."""


def judge(observations: Iterable[Observation]) -> tuple[Failure, ...]:
    """The failures among one program's observations, in the order of stages, cheapest first.

    A program that eager refuses proves nothing about the stages after it; a crash or a hang does, unless it is eager's.
    """
    ordered = sorted(observations, key=lambda observation: STAGES.index(observation.stage))
    eager = next((observation for observation in ordered if observation.stage == "eager"), None)
    expected = EXPECTED_AFTER.get(eager.outcome, frozenset()) if eager is not None else frozenset()
    found = (_judged(one) for one in ordered if one.outcome not in expected or (one is eager and one.outcome != "fail"))
    return tuple(failure for failure in found if failure is not None)


def decisive(observation: Observation) -> tuple[Kind, ExceptionInfo]:
    """The kind of a failed observation and the exception of its chain that decides it.

    A data-dependent error that C++ caught and quotes in an error of its own has left the chain, but was seen
    (`Recorder.raised`): it decides as if it were there.
    """
    root = observation.exceptions[-1] if observation.exceptions else ExceptionInfo("", observation.reason)
    if observation.raised is not None and not any(e.name in GUARD_EXCEPTIONS for e in observation.exceptions):
        return "dde", root
    for names, kind in KINDS:
        for exception in observation.exceptions:
            if exception.name in names:
                return kind, exception
    return "internal-error", root


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
