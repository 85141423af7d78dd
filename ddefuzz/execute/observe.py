"""One run in this process: reset torch's state, run a stage under the hooks, and record everything seen.

A run may have a changed file of torch or of the user. Nothing is written, and no module is loaded again: the existing
function objects get the code of the changed source, and later their own code again. Decorators and registries hold the
same function objects, so they need not run again.
"""

from __future__ import annotations

import ast
import gc
import io
import linecache
import os
import random
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from functools import cache, lru_cache, partial
from time import perf_counter  # by its name, which user code cannot replace
from types import CodeType, FunctionType
from typing import IO, Any, Final, NamedTuple

import msgspec
import psutil  # type: ignore[import-untyped]
import torch

from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.execute import journal, limit
from ddefuzz.execute.channel import out_of_reach, retire
from ddefuzz.execute.exercise import exercise
from ddefuzz.execute.graphs import digest_of, forms_of, marked_sizes, shape_env_of
from ddefuzz.execute.isolation import kept_intact, removed, restored, unwound
from ddefuzz.execute.parts import left_out
from ddefuzz.execute.preparation import PreparedSubject, changed, inputs_of, sizes_by_name
from ddefuzz.execute.protocol import (
    RETRACES,
    SAYS_VALUES,
    Call,
    CallableSubject,
    ExceptionInfo,
    Observation,
    PatchedRun,
    ProgramSubject,
    Run,
    Semantics,
    Stage,
    Subject,
    harm,
)
from ddefuzz.execute.retraces import RETRACE_FUNCTIONS
from ddefuzz.execute.stages import Capture, StageFunction, graph_text, stage_function, unfit
from ddefuzz.execute.subject import prepare
from ddefuzz.files import read_text, real_path
from ddefuzz.instrument import frames, torch_api
from ddefuzz.instrument.events import Constraint, Place
from ddefuzz.instrument.guards import watch
from ddefuzz.instrument.recorder import AssumedSizes, Recorder, module_in
from ddefuzz.instrument.truth import holds
from ddefuzz.internal import error_line, exception_chain, innermost_file, is_internal, message_of, traceback_of

FOLDER = tempfile.gettempdir()  # where output is captured, read before user code runs
OUTPUT_TAIL = 2000  # characters kept of what a run prints
MESSAGE_LIMIT = 6000  # characters kept of an exception's message

LACKING = torch_api.names_of([torch_api.NO_COMPILER])
"""Exceptions by which torch says that this machine lacks what a stage needs. They are not failures of the subject."""

_MEGABYTE = 1e6

_GENERATED = (
    (re.compile(r"<eval_with_key>\.\d+"), "<eval_with_key>"),
    (re.compile(r"\b0x[0-9a-f]{6,}"), "0x…"),
    (re.compile(r"^[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ (\S+)", re.MULTILINE), r"\1"),
)
"""What differs from run to run: generated function names, addresses, the time and process in torch's log lines."""


HEALTHY = Run(
    ProgramSubject(
        """# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0 3"]):
    return torch.relu(x)
"""
    ),
    "export",
)
"""A run of a program that every torch captures."""


class Stopwatch:
    """Seconds of CPU, with those of children, and of the clock since it was made."""

    def __init__(self) -> None:
        self.started, self.clock = limit.cpu_seconds(), perf_counter()

    def read(self, observation: Observation) -> Observation:
        """The observation with the seconds until now."""
        spent = {"cpu_seconds": limit.cpu_seconds() - self.started, "seconds": perf_counter() - self.clock}
        return msgspec.structs.replace(observation, **spent)


def observe(run: Run) -> Observation:
    """Do one run in this process. Whatever the subject raises becomes part of the observation.

    Raises InputError if the subject cannot be used and UnsupportedError if this torch cannot be watched.
    """
    if run.out:
        with left_out(run.out, dict(run.symbols)) as parts:
            observation = observe(msgspec.structs.replace(run, out=()))
        return msgspec.structs.replace(observation, parts=tuple(parts))
    retrace = RETRACES.get(run.stage)
    if retrace is not None:
        return _retraced(run, retrace.begins)
    return observe_in(stage_function(run.stage, called=bool(run.calls)), lambda: prepare(run.subject), run)


def _retraced(run: Run, begins: Stage) -> Observation:
    """Do a run that goes on where another stage ends. What that stage does wrong, too, is an observation of that stage.

    Guards are those of the second part alone, as are the answers that `run` gives to them, unless the first part does
    not end without them.
    """
    first = msgspec.structs.replace(run, stage=begins, semantics=Semantics(run.semantics.mechanism), calls=())
    begun: list[Capture] = []
    # As in a script: nothing is reset between the two.
    with captured_output() as output, kept_apart(run.subject), clean_slate():
        for semantics in (first.semantics, run.semantics) if run.semantics.answers else (first.semantics,):
            first = msgspec.structs.replace(first, semantics=semantics)
            seen = _watched(stage_function(begins, called=False), prepare(run.subject), first, begun.append)
            if begun:
                break
        if begun:
            again, called = RETRACE_FUNCTIONS[run.stage], bool(run.calls)
            seen = _watched(lambda prepared: again(prepared, begun[0], called), prepare(run.subject), run, None)
            seen = msgspec.structs.replace(seen, forms=())
    if not begun and (run.calls or run.answer_guards or run.semantics != first.semantics):
        return observe(msgspec.structs.replace(run, stage=begins))
    seen = ended(seen, output.read())
    wrong = {call.size: harm(call) for call in seen.calls if harm(call)}
    if not wrong and not _assumes(seen):
        return seen
    plain = observe(msgspec.structs.replace(run, stage=begins))
    also = {call.size for call in plain.calls if harm(call) >= wrong.get(call.size, 1)}
    if plain.outcome != "ok" or _assumes(plain) or (wrong and wrong.keys() <= also):
        return plain
    return msgspec.structs.replace(seen, calls=tuple(call for call in seen.calls if call.size not in also))


def _assumes(observation: Observation) -> bool:
    """Whether a capture assumes what is not true in some call that eager accepts."""
    accepted = tuple(call for call in observation.calls if call.eager.returned)
    return any(_is_told(accepted, one.text, "") for one in observation.constraints)


def observe_own(run: Run, observed_by: Callable[[Run], Observation]) -> Observation:
    """Do one run by a function of an oracle, with torch's own settings."""
    with captured_output() as output, kept_apart(run.subject), clean_slate(own_settings=True):
        observation = observed_by(run)
    return ended(observation, output.read())


def observe_again(
    stage: Stage, run: Run, then: Callable[[Capture], None], make: Callable[[], PreparedSubject] | None = None
) -> Observation:
    """Within a run by a function of an oracle: do a run in a capture stage, of the subject that `make` makes, if it is
    given. `then` gets what was captured.
    """
    with clean_slate():
        prepared = prepare(run.subject) if make is None else make()
        return _watched(stage_function(stage, called=False), prepared, run, then)


def observe_in(
    stage: StageFunction, make: Callable[[], PreparedSubject], run: Run, then: Callable[[Capture], None] | None = None
) -> Observation:
    """The same, in another stage and of another subject than those of `run`.

    `then` gets what was captured, under the settings of the capture and without the hooks.
    """
    with captured_output() as output, kept_apart(run.subject), clean_slate():
        observation = _watched(stage, make(), run, then)
    return ended(observation, output.read())


def failed_by(run: Run, error: BaseException, recorder: Recorder) -> Observation:
    """The observation of a run that this exception would have ended. `recorder` watches the run."""
    return ended(_failed(Observation(run.stage, run.semantics, "fail"), error, recorder), "")


def ended(observation: Observation, output: str) -> Observation:
    """The observation with the memory of this process, and what the run printed."""
    memory = round(psutil.Process().memory_info().rss / _MEGABYTE, 1)
    return msgspec.structs.replace(observation, peak_rss_mb=memory, output=_normalized(output)[-OUTPUT_TAIL:])


def kept_apart(subject: Subject) -> AbstractContextManager[None]:
    """Programs cannot change ddefuzz. User code can."""
    return running_user_code(subject.path) if isinstance(subject, CallableSubject) else nullcontext()


@contextmanager
def running_user_code(path: str) -> Iterator[None]:
    """Run user code of the file `path`. An exception of ddefuzz then ends the worker. It is the code's doing if the
    code raised it, or had replaced a part of Python, or if a program that torch captures fails in this process, too.
    """
    file = str(real_path(path))  # before the code can change what a relative path means
    try:
        with kept_intact(path):
            yield
    except Exception as error:
        if not is_internal(error):
            raise
        retire()
        what = _doing_of_user(path, file, error)
        if what:
            expected = "expected code that leaves Python and torch as they are"
            # Python cannot print every exception of the user's, so it is no context.
            raise InputError(f"{path}: found code that {what} ({error_line(error)}), {expected}") from None
        raise


def _doing_of_user(path: str, file: str, error: BaseException) -> str:
    if restored:
        return f"replaces {min(restored)} in its worker"
    if innermost_file(error) == file:
        return "raises when ddefuzz reads what it returned or raised"
    try:
        with kept_intact(path):
            spoiled = observe(HEALTHY).outcome != "ok"
    except Exception:  # noqa: BLE001 any says that it is
        spoiled = True
    return "replaces what ddefuzz uses in its worker" if spoiled else ""


class RunUntilCalls(NamedTuple):
    """A run until its capture has ended: what was observed, and what was captured, None if nothing was."""

    observation: Observation
    capture: Capture | None
    recorder: Recorder
    prepared: PreparedSubject


def _watched(
    stage: StageFunction, prepared: PreparedSubject, run: Run, then: Callable[[Capture], None] | None
) -> Observation:
    return called(captured_by(stage, prepared, run), run, then)


def captured_by(stage: StageFunction, prepared: PreparedSubject, run: Run) -> RunUntilCalls:
    """The first part of a run: what a stage captures, under the hooks."""
    counters = torch_api.DYNAMO_COUNTERS.get()
    counters.clear()
    capture: Capture | None = None
    observation = Observation(run.stage, run.semantics, "ok")
    if reason := unfit(run.stage, prepared):
        refused = msgspec.structs.replace(observation, outcome="not-judged", reason=reason)
        return RunUntilCalls(refused, None, Recorder(), prepared)
    how, assumed = run.semantics, AssumedSizes(sizes_by_name(prepared)) if run.answer_guards else None
    stopwatch = Stopwatch()
    with watch(
        how.mechanism,
        how.without,
        answers=how.answers,
        faults=how.faults,
        assumed=assumed,
        inputs=inputs_of(prepared),
    ) as recorder:
        recorder.explains = isinstance(run.subject, CallableSubject)
        try:
            journal.enter("capture")
            with changed(prepared.settings):
                capture = stage(prepared)
            observation = stopwatch.read(observation)
        # KeyboardInterrupt too: Ctrl-C does not reach a worker, so the subject has raised it.
        except BaseException as error:  # noqa: BLE001 the subject is under test: whatever it raises is the observation
            observation = _allowed(_failed(stopwatch.read(observation), error, recorder), prepared)
        observation = msgspec.structs.replace(
            observation, guards=recorder.guards(), answered=recorder.answered(), unbacked=recorder.symbols()
        )
    journal.enter("reading")
    observation = msgspec.structs.replace(observation, compiles=int(counters["stats"]["unique_graphs"]))
    return RunUntilCalls(observation, capture, recorder, prepared)


def called(seen: RunUntilCalls, run: Run, then: Callable[[Capture], None] | None = None) -> Observation:
    """The second part of a run: the calls of what was captured."""
    observation, capture, recorder, prepared = seen
    if capture is None:
        return observation
    if then is not None:
        then(capture)
    graph = graph_text(capture.graph) if run.graph else None
    digest = digest_of(capture) if run.calls or run.graph else ""
    observation = msgspec.structs.replace(observation, graph=graph, digest=digest)
    return _called(observation, capture, run, recorder, prepared) if run.calls and digest != run.called else observation


def _called(
    observation: Observation, capture: Capture, run: Run, recorder: Recorder, prepared: PreparedSubject
) -> Observation:
    forms, how = forms_of(capture), run.semantics
    # A call may compile again, for other strides: the same guards get the same answers.
    watched = watch(how.mechanism, answers=how.answers) if how.answers else nullcontext()
    with watched, changed(prepared.settings):
        exercised = exercise(run.subject, capture, run.calls, forms, seed=run.seed)
    if run.stage not in SAYS_VALUES:
        exercised = tuple(msgspec.structs.replace(call, node=None) for call in exercised)
    calls = tuple(
        msgspec.structs.replace(call, captured=msgspec.structs.replace(call.captured, follows=source))
        if (source := recorder.source_of(call.captured.expression))
        else call
        for call in exercised
    )
    constraints = recorder.constraints(partial(_is_told, calls), shape_env_of(capture.graph))
    constraints += _fixed(capture, prepared)
    return msgspec.structs.replace(observation, forms=forms, calls=calls, constraints=constraints)


def _fixed(capture: Capture, prepared: PreparedSubject) -> tuple[Constraint, ...]:
    """The marked dims for which the graph has a number and never had a symbol, as replacements by nobody."""
    nowhere = Place("Python", "", 0)
    sizes = ((name, number) for name, (_, number) in marked_sizes(capture, prepared).items() if number is not None)
    return tuple(Constraint("replacement", f"{name} = {number}", "", nowhere) for name, number in sizes)


def _is_told(calls: tuple[Call, ...], text: str, message: str) -> bool:
    """Whether a constraint is worth keeping: it has a message, or is not true in some call."""
    return bool(message) or any(
        text == call.captured.expression or holds(text, dict(call.symbols)) is False for call in calls
    )


def _failed(observation: Observation, error: BaseException, recorder: Recorder) -> Observation:
    chain = exception_chain(error)
    if any(type(one) is MemoryError for one in chain):
        raise MemoryError  # says nothing about the subject: what was kept of earlier ones may be the reason
    lacking = next((one for one in chain if type(one).__name__ in LACKING), None)
    if lacking is not None:
        reason = message_of(lacking).partition("\n")[0]
        return msgspec.structs.replace(observation, outcome="not-judged", reason=reason)
    raised = recorder.raised(chain)
    return msgspec.structs.replace(
        observation,
        outcome="fail",
        exceptions=tuple(_exception_info(one, recorder) for one in chain),
        raised=raised,
        module=raised.module if raised is not None else module_in(traceback_of(chain[-1])),
    )


def _allowed(observation: Observation, prepared: PreparedSubject) -> Observation:
    """The observation; not judged if the option `strict` asks for this error, or if torch lacks an option."""
    lacking = [one.message for one in observation.exceptions if one.name == UnsupportedError.__name__]
    if prepared.settings and lacking:
        return msgspec.structs.replace(observation, outcome="not-judged", reason=lacking[0])
    is_strict = any("strict" in marks for marks in prepared.marks.values())
    if is_strict and any(one.name == torch_api.CONSTRAINT_ERROR.name for one in observation.exceptions):
        return msgspec.structs.replace(
            observation, outcome="not-judged", reason="a size became a number, which mark_unbacked(strict=True) refuses"
        )
    return observation


def _exception_info(error: BaseException, recorder: Recorder) -> ExceptionInfo:
    kind = type(error)
    native, maker = recorder.refused(error)
    return ExceptionInfo(
        type=f"{kind.__module__}.{kind.__qualname__}",
        message=_normalized(message_of(error))[:MESSAGE_LIMIT],
        frames=frames.traceback_frames(traceback_of(error)),
        traced=frames.summary_frames(error),
        native=native,
        maker=maker,
    )


def _normalized(text: str) -> str:
    for pattern, replacement in _GENERATED:
        text = pattern.sub(replacement, text)
    for folder in frames.folders():
        text = text.replace(folder, "")
    return text


DTENSORS: Final = "torch.distributed.tensor"  # not imported here: most programs have none


@contextmanager
def clean_slate(*, own_settings: bool = False) -> Iterator[None]:
    """Reset what a case leaves to the next, and, unless torch keeps `own_settings`, set what every capture needs."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        random.seed(0)
        torch.default_generator.manual_seed(0)
        stack.enter_context(unwound())
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
        torch_api.bound(torch_api.DYNAMO_PATCHER)()
        torch_api.bound(torch_api.DYNAMO_RESET)()
        if DTENSORS in sys.modules:
            torch_api.bound(torch_api.CLEAR_SHARDING)()
        stack.enter_context(removed())
        if not own_settings:
            stack.enter_context(
                torch_api.changed_settings(
                    torch_api.DYNAMO_CONFIG,
                    {
                        torch_api.CAPTURE_SCALARS: True,
                        torch_api.CAPTURE_DYNAMIC_SHAPES: True,
                        torch_api.FAKE_CACHE: False,
                    },
                )
            )
        yield


@contextmanager
def captured_output() -> Iterator[io.StringIO]:
    """Redirect descriptors 1 and 2 (torch prints below Python's streams) into a buffer that is filled at the end."""
    text = io.StringIO()
    _reopen_standard()  # first, because a new file gets the lowest number
    with _temporary_file() as file:
        saved = [out_of_reach(os.dup(1)), out_of_reach(os.dup(2))]
        _flush(sys.stdout, sys.stderr)
        try:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            # Python's own streams may have been replaced (by pytest, by a progress display): these write to 1 and 2.
            # They are not closed: that raises if user code has detached their buffers.
            out, err = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
            with redirect_stdout(out), redirect_stderr(err):
                try:
                    yield text
                finally:
                    _flush(sys.stdout, sys.stderr, out, err)
        finally:
            for number, descriptor in zip((1, 2), saved, strict=True):
                os.dup2(descriptor, number)
                os.close(descriptor)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 4 * OUTPUT_TAIL))
            text.write(file.read().decode(errors="replace"))
            text.seek(0)


def _reopen_standard() -> None:
    """Open those of the descriptors 0, 1 and 2 that user code has closed at its import."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _temporary_file() -> IO[bytes]:
    """A file that user code cannot reach. The code may have set `tempfile.tempdir`."""
    with tempfile.TemporaryFile(dir=FOLDER) as file:
        return os.fdopen(out_of_reach(os.dup(file.fileno())), "w+b")


def _flush(*streams: Any) -> None:
    """Flush streams that user code may have replaced or closed."""
    for stream in streams:
        with suppress(Exception, SystemExit):
            stream.flush()


@contextmanager
def exchanged(path: str, before: str, after: str) -> Iterator[int]:
    """Run functions of the file with the source `after` in place of `before`. Yields their number."""
    functions = _functions(path)
    names = {function.__code__.co_filename for function in functions}
    lines = {name: linecache.cache.get(name) for name in names}
    kept = [(function, function.__code__) for function in functions]
    try:
        for name in names:
            linecache.cache[name] = (len(after), None, after.splitlines(keepends=True), name)
        yield sum(_exchange(function, before, after) for function in functions)
    finally:
        for function, code in kept:
            function.__code__ = code
        for name, known in lines.items():
            linecache.cache.pop(name, None)
            if known is not None:
                linecache.cache[name] = known


def _exchange(function: FunctionType, before: str, after: str) -> bool:
    code = function.__code__
    new = _pairs(before, after, code.co_filename).get((code.co_qualname, code.co_firstlineno))
    if new is None or len(new.co_freevars) != len(code.co_freevars):
        return False
    function.__code__ = new
    for statement in _new_imports(before, after):
        exec(statement, function.__globals__)
    return True


@lru_cache(maxsize=16)
def _pairs(before: str, after: str, name: str) -> dict[tuple[str, int], CodeType]:
    """The changed code of each function, by the qualified name and first line that it has before.

    A name whose number of functions changes is left out: which of its lambdas is new is not known.
    """
    old, new = (_by_name(compile(text, name, "exec", dont_inherit=True)) for text in (before, after))
    return {
        (qualified, one.co_firstlineno): other
        for qualified, codes in old.items()
        if len(codes) == len(new.get(qualified, ()))
        for one, other in zip(codes, new[qualified], strict=True)
    }


def _by_name(code: CodeType) -> dict[str, list[CodeType]]:
    codes_of: dict[str, list[CodeType]] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            codes_of.setdefault(constant.co_qualname, []).append(constant)
            for name, codes in _by_name(constant).items():
                codes_of.setdefault(name, []).extend(codes)
    return codes_of


@lru_cache(maxsize=16)
def _new_imports(before: str, after: str) -> tuple[str, ...]:
    old, new = (
        [ast.unparse(node) for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
        for text in (before, after)
    )
    return tuple(one for one in new if one not in old)


def _functions(path: str) -> list[FunctionType]:
    torch_files = str(torch_api.torch_parent() / "torch")
    return _functions_of_torch(path) if path.startswith(torch_files) else _live(path)


@cache
def _functions_of_torch(path: str) -> list[FunctionType]:
    """The functions of a file of torch, found once per process."""
    gc.unfreeze()  # the fork server froze what it imported, which hides it
    functions = _live(path)
    gc.freeze()
    return functions


def _live(path: str) -> list[FunctionType]:
    wanted = _resolved(path)
    return [
        one for one in gc.get_objects() if type(one) is FunctionType and _resolved(one.__code__.co_filename) == wanted
    ]


@lru_cache(maxsize=65536)
def _resolved(path: str) -> str:
    return str(real_path(path)) if path.endswith(".py") else path


def observe_patched(task: PatchedRun) -> Observation:
    """Do a run with a change of torch, as a task of a worker."""
    if not task.eager:
        with patched(task.file, task.source):
            return observe(task.run)

    def stage(_prepared: PreparedSubject) -> Capture:
        def with_change(fresh: PreparedSubject) -> Any:
            with patched(task.file, task.source):
                return fresh.call(*fresh.args, **fresh.kwargs)

        graph = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
        return Capture(
            graph, with_change, lambda fresh: fresh.call(*fresh.args, **fresh.kwargs), lambda _fresh: None, lambda: 1
        )

    return observe_in(stage, lambda: prepare(task.run.subject), task.run)


@contextmanager
def patched(file: str, source: str) -> Iterator[None]:
    """Run with the text `source` in place of a file of torch, named as in frames (`torch/_refs/__init__.py`)."""
    path = torch_api.torch_parent() / file
    with exchanged(str(path), read_text(path), source) as count:
        if not count:
            raise InputError(f"{file}: found no function of it in this process, expected a module that torch imports")
        yield
