"""Worker processes with hard limits of CPU time and memory, forked from one server that has imported torch.

Messages to and from a worker are JSON (msgspec), never a pickle of data. Whatever happens to a worker becomes a
value: `LostTask`, or an `Observation` with the outcome `crash` or `timeout`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from ddefuzz import internal
from ddefuzz.errors import DdefuzzError, InputError, UnsupportedError, unsupported_by
from ddefuzz.execute import limit, worker
from ddefuzz.execute.channel import HANDS_ON
from ddefuzz.execute.journal import TaskTrace, left_by
from ddefuzz.execute.limit import clock_seconds
from ddefuzz.execute.protocol import Call, CallEnd, Observation, PatchedRun, ProgramSubject, Run, Runner
from ddefuzz.execute.scratch import check_folders, end_strays, scratch_folder
from ddefuzz.execute.server import ColdContext, PoolContext, Watchdog, fork_server, server_process, wait_for_end

A = TypeVar("A")
R = TypeVar("R")

Stopped: TypeAlias = Callable[[], bool]
"""Called now and then. True ends what is running."""

MEMORY_BYTES = 4_000_000_000
"""What a worker may allocate (RLIMIT_DATA). Above it, torch's allocator raises, as on a full machine."""

TASKS_PER_WORKER = 500
"""A worker is replaced after this many tasks, so that its private memory stays below 400 MB (docs/measurements.md)."""

STARTS = 3
"""How often a task is handed to new workers, as long as the fork server dies."""

MUCH_SLOWER = 10.0
"""How many times eager's CPU seconds a call of a captured program has to have before it counts as one without end."""

MOST_HANDED_ON = 20
"""How often a worker that has executed another file of the user may hand a task on."""

EXITED = "exit code"
"""How the reason begins if a process ended without a signal."""

NO_MEMORY = "the process had no memory left"
"""The reason for the loss of a process in which Python could not allocate."""

NO_CHANNEL = "the code closes the descriptors of ddefuzz, or writes to them"
"""The reason for the loss of a process whose channel or files user code has spoiled."""

NO_WORKER = "no worker is left"
"""How the reason begins if the workers end for no reason of a task: the fork server was killed."""

BREAKS = "the code breaks the process that runs it:"
"""How the reason begins if a worker cannot return the result."""

_TASKS = count()


class LostTask(msgspec.Struct, frozen=True, tag=True):
    """A task whose worker died or was killed at its time limit, and what it was doing in the run.

    `not-judged` is a task that an exception of ddefuzz ended. Its worker lives. `cpu_seconds` are those that it had, if
    it used them up.
    """

    outcome: Literal["crash", "timeout", "not-judged"]
    reason: str
    worker: int = 0
    left: TaskTrace = TaskTrace()
    cpu_seconds: float = 0.0


class Future(Generic[R]):
    """The future result of a task. A subclass says how its answer arrives."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def done(self) -> bool:
        """Whether `result` returns at once."""
        raise NotImplementedError

    def add_done_callback(self, callback: Callable[[Future[R]], None]) -> None:
        """Call back, in a thread of the pool, when the result is there."""
        raise NotImplementedError

    def answer(self) -> bytes | LostTask:
        """Wait for what the worker sends (`worker.Answer` as JSON).

        Raises what the task raises about what was handed in, and UnsupportedError about the environment.
        """
        raise NotImplementedError

    def repeat(self) -> None:
        """Run the task once more."""
        raise NotImplementedError

    def result(self) -> R | LostTask:
        """Wait for the result. What the pool's end cancelled is lost, and so is a task that a bug of ddefuzz ended.

        Raises what `answer` raises.
        """
        answer = self.answer()
        result: R | LostTask = answer if isinstance(answer, LostTask) else answered(answer, self._kind)
        return result


class PoolFuture(Future[R]):
    """The future result of a task of a pool of this process."""

    def __init__(self, schedule: Callable[[], ProcessFuture[bytes]], kind: Any, timeout: float, phases: Path) -> None:
        super().__init__(kind)
        self._schedule = schedule
        self._future = schedule()
        self._timeout = timeout
        self._phases = phases
        self._repeats = 0

    def done(self) -> bool:
        return self._future.done()

    def add_done_callback(self, callback: Callable[[Future[R]], None]) -> None:
        self._future.add_done_callback(lambda _: callback(self))

    def answer(self) -> bytes | LostTask:
        try:
            return self._future.result()
        except TimeoutError:
            return LostTask("timeout", _after_clock(self._timeout), left=left_by(self._phases))
        except ProcessExpired as error:
            if error.exitcode == worker.ORPHANED:
                return self._again(_orphaned(self._phases), STARTS - 1)
            if error.exitcode == HANDS_ON:
                return self._again(LostTask("crash", f"{EXITED} {HANDS_ON}"), MOST_HANDED_ON)
            return _ended(int(error.exitcode), self._timeout, int(error.pid or 0), self._phases)
        except CancelledError:
            return LostTask("crash", "its workers were stopped")
        except BrokenProcessPool as error:
            check_workers_can_start(error)
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, ConnectionError):
                return self._again(LostTask("crash", NO_CHANNEL, left=left_by(self._phases)), 1)
            return self._again(LostTask("crash", f"{NO_WORKER}: {error}", left=left_by(self._phases)), STARTS - 1)
        except DdefuzzError:
            raise
        except Exception as error:  # noqa: BLE001 whatever else it is, code in the worker has made it
            return LostTask("crash", f"{BREAKS} {internal.error_line(error)}", left=left_by(self._phases))

    def _again(self, lost: LostTask, repeats: int) -> bytes | LostTask:
        """The answer of the task after a loss that may be of another task's making: it runs once more."""
        if self._repeats >= repeats:
            return lost
        self._repeats += 1
        self.repeat()
        return self.answer()

    def repeat(self) -> None:
        self._future = self._schedule()


class Pool:
    """`workers` processes for tasks, and cold processes for confirmations; use it in a `with` block.

    Leaving the block kills what still runs and cancels its future. `journal` is a folder for the workers' journals.
    `samples` says that the workers will draw samples of ops: what samples need is imported beforehand.
    """

    def __init__(
        self,
        workers: int,
        journal: Path | None = None,
        tasks_per_worker: int = TASKS_PER_WORKER,
        memory_bytes: int = MEMORY_BYTES,
        *,
        samples: bool = True,
    ) -> None:
        self._memory_bytes = memory_bytes
        self._samples = samples
        self._outstanding: set[ProcessFuture[bytes]] = set()
        self._new_pool = partial(
            ProcessPool,
            max_workers=workers,
            max_tasks=tasks_per_worker,
            initializer=worker.start,
            initargs=(journal, memory_bytes, tasks_per_worker),
        )
        self._start()
        self._watchdog = Watchdog()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for future in tuple(self._outstanding):
            future.cancel()  # type: ignore[no-untyped-call]
        self._stop()
        self._watchdog.end()
        end_strays()

    def _start(self) -> None:
        context: Any = fork_server(PoolContext(), samples=self._samples)  # its locks are of another class
        self._pool = self._new_pool(context=context)

    def _stop(self) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()

    def submit(self, function: Callable[[A], R], argument: A, timeout: float) -> Future[R]:
        """Run `function(argument)` in a worker, for at most `timeout` CPU seconds, and `clock_seconds` of these.

        A module-level function of one argument; its annotations say how argument and result are encoded.
        """
        _, kind = worker.signature(function)
        phases = _phases_file()
        arguments = (function, encoded_argument(argument), phases, timeout)
        return PoolFuture(partial(self._scheduled, arguments, clock_seconds(timeout)), kind, timeout, phases)

    def _scheduled(self, arguments: tuple[Any, ...], clock: float) -> ProcessFuture[bytes]:
        for attempt in range(STARTS):
            try:
                future = self._pool.schedule(worker.perform, args=arguments, timeout=clock)
                break
            except RuntimeError as error:
                # Pebble gives a pool up when a worker dies while none has a task: the next task gets a new one.
                if attempt:
                    _check_server_died(error, is_last=attempt == STARTS - 1)
                self._stop()
                self._start()
        self._outstanding.add(future)
        future.add_done_callback(self._outstanding.discard)
        return future

    def observe(self, run: Run, timeout: float, by: Runner = worker.observe_run) -> Observation:
        """One run in a warm worker. `by` is the task that does it."""
        result = self.submit(by, run, timeout).result()
        return lost_observation(run, result) if isinstance(result, LostTask) else result

    def observe_patched(self, task: PatchedRun, timeout: float) -> Observation:
        """One run with a change of torch in a warm worker. The change ends with the run."""
        result = self.submit(worker.observe_patched_run, task, timeout).result()
        return lost_observation(task.run, result) if isinstance(result, LostTask) else result

    def observe_cold(self, run: Run, timeout: float, by: Runner = worker.observe_run) -> Observation:
        """One run in a new fork that has captured nothing yet."""
        return observe_cold(run, timeout, self._memory_bytes, by)


def observe_cold(
    run: Run, timeout: float, memory_bytes: int = MEMORY_BYTES, by: Runner = worker.observe_run
) -> Observation:
    """One run in a new fork that has captured nothing yet. A crash or a hang is its outcome.

    Raises InputError if the subject cannot be used.
    """
    for _ in range(STARTS):
        result = _found_cold(run, timeout, memory_bytes, by)
        if not isinstance(result, LostTask) or not result.reason.startswith(NO_WORKER):
            break
    return lost_observation(run, result) if isinstance(result, LostTask) else result


def _found_cold(run: Run, timeout: float, memory_bytes: int, by: Runner) -> Observation | LostTask:
    context = fork_server(ColdContext())
    receiver, sender = context.Pipe(duplex=False)
    phases = _phases_file()
    process = context.Process(
        target=worker.cold_main, args=(sender, by, encoded_argument(run), memory_bytes, phases, timeout), daemon=True
    )
    try:
        process.start()
    except ConnectionError:  # the fork server ended before it took the process
        receiver.close()
        sender.close()
        wait_for_end(server_process())  # multiprocessing starts another when it has
        return LostTask("crash", f"{NO_WORKER}: the fork server was killed")
    sender.close()
    try:
        answer = _received(receiver, process.sentinel, clock_seconds(timeout))
        if answer is None:
            return LostTask("timeout", _after_clock(timeout), left=left_by(phases))
        process.join()
        if not answer and process.exitcode == worker.ORPHANED:
            return _orphaned(phases)
        if not answer:
            return _ended(process.exitcode or 0, timeout, process.pid or 0, phases)
        if answer.startswith(worker.REFUSED):
            raise InputError(answer[1:].decode())
        observation: Observation | LostTask = answered(answer[1:], Observation)
        return observation
    finally:
        process.kill()
        process.join()
        worker.end_group(process.pid or 0)
        process.close()
        receiver.close()


def encoded_argument(argument: Any) -> bytes:
    """The argument of a task as JSON. Raises InputError if a name in it is not Unicode: that of a file, mostly."""
    try:
        return msgspec.json.encode(argument)
    except UnicodeEncodeError as error:
        name = error.object.encode(errors="backslashreplace").decode()
        raise InputError(f"found the name '{name}', expected one in UTF-8") from error


def answered(encoded: bytes, kind: Any) -> Any:
    """The result that a worker sent, or the loss of it. The exceptions of ddefuzz that the task met are noted."""
    answer = msgspec.json.decode(encoded, type=worker.Answer)
    if answer.errors:
        check_folders()
    internal.add(answer.errors, scratch_folder())
    if not answer.is_done:
        return LostTask("not-judged", answer.errors[-1].reason)
    return msgspec.json.decode(answer.result, type=kind)


def _after_clock(timeout: float) -> str:
    return f"stopped after {clock_seconds(timeout):g} s by the clock"


def _ended(code: int, timeout: float, number: int, phases: Path) -> LostTask:
    """The loss of a task whose process ended by itself, with this exit code."""
    if code == -limit.ENDS:
        return LostTask("timeout", f"stopped after {timeout:g} CPU s", number, left_by(phases), timeout)
    return LostTask("crash", exit_reason(code), number, left_by(phases))


def _orphaned(phases: Path) -> LostTask:
    """The loss of a task whose process ended with the fork server."""
    return LostTask("crash", f"{NO_WORKER}: the fork server was killed", left=left_by(phases))


def _received(receiver: Connection, ended: int, timeout: float) -> bytes | None:
    """What the process sent. Empty if it ended before it sent everything, None if it did not finish in time.

    Its end is watched too (`ended`, its sentinel), because a process that it started may keep the pipe open.
    """
    if not wait([receiver, ended], timeout):
        return None
    try:
        return receiver.recv_bytes() if receiver.poll() else b""
    except (EOFError, OSError):
        return b""


def check_workers_can_start(error: BrokenProcessPool) -> None:
    """Raises `UnsupportedError` where the environment keeps new workers, or the fork server, from starting."""
    check_folders()
    limited = unsupported_by(error.__cause__ or error, "no worker can be started")
    if limited is not None:
        raise limited from error


def _check_server_died(error: RuntimeError, *, is_last: bool) -> None:
    """Raise why a new pool starts no worker, unless its fork server has died and there is another start."""
    if not isinstance(error, BrokenProcessPool):
        raise error
    check_workers_can_start(error)
    cause = error.__cause__ or error
    if not isinstance(cause, ConnectionError | EOFError):
        raise UnsupportedError(f"no worker can be started: {cause}") from error
    if is_last:
        raise UnsupportedError(
            f"no worker can be started: the fork server dies while it starts ({cause}), expected it to live; "
            "the system may kill processes that need too much memory"
        ) from error


def first_answer(future: Future[R], stopped: Stopped) -> R:
    """The answer of workers that were just started. If one is killed, another one is asked once.

    Raises KeyboardInterrupt if stopped before, UnsupportedError if torch cannot be used or no worker starts.
    """
    result = waited(future, stopped)
    if isinstance(result, LostTask) and result.outcome == "crash" and result.worker:
        future.repeat()
        result = waited(future, stopped)
    if isinstance(result, LostTask):
        raise UnsupportedError(f"the workers do not start: {result.reason}; `ddefuzz doctor` says more")
    return result


def waited(future: Future[R], stopped: Stopped, what: str = "") -> R | LostTask:
    """The result, when it is there. Raises KeyboardInterrupt if stopped before. `what` names the task."""
    while not future.done():
        if stopped():
            raise KeyboardInterrupt
        time.sleep(0.02)
    with internal.guarded(what) as guard:
        return future.result()
    return LostTask("not-judged", guard.reason)


def _phases_file() -> Path:
    """A path for what one task is doing."""
    return scratch_folder() / f"phases-{next(_TASKS)}"


def lost_observation(run: Run, lost: LostTask) -> Observation:
    """The observation of a run whose process was lost.

    A process that crashes dies of a signal. User code that ends it otherwise (`os._exit`) is not judged, nor is the
    end of a process without memory: what it kept of earlier tasks may be the reason. What eager does, and what
    ddefuzz does when it reads a captured program, is not judged either. If a call of the captured program was lost,
    the observation has that call.
    """
    if not isinstance(run.subject, ProgramSubject) and lost.reason.startswith(EXITED):
        return Observation(run.stage, run.semantics, "not-judged", f"the code ends its own process: {lost.reason}")
    unusable = lost.reason in {NO_MEMORY, NO_CHANNEL} or lost.reason.startswith((BREAKS, NO_WORKER))
    if unusable or lost.outcome == "not-judged":
        return Observation(run.stage, run.semantics, "not-judged", lost.reason)
    phase, stack = lost.left
    if phase.part in {"eager", "reading"}:
        return Observation(run.stage, run.semantics, "not-judged", f"{lost.reason} {phase}", output=stack)
    calls: tuple[Call, ...] = ()
    reason = lost.reason
    if phase.part == "captured" and 0 < lost.cpu_seconds < MUCH_SLOWER * phase.eager:
        why = f"{lost.reason} {phase}; eager took {phase.eager:.1f} s"
        return Observation(run.stage, run.semantics, "not-judged", why, output=stack)
    if phase.part == "captured" and phase.size is not None:
        reason = f"{lost.reason} in the gradient" if phase.gradient else lost.reason
        calls = (Call(phase.size, CallEnd(), CallEnd(reason)),)
    return Observation(run.stage, run.semantics, lost.outcome, reason, calls=calls, output=stack)


def exit_reason(code: int) -> str:
    """A process's exit code in words: `SIGSEGV (Segmentation fault)`, `exit code 3`."""
    code = 0 if code == worker.ENDED_ITSELF else code
    if code == worker.OUT_OF_MEMORY:
        return NO_MEMORY
    if code == worker.SPOILED:
        return NO_CHANNEL
    if code >= 0:
        return f"{EXITED} {code}"
    name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
    return f"{name} ({signal.strsignal(-code)})"
