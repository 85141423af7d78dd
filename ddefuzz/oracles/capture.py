"""The capture oracle: eager accepts the program, so a stage that does not is wrong, in one of seven kinds."""

from __future__ import annotations

from collections.abc import Iterable

from ddefuzz.execute.protocol import STAGES, ExceptionInfo, Observation
from ddefuzz.oracles.failure import Failure, Kind

GUARD_EXCEPTIONS = frozenset({"GuardOnDataDependentSymNode"})

KINDS: tuple[tuple[frozenset[str], Kind], ...] = (
    (GUARD_EXCEPTIONS, "dde"),
    (frozenset({"PendingUnbackedSymbolNotFound"}), "pending-unbacked"),
    (
        frozenset({"DataDependentOutputException", "DynamicOutputShapeException", "UnsupportedOperatorException"}),
        "data-dependent-output",
    ),
    (frozenset({"TorchRuntimeError"}), "internal-error"),
    (frozenset({"Unsupported", "UncapturedHigherOrderOpError", "UserError"}), "unsupported"),
)
"""The kind by the exceptions of the chain, wherever in it they are: dynamo wraps what it meets in a `UserError`,
`Unsupported` or `InternalTorchDynamoError`. The first row that applies decides; anything else is an internal error."""


def judge(observations: Iterable[Observation]) -> tuple[Failure, ...]:
    """The failures among one program's observations, in the order of stages, cheapest first.

    A program that eager refuses proves nothing about the stages after it; a crash or a hang does.
    """
    ordered = sorted(observations, key=lambda observation: STAGES.index(observation.stage))
    refused = any(observation.stage == "eager" and observation.outcome == "fail" for observation in ordered)
    found = (_judged(observation) for observation in ordered)
    return tuple(
        failure for failure in found if failure is not None and not (refused and failure.observation.outcome == "fail")
    )


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
