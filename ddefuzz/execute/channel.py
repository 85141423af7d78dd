"""What connects a worker to the campaign, and user code must not reach: its channel with the locks, and its files.

User code may close descriptors, or write to them: a daemon closes all that it did not open. So those of ddefuzz have
high numbers, and what is read from the channel is not trusted: a message begins with a token of the pool.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd, ForkingPickler
from tempfile import TemporaryFile
from threading import Event
from typing import Any, Final
from weakref import finalize

from ddefuzz.execute.scratch import scratch_folder

LOWEST: Final = 512
"""The lowest number of a descriptor out of reach. Code that closes all descriptors begins with the first ones."""

MOST_BYTES: Final = 256 * 1024 * 1024
"""The largest message."""

TOKEN_BYTES: Final = 16

DEAF: Final = 80
"""The exit code of a worker that has taken a task which it cannot read: user code has changed Python."""


def out_of_reach(descriptor: int) -> int:
    """The same open file under a high number. Where so many descriptors are not allowed, it stays as it is."""
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LOWEST)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EMFILE):
            raise
        return descriptor
    os.close(descriptor)
    return high


def leave_fork_server() -> None:
    """Close this worker's ends of the pipes of the fork server, which a byte ends, and of the resource tracker, which
    prints what it cannot read. Nothing of ddefuzz is tracked; user code that needs a tracker starts one of its own.
    """
    server, tracker = vars(forkserver)["_forkserver"], vars(resource_tracker)["_resource_tracker"]
    for owner, name in ((server, "_forkserver_alive_fd"), (tracker, "_fd")):
        if vars(owner)[name] is not None:
            os.close(vars(owner)[name])
            vars(owner)[name] = None


_performing: list[int] = []
"""The process that performs a task."""


@contextmanager
def alone() -> Iterator[None]:
    """A process that user code forks in the block ends with it. It would answer, too, and take the next task."""
    _performing.append(os.getpid())
    try:
        yield
    finally:
        end_forked()
        _performing.pop()


def end_forked() -> None:
    """End this process if user code has forked it: before it runs that code, too, and forks again."""
    if _performing and os.getpid() != _performing[-1]:
        os._exit(0)


_retired = Event()
"""Set if this process takes no further task."""


def retire() -> None:
    """End this worker after its task, because user code has changed the process. Another one takes its place.

    In the process that has the workers, where `ddefuzz.check` runs a live model, this does nothing.
    """
    if parent_process() is not None:
        _retired.set()


HANDS_ON: Final = 81
"""The exit code of a worker that hands its task on, because it has executed another file of the user."""


def leave_to_another() -> None:
    """End this worker at once: another one runs its task. In the process that has the workers, this does nothing."""
    if parent_process() is not None:
        os._exit(HANDS_ON)


class Channel(Connection):
    """One end of a pipe whose messages begin with a token. `recv` raises OSError for anything else."""

    token: bytes

    def fileno(self) -> int:
        """The descriptor, by which a worker waits for tasks. A worker that retires sees the end of them (EOFError)."""
        if _retired.is_set():
            raise EOFError
        return super().fileno()

    def send(self, obj: Any) -> None:
        """Send an object."""
        message = ForkingPickler.dumps(obj)
        self.send_bytes(self.token)
        self.send_bytes(message)

    def recv(self) -> Any:
        """Receive an object. Only what has the token is unpickled.

        A worker that cannot do it ends: nobody else has the task.
        """
        if self.recv_bytes(TOKEN_BYTES) != self.token:
            raise OSError(errno.EBADMSG, "found a message of another writer")
        try:
            return ForkingPickler.loads(self.recv_bytes(MOST_BYTES))
        except Exception as error:
            if parent_process() is not None:
                os._exit(DEAF)
            raise OSError(errno.EBADMSG, str(error)) from error


def channel_of(connection: Connection, token: bytes) -> Channel:
    """The connection as a channel. It is not used afterwards."""
    readable, writable, descriptor = connection.readable, connection.writable, os.dup(connection.fileno())
    connection.close()
    return _rebuilt(descriptor, readable, writable, token)


def _rebuilt(descriptor: int, readable: bool, writable: bool, token: bytes) -> Channel:
    channel = Channel(out_of_reach(descriptor), readable, writable)
    channel.token = token
    return channel


def _unpacked(duplicate: Any, readable: bool, writable: bool, token: bytes) -> Channel:
    return _rebuilt(duplicate.detach(), readable, writable, token)


def _packed(channel: Channel) -> tuple[Callable[..., Channel], tuple[Any, ...]]:
    return _unpacked, (DupFd(channel.fileno()), channel.readable, channel.writable, channel.token)


ForkingPickler.register(Channel, _packed)


def pipe(reader: Connection, writer: Connection) -> tuple[Channel, Channel]:
    """The ends of a pipe as channels."""
    token = os.urandom(TOKEN_BYTES)
    return channel_of(reader, token), channel_of(writer, token)


class FileLock:
    """A reentrant POSIX lock on a file without a name. The kernel releases it when the process that holds it ends.

    multiprocessing's locks are semaphores with a name in /dev/shm. After a `kill -9` of the campaign, Python's resource
    tracker removes them and prints a warning. A semaphore also stays taken when the worker that holds it dies.
    A process must not share a lock among threads.
    """

    def __init__(self) -> None:
        with TemporaryFile(dir=scratch_folder()) as file:
            self._own(os.dup(file.fileno()))

    def __getstate__(self) -> Any:
        return DupFd(self._descriptor)

    def __setstate__(self, duplicate: Any) -> None:
        self._own(duplicate.detach())

    def _own(self, descriptor: int) -> None:
        self._descriptor, self._depth = out_of_reach(descriptor), 0
        finalize(self, os.close, self._descriptor)

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Take the lock. It waits without a limit, because a holder that ends releases it."""
        if not self._depth:
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX if block else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                return False
        self._depth += 1
        return True

    def release(self) -> None:
        """Give it back as often as it was taken."""
        self._depth -= 1
        if not self._depth:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
