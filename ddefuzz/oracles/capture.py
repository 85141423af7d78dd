"""The capture oracle: if eager accepts a program, every stage must capture it. And the frames that lead to the site."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ddefuzz.classify import chain
from ddefuzz.classify.anchor import abridged, question, shortened
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure, Kind, decisive
from ddefuzz.classify.plumbing import is_cxx_plumbing, is_framework, is_python_plumbing
from ddefuzz.classify.recognition import ExpectedFailure, by_exception
from ddefuzz.classify.signature import USER_CODE, Site
from ddefuzz.classify.site import USER_SITE, function_name, inside_tracer, native_call
from ddefuzz.execute.protocol import STAGES, ExceptionInfo, Observation, Outcome
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Frame
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.oracle import KindRow, Locate, Oracle, Title, attributed
from ddefuzz.oracles.verdict import is_refused_example
from ddefuzz.program.model import Program

WANTED = {"guard_int": " as an int", "guard_float": " as a float"}
"""The type of number that a guard needs, by the method of the guard. All other methods need a truth value."""

NO_DATA = {
    "UnsupportedOperatorException": "{op} has no fake kernel",
    "DynamicOutputShapeException": "fake tensors refuse {op}, which is tagged dynamic_output_shape",
    "DataDependentOutputException": "the value of {op} depends on the data",
}
"""What FakeTensorMode's exceptions mean, by their class. `op` is the overload that they name."""

IN_CALL: Mapping[Outcome, Kind] = {"crash": "crash-in-call", "timeout": "timeout-in-call"}
"""The kind of a run whose process was lost in a call of the captured program."""

LOST: Mapping[Kind, str] = {"crash-in-call": "ends the process", "timeout-in-call": "does not end"}
"""What a call does that loses its process, by the kind."""

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
    order = {stage: at for at, stage in enumerate(STAGES)}
    ordered = sorted(observations, key=lambda observation: order.get(observation.stage, len(order)))
    eager = next((observation for observation in ordered if observation.stage == "eager"), None)
    expected = EXPECTED_AFTER.get(eager.outcome, frozenset()) if eager is not None else frozenset()
    failures = (
        _judged(one) for one in ordered if one.outcome not in expected or (one is eager and one.outcome != "fail")
    )
    return tuple(failure for failure in failures if failure is not None)


def _judged(observation: Observation) -> Failure | None:
    match observation.outcome:
        case "ok" | "not-judged":
            return None
        case "crash" | "timeout" as ended:
            called = next(iter(observation.calls), None)  # a lost run has the call in which it was lost
            if called is None:
                return Failure(ended, observation, observation.reason)
            kind = IN_CALL[ended]
            return Failure(kind, observation, f"at size {called.size}: {observation.reason}", called.size)
        case "fail":
            kind, exception = decisive(observation)
            return Failure(kind, observation, _evidence(observation, kind, exception))


def _evidence(observation: Observation, kind: Kind, exception: ExceptionInfo) -> str:
    if kind == "dde" and observation.raised is not None:
        return observation.raised.expression
    first_line = exception.message.strip().partition("\n")[0]
    return f"{exception.name}: {first_line}" if exception.name else first_line


def _needs(classified: Classification) -> str:
    raised, site = classified.failure.observation.raised, _site(classified)
    if raised is None:
        return f"{site} needs a value that depends on the data"
    if classified.signature.site == USER_SITE and classified.cause != "user":
        site = "the binding"
    asked = question(raised.expression)
    code = "" if classified.signature.site.module in (None, USER_CODE) else shortened(classified.signature.anchor)
    at = f" ({code})" if code and code != asked else ""
    if wanted := WANTED.get(raised.method):
        return f"{site} needs {asked}{wanted}{at}"
    return f"{site} asks whether {asked}{at}"


def _refuses(classified: Classification) -> str:
    site = _site(classified)
    refusing = "dynamo" if site in {torch_api.DYNAMO_FILES.path.rstrip("/"), str(USER_SITE)} else site
    return f"{refusing} refuses: {shortened(classified.signature.anchor)}"


def _raises(classified: Classification) -> str:
    """The message has the values, which code at the site does not have. Its own may be empty (`StopIteration`)."""
    errors = reversed(classified.failure.observation.exceptions)
    messages = (f"{error.name}: {abridged(title)}" for error in errors if (title := chain.title_of(error)))
    return f"{_site(classified)} raises {next(messages, shortened(classified.signature.anchor))}"


def _lacks_a_value(classified: Classification) -> str:
    site, exception = _site(classified), decisive(classified.failure.observation)[1]
    overload = exception.message.strip().partition("\n")[0]
    named = re.fullmatch(r"[\w:]+\.[\w.]+", overload)
    if named is None:
        return f"{site}: {shortened(classified.signature.anchor)}"
    reason = NO_DATA.get(exception.name, "{op} cannot be run without data").format(op=overload)
    op = ".".join(overload.split(".")[:2]).replace(".", "::", 1)
    return reason if site == op or site == str(USER_SITE) else f"{site}: {reason}"


def _site(classified: Classification) -> str:
    return "the program" if classified.cause == "user" else str(classified.signature.site)


def _row(
    meaning: str,
    title: Title,
    locate: Callable[[Observation], Location],
    *,
    deadly: bool = False,
    about_data: bool = False,
) -> KindRow:
    """A kind that is located and recognized by what the failed capture raised; the rules find its cause."""
    return KindRow(meaning, title, _by(locate), by_exception, None, deadly, about_data)


def _lost(classified: Classification, _same_program: bool) -> ExpectedFailure:
    """The facts of a call that loses its process."""
    failure = classified.failure
    return ExpectedFailure("by_call", {"captured": LOST[failure.kind]}, size=failure.size)


def _by(locate: Callable[[Observation], Location]) -> Locate:
    return lambda failure, _seen, _runner: locate(failure.observation)


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
        "the capture did not end within its CPU seconds",
        "capture in {stage} does not end: {evidence}",
        chain.died,
        deadly=True,
    ),
    "crash-in-call": KindRow(
        "a call of the captured program ends the process, and eager's does not",
        "the captured program in {stage} ends the process {evidence}",
        _by(chain.died),
        _lost,
        deadly=True,
        wrong=True,
        severity="ends the process",
    ),
    "timeout-in-call": KindRow(
        "a call of the captured program does not end within its CPU seconds, and eager's does",
        "the captured program in {stage} does not end {evidence}",
        _by(chain.died),
        _lost,
        deadly=True,
        wrong=True,
        severity="ends the process",
    ),
    "internal-error": _row("the capture raised any other error", _raises, chain.internal),
}


def judge_seen(seen: OracleInput) -> tuple[Failure, ...]:
    """The failures in what was seen of a program, without refusals of its example by an accepted rule."""
    return tuple(one for one in judge([seen.observation]) if not _is_accepted(one, seen.program))


def _is_accepted(failure: Failure, program: Program | None) -> bool:
    if failure.kind != "internal-error" or program is None:
        return False
    return is_refused_example(decisive(failure.observation)[1].message, program)


ORACLE = Oracle("capture", "the capture fails", KINDS, judge_seen)


def classify(failure: Failure) -> Classification:
    """The signature and cause of a failed capture, or of a run whose process was lost. Nothing is run for it."""
    return attributed(ORACLE, failure, OracleInput("", failure.observation), _no_runner)


def _no_runner(run: object) -> Observation:
    raise AssertionError(f"{run}: a failed capture is classified by what was observed")


class Stack(NamedTuple):
    """The frames of a failure that lead to its site, outermost first, without plumbing; C++ after Python.

    `site` is the one at the site, if it is known. `left_out` is the number of frames that are plumbing.
    """

    frames: tuple[Frame, ...]
    site: Frame | None
    left_out: int


def site_frame(failure: Failure, site: Site) -> Frame | None:
    """The frame at a site that was stored. Rules that changed since then may give the failure another one."""
    if failure.kind not in KINDS:
        return None
    classified = classify(failure)
    if classified.signature.site == site:
        return classified.frame
    real, traced, native = _stacks(failure)
    names = [(frame, frame.file, frame.function) for frame in (*traced, *real)]
    names += [(frame, "", function_name(frame.function)) for frame in native]
    place = (site.module or "", site.function)
    return next((frame for frame, *name in reversed(names) if tuple(name) == place), None)


def stack_to(failure: Failure, place: Site) -> Stack:
    """The frames from the user's line to the site.

    If a captured program failed, they lead to the guard that is blamed, else to what made the assertion that it failed,
    if one of them is known.
    """
    if failure.kind in KINDS:
        frame = site_frame(failure, place)
        real, traced, native = _stacks(failure)
    else:
        failed = {call.captured.expression for call in failure.observation.calls}
        made = next((one for one in failure.observation.constraints if one.text in failed), None)
        at_place = (one for one in reversed(failure.path) if (one.file, one.function) == (place.module, place.function))
        frame, traced, native = next(at_place, None), (), ()
        real = failure.path or (() if made is None else (*made.traced, *made.python))
    site = frame if frame is not None and _shows(frame, place) else None
    whole = (*traced, *inside_tracer(real)) if traced else real
    python = [frame for frame in whole if frame == site or not is_python_plumbing(frame)]
    own = next((index for index, frame in enumerate(python) if not is_framework(frame)), 0)
    inner = tuple(reversed(native_call(native)))
    if site in native and site not in inner:  # a call through a kernel in Python
        inner = native[native.index(site) :]
    cxx = [frame for frame in inner if frame is site or not is_cxx_plumbing(function_name(frame.function))]
    shown = (*_without_repeats(python[own:]), *_without_repeats(cxx))
    return Stack(shown, site, len(real) + len(traced) + len(native) - len(shown))


def _shows(frame: Frame, site: Site) -> bool:
    """Whether a frame is at the site. C++ sites have no file, user code no name; an op has the frame of its call."""
    if site == USER_SITE:
        return not is_framework(frame)
    if site.language == "op":
        return True
    return frame.file == (site.module or "")


def _stacks(failure: Failure) -> tuple[tuple[Frame, ...], tuple[Frame, ...], tuple[Frame, ...]]:
    """The Python stack, the traced stack and the C++ stack of a failure."""
    observation = failure.observation
    if observation.raised is not None:
        return observation.raised.python, observation.raised.traced, observation.raised.native
    if not observation.exceptions:
        return (), (), ()
    _, exception = decisive(observation)
    traced = next((one.traced for one in observation.exceptions if one.traced), ())
    return exception.frames, traced, exception.native


def _without_repeats(frames: Iterable[Frame]) -> list[Frame]:
    """Adjacent frames of one function once. An op that modes intercept has a frame for each mode."""
    kept: list[Frame] = []
    for frame in frames:
        if kept and (kept[-1].file, kept[-1].function) == (frame.file, frame.function):
            kept.pop()
        kept.append(frame)
    return kept
