"""Reading files within a size, and only regular ones; writing them whole or not at all; the diff of two texts."""

from __future__ import annotations

import difflib
import os
import stat
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

from ddefuzz.errors import InputError

MAX_BYTES: Final = 16 * 1024 * 1024
"""The largest file that is read, unless its reader has a limit of its own."""


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a regular file of at most `limit` bytes; raises `InputError` for anything else.

    A FIFO, a terminal or another device might block or never end, so none of them is ever read.
    """
    content = read_start(path, limit + 1)
    if len(content) > limit:
        raise InputError(f"{path}: found a file of more than {limit} bytes, expected at most that many")
    return content


def is_there(path: Path) -> bool:
    """Whether something has this path, also a symbolic link that leads nowhere or to itself, which reading refuses."""
    return os.path.lexists(path)


def read_start(path: Path, size: int) -> bytes:
    """The first `size` bytes of a regular file, or all of a shorter one; raises `InputError` for anything else."""
    try:
        # A FIFO that nobody writes to would block here already.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
            if kind != stat.S_IFREG:
                raise InputError(f"{path}: found {_KINDS.get(kind, 'a special file')}, expected a regular file")
            return file.read(size)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}, expected a regular file") from error
    except ValueError as error:  # a path with a null character
        raise InputError(f"{str(path)!r}: cannot be read: {error}, expected the path of a regular file") from error


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """The text of a regular file in UTF-8; raises `InputError`."""
    try:
        return read_bytes(path, limit).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: found the byte {error.object[error.start]:#04x}, expected text in UTF-8") from error


def read_toml(path: Path, limit: int = MAX_BYTES) -> dict[str, Any]:
    """The table in a TOML file; raises `InputError`."""
    try:
        return tomllib.loads(read_text(path, limit))
    except RecursionError as error:
        raise InputError(
            f"{path}: found values nested too deeply, expected TOML of at most some tens of levels"
        ) from error
    except ValueError as error:  # that of a syntax error too; Python refuses to read integers of thousands of digits
        said = " ".join(str(error).partition(";")[0].split())
        raise InputError(f"{path}: found an unreadable file ({said}), expected a table in TOML") from error


_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write `content` to `path` in one step: whoever reads it sees the old file or the new one, never half of it.

    Raises `InputError` if the place cannot be written; a file already there then stays as it was.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(
            f"{path}: cannot be written: {error.strerror}, expected a folder that can be written, with free space"
        ) from error


def _umask() -> int:
    """The process's mask for new files, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def unified_diff(name: str, before: str, after: str) -> str:
    """The diff of a file, as `git apply` and `patch -p1` take it. `name` is its path below the project's folder."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
