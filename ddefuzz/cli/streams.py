"""The standard streams where they cannot be written: a full disk, a reader that is gone, a closed descriptor."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

from ddefuzz.errors import UnsupportedError, unsupported_by

EXIT_BROKEN_PIPE: Final = 128 + 13
"""The exit code that a shell gives to a process that SIGPIPE ended."""


def check_streams() -> None:
    """Make standard streams that are closed safe to use; raises `UnsupportedError` of a closed stdout.

    The next file that is opened would get the number of a closed stream, and what is printed would go into that file.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)  # the lowest free number is this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 open until the process ends
    if sys.stdout is None:
        raise UnsupportedError("stdout is closed, expected a file, a pipe or a terminal that can be written")


def write_stdout(text: str) -> None:
    """Write data. A reader that is gone, as `head` is, ends the process without a word."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        give_up_streams()
        raise SystemExit(EXIT_BROKEN_PIPE) from None
    except OSError as error:
        give_up_streams()
        raise unsupported_by(error, "stdout cannot be written") or error from error


def say(line: str) -> None:
    """Write a line to stderr, if that can be written."""
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def give_up_streams() -> None:
    """Let go of what is buffered for streams that cannot be written: Python would write it again at exit, and fail."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
