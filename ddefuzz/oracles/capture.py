"""The capture oracle: if eager accepts a program, every stage must capture it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from ddefuzz.classify import chain
from ddefuzz.classify.chain import Located
from ddefuzz.classify.classify import Classified, ruled
from ddefuzz.classify.expected import by_exception
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.kind import decisive
from ddefuzz.classify.site import USER_SITE
from ddefuzz.classify.wording import question, shortened
from ddefuzz.execute.protocol import ALL_STAGES, ExceptionInfo, Observation, Outcome, Runner
from ddefuzz.instrument import torch_api
from ddefuzz.oracles.oracle import KindRow, Oracle, Title
from ddefuzz.oracles.seen import Seen

WANTED = {"guard_int": " as an int", "guard_float": " as a float"}
"""The type of number that a guard needs, by the method of the guard. All other methods need a truth value."""

NO_DATA = {
    "UnsupportedOperatorException": "{op} has no fake kernel",
    "DynamicOutputShapeException": "fake tensors refuse {op}, which is tagged dynamic_output_shape",
    "DataDependentOutputException": "the value of {op} depends on the data",
}
"""What FakeTensorMode's exceptions mean, by their class. `op` is the overload that they name."""

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
    ordered = sorted(observations, key=lambda observation: ALL_STAGES.index(observation.stage))
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


def _needs(one: Classified) -> str:
    raised, site = one.failure.observation.raised, _site(one)
    if raised is None:
        return f"{site} needs a value that depends on the data"
    if one.signature.site == USER_SITE and one.cause != "user":
        site = "the binding"
    return f"{site} needs {question(raised.expression)}{WANTED.get(raised.method, '')}"


def _refuses(one: Classified) -> str:
    site = _site(one)
    refusing = "dynamo" if site in {torch_api.DYNAMO_FILES.path.rstrip("/"), str(USER_SITE)} else site
    return f"{refusing} refuses: {shortened(one.signature.anchor)}"


def _lacks_a_value(one: Classified) -> str:
    site, exception = _site(one), decisive(one.failure.observation)[1]
    overload = exception.message.strip().partition("\n")[0]
    named = re.fullmatch(r"[\w:]+\.[\w.]+", overload)
    if named is None:
        return f"{site}: {shortened(one.signature.anchor)}"
    said = NO_DATA.get(exception.name, "{op} cannot be run without data").format(op=overload)
    op = ".".join(overload.split(".")[:2]).replace(".", "::", 1)
    return said if site == op or site == str(USER_SITE) else f"{site}: {said}"


def _site(one: Classified) -> str:
    return "the program" if one.cause == "user" else str(one.signature.site)


def _row(
    meaning: str,
    title: Title,
    locate: Callable[[Observation], Located],
    *,
    deadly: bool = False,
    about_data: bool = False,
) -> KindRow:
    """A kind that is located and recognized by what the failed capture raised; the rules find its cause."""

    def locate_(failure: Failure, seen: Seen, runner: Runner) -> Located:
        del seen, runner
        return locate(failure.observation)

    return KindRow(meaning, title, locate_, by_exception, None, deadly, about_data)


KINDS: Mapping[Kind, KindRow] = {
    "dde": _row("a guard over an unbacked size could not be decided", _needs, chain.guarded, about_data=True),
    "pending-unbacked": _row(
        "an op made an unbacked symbol that none of its outputs has",
        "{site} makes an unbacked symint that no output has",
        chain.pending,
        about_data=True,
    ),
    "data-dependent-output": _row(
        "an op has no fake kernel, or an output that depends on data", _lacks_a_value, chain.output
    ),
    "unsupported": _row("dynamo does not trace it", _refuses, chain.unsupported),
    "crash": _row(
        "the process that captured it died",
        "capture in {stage} ends the process: {evidence}",
        chain.died,
        deadly=True,
    ),
    "timeout": _row(
        "the capture did not end in time", "capture in {stage} does not end: {evidence}", chain.died, deadly=True
    ),
    "internal-error": _row("the capture raised any other error", "{site} raises {anchor}", chain.internal),
}


ORACLE = Oracle("capture", KINDS, lambda seen: judge([seen.observation]))


def classify(failure: Failure) -> Classified:
    """The signature and cause of a failed capture. Nothing is run for it."""
    located = KINDS[failure.kind].locate(failure, Seen("", failure.observation), _no_runner)
    return ruled(failure, located)


def _no_runner(run: object) -> Observation:
    raise AssertionError(f"{run}: a failed capture is classified by what was observed")
