"""Standard streams that cannot be written, and signals: SIGTERM and SIGHUP end a command as Ctrl-C does.

Its workers end, and its temporary folder is removed.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from ddefuzz.errors import EXIT_INTERRUPTED, UnsupportedError, unsupported_by
from ddefuzz.escape import github_log, visible, whole_number

ENDING: Final = (signal.SIGTERM, signal.SIGHUP)

AGAIN_SECONDS: Final = 0.1
"""How long after a signal that arrives while torch is imported it is sent again."""

_arrived: Final[list[int]] = []
"""The signals of `ENDING` that have arrived. What they raised may have become another KeyboardInterrupt."""

_waiting: Final[set[int]] = set()
"""The signals that are sent again."""


class EndSignal(KeyboardInterrupt):
    """A signal that asks the process to end has arrived."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def said_of(error: BaseException) -> tuple[str, int]:
    """What is said of an interrupted command, and its exit code: 128 plus the number of the signal."""
    number = error.number if isinstance(error, EndSignal) else next(iter(_arrived), 0)
    if number:
        return f"stopped by {signal.Signals(number).name}", 128 + number
    return "interrupted", EXIT_INTERRUPTED


@contextmanager
def ends_by_exception() -> Iterator[None]:
    """Raise `EndSignal` in the main thread when one of `ENDING` arrives. A signal that is ignored (nohup) stays so.

    While torch is imported, these signals and SIGINT wait.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)}
    ours = [number for number, handler in before.items() if handler in (signal.SIG_DFL, signal.default_int_handler)]
    _arrived.clear()
    for number in ours:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    if _is_imported_now("torch"):
        # Its extension in C imports numpy, and drops any exception that is raised there.
        if number not in _waiting:
            _waiting.add(number)
            again = threading.Timer(AGAIN_SECONDS, _send, (number,))
            again.daemon = True
            again.start()
        return
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    _arrived.append(number)
    raise EndSignal(number)


def _send(number: int) -> None:
    _waiting.discard(number)
    os.kill(os.getpid(), number)


def _is_imported_now(name: str) -> bool:
    """Whether the import of a module has begun and not ended."""
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


EXIT_BROKEN_PIPE: Final = 128 + 13
"""The exit code that a shell reports for a process ended by SIGPIPE."""

MOST_SAID: Final = 2000
"""How many characters a line on stderr has. It may repeat a value of a file."""


def check_streams() -> None:
    """Open closed standard streams on the null device. Raises `UnsupportedError` if stdout is closed.

    Characters that the encoding of stdout does not have are escaped. `COLUMNS` and `LINES` are unset if they are no
    numbers.

    Otherwise the next file that is opened would get the descriptor of the closed stream, and output would go into that
    file.
    """
    for name in ("COLUMNS", "LINES"):
        if name in os.environ and whole_number(os.environ[name]) is None:
            del os.environ[name]
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(
                os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY
            )  # gets the lowest free descriptor, which is `number`
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 open until the process ends
    if sys.stdout is None:
        raise UnsupportedError("stdout is closed, expected a file, a pipe or a terminal that can be written")
    _set_encoding(sys.stdout.encoding)


def _set_encoding(encoding: str) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")


def write_stdout(text: str, *, is_document: bool = False) -> None:
    """Write data. If the reader has ended, as `head` does, end the process without a message.

    A document, which other programs read, is UTF-8. Other text has the encoding of the terminal.
    """
    try:
        if is_document:
            _set_encoding("utf-8")
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        give_up_streams()
        raise SystemExit(EXIT_BROKEN_PIPE) from None
    except OSError as error:
        give_up_streams()
        raise unsupported_by(error, "stdout cannot be written") or error from error


def in_log(text: str) -> str:
    """Text for people, as a log of CI takes it."""
    return github_log(text) if os.environ.get("GITHUB_ACTIONS") else text


def write_line(line: str) -> None:
    """Write a line for people to stdout."""
    write_stdout(f"{in_log(visible(line, ''))}\n")


def log_line(line: str, kept: str = "") -> str:
    """A line as `say` writes it."""
    text = in_log(visible(line, kept))
    return f"{text[:MOST_SAID]}…" if len(text) > MOST_SAID and "\n" not in kept else text


def say(line: str, kept: str = "") -> None:
    """Write a line to stderr if stderr can be written. Other control characters than those in `kept` are escaped.

    A line that is too long is cut, but not a text of several, such as a traceback.
    """
    with suppress(OSError):
        sys.stderr.write(f"{log_line(line, kept)}\n")
        sys.stderr.flush()


def give_up_streams() -> None:
    """Discard what is buffered for streams that cannot be written. Python would try to write it at exit, and fail."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
