"""The inside of a worker process: its limits, its journal, and tasks that arrive and leave as JSON."""

from __future__ import annotations

import ctypes
import errno
import multiprocessing
import multiprocessing.connection
import os
import resource
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import forkserver, popen_forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec
import psutil  # type: ignore[import-untyped]

from ddefuzz import internal
from ddefuzz.errors import DdefuzzError, UnsupportedError, is_of, unsupported_by
from ddefuzz.execute import journal, limit
from ddefuzz.execute.channel import DEAF, alone, leave_fork_server, out_of_reach
from ddefuzz.execute.journal import Entry, Journal
from ddefuzz.execute.protocol import Observation, PatchedRun, Run

DONE, REFUSED = b"+", b"-"
"""First byte of what a cold process says: an observation follows, or the message of a DdefuzzError."""

OUT_OF_MEMORY = 78  # the exit code of a process in which Python has no memory left
SPOILED = 79  # the exit code of a process whose descriptors user code has closed
FINISHED = 113  # the exit code of a worker of a pool that ends because it is no longer needed
ENDED_ITSELF = 256  # what stands for the exit code 0 of a worker that user code has ended
ORPHANED = 257  # the same, of a process whose fork server was killed, which tells nobody how it ended

SYMBOLIZER = "TORCH_SYMBOLIZE_MODE"
"""The environment variable that selects how torch names C++ addresses. torch reads it once, at the first stack."""

SHORT_LIVED_SYMBOLIZER = "fast"
"""torch's own symbolizer: 0.12 s per new stack. A child process takes 0.8 CPU seconds for its first."""

A = TypeVar("A")
R = TypeVar("R")

POLL_SECONDS = 1.0

_PR_SET_PDEATHSIG = 1


NOTHING = msgspec.Raw(b"null")


class Answer(msgspec.Struct, frozen=True):
    """What a task sends: its result, if it has one, and the exceptions of ddefuzz that it met.

    Without a result the last one ended it.
    """

    result: msgspec.Raw = NOTHING
    is_done: bool = False
    errors: tuple[internal.InternalError, ...] = ()


_journal: Journal | None = None


def start(folder: Path | None, memory_bytes: int, tasks: int) -> None:
    """Prepare this process as a worker of a pool, for at most this many tasks. Called once, before the first task."""
    global _journal  # noqa: PLW0603 one journal a process is what a journal is
    _confine(memory_bytes)
    os.environ[SYMBOLIZER] = long_lived_symbolizer() if tasks > 1 else SHORT_LIVED_SYMBOLIZER
    _journal = Journal(folder) if folder is not None else None


def long_lived_symbolizer() -> str:
    """The symbolizer for a process that names many C++ stacks.

    For such a process starting `addr2line` pays off, if it is installed (then 0.03 s per new stack). torch's
    own symbolizer has crashed processes that named hundreds.
    """
    return "addr2line" if shutil.which("addr2line") else SHORT_LIVED_SYMBOLIZER


_hidden: list[ModuleType] = []  # what processes import as the main module, if it is hidden
_HIDING = threading.Lock()  # held while the main module is another one. A pool starts workers in a thread of its own.


def hide_main() -> None:
    """Processes import the main module no more: it may be a script that calls ddefuzz when it is imported."""
    _hidden[:] = [ModuleType("__main__")]


@contextmanager
def main_hidden() -> Iterator[None]:
    """Start a process in this block."""
    with _HIDING:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = _hidden[0] if _hidden else main
        try:
            yield
        finally:
            sys.modules["__main__"] = main


class _Popen(popen_forkserver.Popen):
    """A process that the fork server starts. multiprocessing takes the end of the server for the exit code 255."""

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """The exit code, None while it runs."""
        if self.returncode is None and multiprocessing.connection.wait(
            [self.sentinel], 0 if flag == os.WNOHANG else None
        ):
            try:
                self.returncode = forkserver.read_signed(self.sentinel)
            except (OSError, EOFError):
                self.returncode = ORPHANED
        return self.returncode


class MainlessProcess(ForkServerProcess):
    """A process that does not import the main module if that is hidden."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802
        with main_hidden():
            return _Popen(process_obj)


class WorkerProcess(MainlessProcess):
    """A worker of a pool. Only one that is no longer needed has the exit code 0, for which a pool waits in vain."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], **named: Any) -> None:
        super().__init__(target=_finish, args=(target, *args), **named)

    @property
    def exitcode(self) -> int | None:
        """The exit code, None while it runs. Raises BrokenProcessPool, for all tasks, if one was lost with it that no
        worker has begun.
        """
        code = super().exitcode
        if code == DEAF:
            raise BrokenProcessPool("a worker cannot read its task")
        return {FINISHED: 0, 0: ENDED_ITSELF}.get(code, code) if code is not None else None

    def is_alive(self) -> bool:
        """Whether it runs. With its end that of its process group comes: what user code has started."""
        alive = super().is_alive()
        if not alive and self.pid is not None:
            end_group(self.pid)
        return alive


def _finish(target: Callable[..., None], *args: Any) -> None:
    target(*args)
    os._exit(FINISHED)  # at once: user code may have left threads and processes for which Python would wait


def end_group(leader: int) -> None:
    """End the processes of a worker's group."""
    with suppress(ProcessLookupError, PermissionError):
        if leader > 1:
            os.killpg(leader, signal.SIGKILL)


def note(entry: Entry) -> None:
    """Write to the journal what is about to be done. Without a journal (a cold process, a test) nothing is written."""
    if _journal is not None:
        _journal.note(entry)


def perform(
    function: Callable[[Any], Any], argument: bytes, phases: Path | None = None, cpu_seconds: float | None = None
) -> bytes:
    """Run one task: decode its argument, call, encode its `Answer`. `phases` is the file for what it is doing.

    The process ends if the task takes more than `cpu_seconds`.

    Raises only a DdefuzzError about what was handed in or the environment, which the campaign's process can unpickle.
    """
    internal.take()
    answer = Answer()
    try:
        _keep_to_one_thread()
        kind, _ = signature(function)
        with journal.kept_in(phases), limit.limited(cpu_seconds), alone():
            result = encoded(function(msgspec.json.decode(argument, type=kind)))
        answer = Answer(msgspec.Raw(result), is_done=True)
    except MemoryError:
        # What was interrupted may have left torch's modes on, and the next tasks would get no memory either.
        os._exit(OUT_OF_MEMORY)
    except BaseException as error:
        if is_of(error, DdefuzzError) and not internal.is_internal(error):
            raise
        if is_of(error, OSError) and error.errno == errno.EBADF:
            os._exit(SPOILED)
        limited = unsupported_by(error, f"a worker could not use {internal.folder()}")
        if limited is not None:
            raise limited from None
        internal.note(error)
    errors = msgspec.json.decode(encoded(internal.take()), type=tuple[internal.InternalError, ...])
    return msgspec.json.encode(msgspec.structs.replace(answer, errors=errors))


def encoded(value: Any) -> bytes:
    """The value as JSON, which cannot have the lone surrogates that user code may put in any text: they are escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(value, str_keys=True)))


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {_escaped(key): _escaped(one) for key, one in value.items()}
        case list() | tuple():
            return [_escaped(one) for one in value]
    return value


class Task(msgspec.Struct, Generic[A, R], frozen=True):
    """The task that calls a function of a module that imports torch, which who submits the task does not import.

    `function` is `module:name`. What needs no torch is a task as it is: any function of one argument at the top of a
    module.
    """

    function: str
    argument: type[A]
    result: type[R]

    def __call__(self, argument: A) -> R:
        """Do it in this process."""
        module, _, name = self.function.partition(":")
        result: R = getattr(late(module), name)(argument)
        return result


def signature(function: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The types of a task's one argument and of its result."""
    if isinstance(function, Task):
        return function.argument, function.result
    hints = get_type_hints(function)
    result = hints.pop("return")
    (kind,) = hints.values()
    return kind, result


observe_run = Task("ddefuzz.execute.observe:observe", Run, Observation)
observe_patched_run = Task("ddefuzz.execute.observe:observe_patched", PatchedRun, Observation)


def late(module: str) -> Any:
    """A module of ours that imports torch, for the function of a task. Who submits the task does not import it."""
    return import_module(module)


def cold_main(
    connection: multiprocessing.connection.Connection,
    observed_by: Callable[[Any], Any],
    argument: bytes,
    memory_bytes: int,
    phases: Path,
    cpu_seconds: float,
) -> None:
    """The whole life of a cold process: one run, whose observation is sent through the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _confine(memory_bytes)
    os.environ[SYMBOLIZER] = SHORT_LIVED_SYMBOLIZER
    try:
        answer = DONE + perform(observed_by, argument, phases, cpu_seconds)
    except DdefuzzError as error:
        answer = REFUSED + str(error).encode(errors="backslashreplace")
    connection.send_bytes(answer)
    connection.close()


def _confine(memory_bytes: int) -> None:
    """Limit memory, end at once on request, and end when the campaign or the fork server ends.

    A process group of its own: a signal that user code sends to its group below Python reaches no other process of
    ddefuzz.
    """
    os.setpgid(0, 0)
    # User code may find these under any number. What a run prints is captured.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    os.close(null)
    # Semaphores of this method have no name that a killed worker would leave behind (tqdm makes one at import).
    multiprocessing.set_start_method("fork", force=True)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    leave_fork_server()
    threading.Thread(target=_follow_campaign, daemon=True).start()


def _keep_to_one_thread() -> None:
    # At each task, not at the start of the process: a task can say what is wrong with this torch.
    try:
        torch = import_module("torch")
        torch.set_num_threads(1)
    except (ImportError, AttributeError) as error:
        version = getattr(sys.modules.get("torch"), "__version__", "is missing")
        raise UnsupportedError(f"torch {version}: {error}, expected a torch that passes `ddefuzz doctor`") from error


def _follow_campaign() -> None:
    """End this process when the campaign has ended. The fork server lives as long as any of its workers.

    Until then, see that its tasks keep their limit.
    """
    campaign = multiprocessing.parent_process()
    if campaign is not None:
        sentinel = out_of_reach(os.dup(campaign.sentinel))
        try:
            while not multiprocessing.connection.wait([sentinel], POLL_SECONDS):
                limit.check_children()
        except (OSError, ValueError):  # it is closed: nothing would end this process with the campaign
            os._exit(SPOILED)
        if campaign.pid is not None and psutil.pid_exists(campaign.pid):  # user code has put another file there
            os._exit(SPOILED)
        signal.raise_signal(signal.SIGKILL)  # `os.kill` is refused while user code runs
