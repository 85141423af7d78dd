"""The temporary folder of this process. If the process is killed, the next start of ddefuzz removes the folder.

In it are the workers' journals, the fork server's socket, and what workers write by themselves: their `TMPDIR` is this
folder. The process holds a lock on the folder. The kernel releases it when the process ends, however it ends.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import signal
from contextlib import suppress
from functools import lru_cache
from itertools import count
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Final

import psutil  # type: ignore[import-untyped]

from ddefuzz.errors import UnsupportedError
from ddefuzz.files import is_folder, is_there

PREFIX: Final = "ddefuzz-scratch-"
UNREADABLE: Final = (psutil.Error, OSError)
"""What is raised if a process has ended, or if no descriptor is left to read about it."""


@lru_cache(maxsize=1)
def scratch_folder() -> Path:
    """The folder, made at the first call; raises `UnsupportedError` where none can be made."""
    try:
        place = Path(gettempdir())
        remove_abandoned(place)
        made = None
        while made is None:
            made = _locked(Path(mkdtemp(prefix=PREFIX, dir=place)))
    except OSError as error:
        raise UnsupportedError(
            f"no temporary folder can be made: {error.strerror}, expected TMPDIR to name one with free space"
        ) from error
    atexit.register(_remove, *made)
    return made[0]


def check_working_folder() -> None:
    """Raises `UnsupportedError` where the working folder has been removed."""
    try:
        Path.cwd()
    except OSError as error:
        raise UnsupportedError(
            "the working folder has been removed, expected it to stay; "
            "the code that is run may have removed it, or a clean-up of temporary files"
        ) from error


def check_folders() -> None:
    """Raises `UnsupportedError` where this folder or the working folder has been removed."""
    check_working_folder()
    if not is_folder(scratch_folder()):
        raise UnsupportedError(
            f"the temporary folder {scratch_folder()} has been removed, expected it to stay; "
            "the code that is run may have removed it, or a clean-up of temporary files"
        )


def end_strays() -> None:
    """End the processes that user code has started and its worker has left: none of them is below this one any more.

    The fork server hands the name of this folder down to all of them.
    """
    with suppress(*UNREADABLE):  # where processes cannot be listed, none is ended
        own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
        for process in psutil.process_iter():
            with suppress(*UNREADABLE):
                if process.pid not in own and process.environ().get("TMPDIR", "").startswith(str(scratch_folder())):
                    process.kill()


def remove_abandoned(place: Path) -> None:
    """Remove this user's folders of processes that have ended."""
    for folder in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.geteuid():
                    remove_tree(folder)
            finally:
                os.close(descriptor)


def _remove(folder: Path, lock: int) -> None:
    """Remove the folder of this process, which has done its work: Ctrl-C does not interrupt this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.close(lock)
    remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder, however deep it is, with no more than one file open at once. What cannot be removed stays.

    What is in a folder below it moves up before that one is removed. So no path is too long.
    """
    numbers = count()
    with suppress(OSError):
        waiting = list(folder.iterdir())
        while waiting:
            path = waiting.pop()
            with suppress(OSError):
                try:
                    path.unlink()
                except (IsADirectoryError, PermissionError):  # the second on macOS
                    for inner in path.iterdir():
                        waiting.append(inner.rename(folder / f"ddefuzz-removed-{next(numbers)}"))
                    path.rmdir()
        folder.rmdir()


def _locked(folder: Path) -> tuple[Path, int] | None:
    """The folder and the descriptor of this process's lock on it, which stays open as long as the process lives.

    None where another process took the folder for abandoned before that.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    if is_there(folder):
        return folder, descriptor
    os.close(descriptor)
    return None
