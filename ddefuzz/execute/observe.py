"""One run in this process: reset torch's state, run one stage under the hooks, and return everything seen as one
record.
"""

from __future__ import annotations

import io
import os
import random
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, fields
from functools import partial

import msgspec
import psutil  # type: ignore[import-untyped]
import torch

from ddefuzz.execute import phase
from ddefuzz.execute.at_sizes import at_sizes, refusal
from ddefuzz.execute.calls import Call, Ended
from ddefuzz.execute.exercise import exercise
from ddefuzz.execute.forms import Form
from ddefuzz.execute.graphs import forms_of
from ddefuzz.execute.growing import grown
from ddefuzz.execute.growth import Growth
from ddefuzz.execute.intact import kept_intact
from ddefuzz.execute.kernels import Kernels, kernels_in
from ddefuzz.execute.prepared import Prepared, inputs_of, parameter_names, sizes_by_name
from ddefuzz.execute.protocol import (
    APART,
    GROW,
    LOWER,
    REPEATED,
    CallableSubject,
    ExceptionInfo,
    Lowered,
    Observation,
    Outcome,
    Run,
    Stage,
    Subject,
)
from ddefuzz.execute.recompiling import count
from ddefuzz.execute.repeated import Repeated
from ddefuzz.execute.same import digest_of
from ddefuzz.execute.stages import Capture, StageFunction, eager, graph_text, stage_function
from ddefuzz.execute.subject import prepare
from ddefuzz.execute.user_code import exception_chain, message_of
from ddefuzz.instrument import frames, torch_api
from ddefuzz.instrument.assumed import AssumedSizes
from ddefuzz.instrument.events import Answered, Constraint, Guard, Raised
from ddefuzz.instrument.guards import watch
from ddefuzz.instrument.modules import module_in
from ddefuzz.instrument.recorder import Recorder
from ddefuzz.instrument.truth import holds

OUTPUT_TAIL = 2000
"""Characters kept of what a run prints."""

MESSAGE_LIMIT = 6000
"""Characters kept of an exception's message."""

LACKING = torch_api.names_of([torch_api.NO_COMPILER])
"""Exceptions by which torch says that this machine lacks what a stage needs. They are not failures of the subject."""

_MEGABYTE = 1e6

_GENERATED = (
    (re.compile(r"<eval_with_key>\.\d+"), "<eval_with_key>"),
    (re.compile(r"\b0x[0-9a-f]{6,}"), "0x…"),
    (re.compile(r"^[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ (\S+)", re.MULTILINE), r"\1"),
)
"""What differs from run to run: generated function names, addresses, the time and process in torch's log lines."""


@dataclass(slots=True)
class _Seen:
    """The fields of an `Observation` that the run gives. No object of torch is in them."""

    outcome: Outcome = "ok"
    reason: str = ""
    exceptions: tuple[ExceptionInfo, ...] = ()
    raised: Raised | None = None
    guards: tuple[Guard, ...] = ()
    graph: str | None = None
    calls: tuple[Call, ...] = ()
    forms: tuple[Form, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    answered: tuple[Answered, ...] = ()
    unbacked: int = 0
    module: str = ""
    compiles: int = 0
    cpu_seconds: float = 0.0
    seconds: float = 0.0
    repeated: Repeated | None = None
    growths: tuple[Growth, ...] = ()
    lowered: Lowered | None = None
    digest: str = ""


def observe(run: Run) -> Observation:
    """Do one run in this process. Whatever the subject raises becomes part of the observation.

    Raises InputError if the subject cannot be used and UnsupportedError if this torch cannot be watched.
    """
    stage = stage_function(run.stage, called=bool(run.calls)) if run.stage not in APART else eager
    return observe_in(stage, lambda: prepare(run.subject), run)


def observe_in(
    stage: StageFunction, make: Callable[[], Prepared], run: Run, then: Callable[[Capture], None] | None = None
) -> Observation:
    """The same, in another stage and of another subject than those of `run`.

    `then` gets what was captured, under the settings of the capture and without the hooks.
    """
    with captured_output() as output, kept_apart(run.subject), clean_slate(run.stage):
        seen = _apart(run) if run.stage in APART else _watched(stage, make(), run, then)
    return _observation(run, seen, output.read())


def failed_by(run: Run, error: BaseException, recorder: Recorder) -> Observation:
    """The observation of a run that this exception would have ended. `recorder` watches the run."""
    seen = _Seen()
    _note_failure(seen, error, recorder)
    return _observation(run, seen, "")


def _observation(run: Run, seen: _Seen, output: str) -> Observation:
    return Observation(
        stage=run.stage,
        semantics=run.semantics,
        peak_rss_mb=round(psutil.Process().memory_info().rss / _MEGABYTE, 1),
        output=_normalized(output)[-OUTPUT_TAIL:],
        **{field.name: getattr(seen, field.name) for field in fields(seen)},
    )


def kept_apart(subject: Subject) -> AbstractContextManager[None]:
    """Programs cannot change ddefuzz. User code can."""
    return kept_intact(subject.path) if isinstance(subject, CallableSubject) else nullcontext()


def _watched(stage: StageFunction, prepared: Prepared, run: Run, then: Callable[[Capture], None] | None) -> _Seen:
    seen = _Seen()
    counters = torch_api.DYNAMO_COUNTERS.get()
    counters.clear()
    capture: Capture | None = None
    started, clock = time.process_time(), time.perf_counter()
    how, assumed = run.semantics, AssumedSizes(sizes_by_name(prepared)) if run.answer_guards else None
    with watch(
        how.mechanism,
        how.without,
        answers=how.answers,
        faults=how.faults,
        assumed=assumed,
        inputs=inputs_of(prepared),
    ) as recorder:
        try:
            phase.enter("capture")
            capture = stage(prepared)
            seen.cpu_seconds, seen.seconds = time.process_time() - started, time.perf_counter() - clock
        # KeyboardInterrupt too: Ctrl-C does not reach a worker, so the subject has raised it.
        except BaseException as error:  # noqa: BLE001 the subject is under test: whatever it raises is the observation
            seen.cpu_seconds, seen.seconds = time.process_time() - started, time.perf_counter() - clock
            _note_failure(seen, error, recorder)
        seen.guards, seen.answered, seen.unbacked = recorder.guards(), recorder.answered(), recorder.symbols()
    phase.enter("reading")
    seen.compiles = int(counters["stats"]["unique_graphs"])
    if capture is not None and then is not None:
        then(capture)
    if capture is not None:
        seen.graph = graph_text(capture.graph) if run.graph else None
        seen.digest = digest_of(capture) if run.calls or run.graph else ""
        if run.calls and seen.digest != run.called:
            seen.forms = forms_of(capture)
            # A call may compile again, for other strides: the same guards get the same answers.
            with watch(how.mechanism, answers=how.answers) if how.answers else nullcontext():
                calls = exercise(run.subject, capture, run.calls, seen.forms, constrained=recorder.constrained())
            seen.calls = tuple(_with_source(call, recorder) for call in calls)
            seen.constraints = recorder.constraints(partial(_is_told, seen.calls))
    return seen


def _apart(run: Run) -> _Seen:
    """A run in one of the stages that only one oracle judges."""
    if run.stage == LOWER:
        return _lowered(run)
    return _grown(run.subject) if run.stage == GROW else _repeated(run.subject, run)


def _lowered(run: Run) -> _Seen:
    """Generate inductor's code with unbacked and with backed sizes. It is not judged if one of the two fails."""
    backed = Run(msgspec.structs.replace(run.subject, backed=True), run.stage)
    if not prepare(run.subject).unbacked:
        return _Seen("not-judged", "it has no unbacked dim that could be backed")
    found: list[Kernels] = []
    seen = _Seen()
    for one in (run,) if run.semantics.answers else (backed, run):
        code: list[str] = []
        with clean_slate("inductor"):
            then = partial(_generated, code)
            seen = _watched(stage_function("inductor", called=False), prepare(one.subject), one, then)
        if seen.outcome != "ok" or not code:
            sizes = "backed" if one is backed else "unbacked"
            said = seen.exceptions[-1].message.partition("\n")[0] if seen.exceptions else seen.reason
            return _Seen("not-judged", f"inductor generates no code for {sizes} sizes: {said}"[:OUTPUT_TAIL])
        found.append(kernels_in(code[0]))
    seen.lowered = Lowered(found[-1], *found[:-1])
    return seen


def _generated(code: list[str], capture: Capture) -> None:
    code.extend(capture.generated())


def _grown(subject: Subject) -> _Seen:
    """Export the subject repeated. It is not judged if that raises."""
    started, clock = time.process_time(), time.perf_counter()
    try:
        growths = grown(lambda: prepare(subject))
    except Exception as error:  # noqa: BLE001 the subject is under test: other stages judge that it raises
        return _Seen("not-judged", f"{type(error).__name__}: {message_of(error)}".partition("\n")[0][:OUTPUT_TAIL])
    spent = time.process_time() - started, time.perf_counter() - clock
    return _Seen("ok", cpu_seconds=spent[0], seconds=spent[1], growths=growths)


def _repeated(subject: Subject, run: Run) -> _Seen:
    """Compile a subject and call it at each of the sizes. It is not judged if eager or torch.compile raises."""
    refused = refusal(prepare(subject)) if isinstance(subject, CallableSubject) else ""
    sized = at_sizes(subject, run.calls) if not refused else []
    if not sized:
        return _Seen("not-judged", refused or "its inputs cannot have these sizes")
    try:
        for _, make in sized:
            eager(make())
    except Exception as error:  # noqa: BLE001 the subject is under test
        return _Seen("not-judged", f"eager: {message_of(error)}".partition("\n")[0])
    started, clock = time.process_time(), time.perf_counter()
    prepared = [make() for _, make in sized]
    names = parameter_names(prepared[0])
    counted = count(prepared[0].call, names, [one.args for one in prepared], REPEATED[run.stage])
    return _Seen(
        "not-judged" if counted.error else "ok",
        counted.error,
        calls=tuple(
            Call(size, Ended(), Ended(), recompiled=at in counted.compiled) for at, (size, _) in enumerate(sized)
        ),
        compiles=len(counted.compiled),
        cpu_seconds=time.process_time() - started,
        seconds=time.perf_counter() - clock,
        repeated=counted,
    )


def _with_source(call: Call, recorder: Recorder) -> Call:
    source = recorder.source_of(call.captured.expression)
    captured = msgspec.structs.replace(call.captured, follows=source)
    return msgspec.structs.replace(call, captured=captured) if source else call


def _is_told(calls: tuple[Call, ...], text: str, message: str) -> bool:
    """Whether a constraint is worth keeping: it has a message, or is not true in some call."""
    return bool(message) or any(
        text == call.captured.expression or holds(text, dict(call.symbols)) is False for call in calls
    )


def _note_failure(seen: _Seen, error: BaseException, recorder: Recorder) -> None:
    chain = exception_chain(error)
    if any(type(one) is MemoryError for one in chain):
        raise MemoryError  # says nothing about the subject: what was kept of earlier ones may be the reason
    lacking = next((one for one in chain if type(one).__name__ in LACKING), None)
    if lacking is not None:
        seen.outcome, seen.reason = "not-judged", message_of(lacking).partition("\n")[0]
        return
    seen.outcome = "fail"
    seen.exceptions = tuple(_exception_info(one, recorder) for one in chain)
    seen.raised = recorder.raised(chain)
    seen.module = seen.raised.module if seen.raised is not None else module_in(chain[-1].__traceback__)


def _exception_info(error: BaseException, recorder: Recorder) -> ExceptionInfo:
    kind = type(error)
    native, maker = recorder.refused(error)
    real_stack = getattr(error, "real_stack", None)
    return ExceptionInfo(
        type=f"{kind.__module__}.{kind.__qualname__}",
        message=_normalized(message_of(error))[:MESSAGE_LIMIT],
        frames=frames.traceback_frames(error.__traceback__),
        traced=frames.summary_frames(real_stack) if real_stack is not None else (),
        native=native,
        maker=maker,
    )


def _normalized(text: str) -> str:
    for pattern, replacement in _GENERATED:
        text = pattern.sub(replacement, text)
    for folder in frames.folders():
        text = text.replace(folder, "")
    return text


@contextmanager
def clean_slate(stage: Stage = "compile") -> Iterator[None]:
    """Reset the state that one case leaves to the next, and set what every capture needs. Calls at several sizes have
    torch's own settings.
    """
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        random.seed(0)
        torch.default_generator.manual_seed(0)
        default_dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
        stack.callback(torch.set_default_dtype, default_dtype)
        stack.callback(torch.set_grad_enabled, grad)
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        torch_api.bound(torch_api.DYNAMO_PATCHER)()
        torch_api.bound(torch_api.DYNAMO_RESET)()
        if stage not in APART:
            stack.enter_context(
                torch_api.bound(torch_api.DYNAMO_CONFIG)(
                    {
                        torch_api.CAPTURE_SCALARS.key: True,
                        torch_api.CAPTURE_DYNAMIC_SHAPES.key: True,
                        torch_api.FAKE_CACHE.key: False,
                    }
                )
            )
        yield


@contextmanager
def captured_output() -> Iterator[io.StringIO]:
    """Redirect file descriptors 1 and 2 into a buffer that is filled at the end. torch prints graphs below
    Python's streams.
    """
    text = io.StringIO()
    with tempfile.TemporaryFile() as file:
        saved = [os.dup(1), os.dup(2)]
        _flush()
        try:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            # Python's own streams may have been replaced (by pytest, by a progress display): these write to 1 and 2.
            with (
                open(1, "w", closefd=False) as out,
                open(2, "w", closefd=False) as err,
                redirect_stdout(out),
                redirect_stderr(err),
            ):
                yield text
        finally:
            _flush()
            for number, descriptor in zip((1, 2), saved, strict=True):
                os.dup2(descriptor, number)
                os.close(descriptor)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 4 * OUTPUT_TAIL))
            text.write(file.read().decode(errors="replace"))
            text.seek(0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
