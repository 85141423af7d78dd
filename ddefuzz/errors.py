"""All exceptions of ddefuzz. Each has the exit code of the command that it ends.

DdefuzzError                3  an internal error of ddefuzz, unless a subclass says otherwise
├── InputError              2  what the user handed in: a case file, an option, a configuration key
│   ├── ProgramError        2  a case file, with path, line, found, expected
│   └── StaleError          2  a decision on what has changed since it was shown
├── UnsupportedError        4  this torch, this Python, this database schema
│   └── DatabaseError       4  unreachable, read-only, corrupt, full, too new
│       └── RowError        4  one row that does not fit the records
└── NothingRanError         5  the selection was empty

In a `refusals` block a command goes on without rows of the input that cannot be used (a case that cannot be built, a
damaged row of the database), and names them in the end. Elsewhere the first one raises.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeGuard, TypeVar

E = TypeVar("E", bound=BaseException)

EXIT_OK = 0
EXIT_FOUND = 1
EXIT_USAGE = 2
EXIT_INTERNAL = 3
EXIT_UNSUPPORTED = 4
EXIT_NOTHING_RAN = 5
EXIT_INTERRUPTED = 130


class DdefuzzError(Exception):
    """The root: `str(error)` is the one line that the user sees."""

    exit_code = EXIT_INTERNAL


class InputError(DdefuzzError):
    """Something handed in cannot be used; the message says what was found, where, and what was expected."""

    exit_code = EXIT_USAGE


class ProgramError(InputError):
    """A case file that does not parse as a program."""

    def __init__(self, path: str, line: int, text: str, expected: str) -> None:
        super().__init__(f"{path}:{line}: found {text}, expected {expected}")
        self.path = path
        self.line = line
        self.found = text
        self.expected = expected

    def __reduce__(self) -> tuple[type[ProgramError], tuple[str, int, str, str]]:
        """Made again from its parts: a worker's error comes back to who asked."""
        return type(self), (self.path, self.line, self.found, self.expected)


class StaleError(InputError):
    """A decision on something that another one has changed since it was shown."""


class UnsupportedError(DdefuzzError):
    """The environment is not one that ddefuzz can work in."""

    exit_code = EXIT_UNSUPPORTED


class DatabaseError(UnsupportedError):
    """The findings database cannot be used."""


class RowError(DatabaseError):
    """One row of the findings database cannot be read. Others can."""


class NothingRanError(DdefuzzError):
    """No case was selected, so there is nothing to report."""

    exit_code = EXIT_NOTHING_RAN


_NO_ROOM = "a disk with free space"
_LIMITED = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EFBIG: _NO_ROOM,
    errno.EROFS: "a place that can be written",
    errno.EIO: "a device that works",
    errno.EMFILE: "more open files to be allowed (such as `ulimit -n 1024`)",
    errno.ENFILE: "fewer open files on this machine",
    errno.EAGAIN: "more processes to be allowed (`ulimit -u`)",
    errno.ENOMEM: "more free memory",
}
"""What the environment lacks where the operating system answers with an error number, as what is expected."""


def is_of(error: BaseException, kind: type[E]) -> TypeGuard[E]:
    """Whether an exception is one of this class. `isinstance` may raise what a class of the user's raises."""
    return issubclass(type(error), kind)


def unsupported_by(error: BaseException, doing: str) -> UnsupportedError | None:
    """The error as one of the environment's, None where it may be a bug of ddefuzz; `doing` is what was tried."""
    if is_of(error, MemoryError):
        return UnsupportedError(f"{doing}: out of memory, expected {_LIMITED[errno.ENOMEM]}")
    if not is_of(error, OSError) or error.errno not in _LIMITED:
        return None
    where = f" ({error.filename})" if error.filename else ""
    return UnsupportedError(f"{doing}: {error.strerror}{where}, expected {_LIMITED[error.errno]}")


MOST_SAID = 1000
"""How many rows are named."""

_refused: ContextVar[dict[str, int] | None] = ContextVar("refused", default=None)


@contextmanager
def refusals() -> Iterator[dict[str, int]]:
    """Note rows instead of raising. What is noted is the line about each row, and the exit code of its error."""
    noted: dict[str, int] = {}
    token = _refused.set(noted)
    try:
        yield noted
    finally:
        _refused.reset(token)


def refuse(error: DdefuzzError) -> None:
    """Note a row that is left out. Raises the error outside of a `refusals` block."""
    noted = _refused.get()
    if noted is None:
        raise error
    noted[str(error)] = error.exit_code


def refused() -> tuple[str, ...]:
    """What was noted so far."""
    return tuple(_refused.get() or ())


def lines_of(noted: Mapping[str, int]) -> Iterator[str]:
    """A line for each row, with how many there are."""
    for number, line in enumerate(noted, 1):
        if number > MOST_SAID:
            yield f"left out: {len(noted) - MOST_SAID} more"
            return
        yield f"left out ({number} of {len(noted)}): {line}"
