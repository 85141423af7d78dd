"""Reading files within a size, and only regular ones; writing them whole or not at all; the diff of two texts."""

from __future__ import annotations

import difflib
import errno
import hashlib
import os
import re
import secrets
import stat
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil  # type: ignore[import-untyped]

from ddefuzz.errors import InputError
from ddefuzz.syntax import lines_of

SOURCE: Final = Path(__file__).parents[1]
"""The folder that has this package: a source tree, or that of installed packages."""

MAX_BYTES: Final = 16 * 2**20
"""The largest file that is read, unless its reader has a limit of its own."""

MAX_TOML: Final = 2**20
"""The largest TOML file. Python's parser needs up to a CPU second for it."""

MAX_KEY_PARTS: Final = 20
"""How many parts a dotted key of TOML may have. The parser's time grows with the square of them."""

MAX_LEVELS: Final = 100
"""How deeply the values of a TOML file may be nested."""

MAX_PROGRAM: Final = 256 * 2**10
"""The largest program."""

MAX_UNPACKED: Final = 32 * 2**20
"""How much JSON a gzip file may have. The largest of the known findings has 0.4 MB."""

MAX_OCCURRENCES: Final = 10_000
"""How many occurrences a finding of the text form may have."""

_TEMPORARY: Final = ".ddefuzz-{}-{}-"
"""How a new file is called before it has its name, with `_process_numbers` and the process that writes it."""

_UNKNOWN: Final = secrets.token_hex(8)
"""A part of names that nobody knows before this process has written a file of such a name."""

_PART: Final = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"?+|'[^'\n]*+'?+)[ \t]*+"""
"""A part of a key of TOML, a number or a string on one line."""

_TOKEN: Final = re.compile(
    rf"""
    "{{3}}(?:[^"\\]|\\.|"(?!""))*+"{{0,5}}+ | '{{3}}(?:[^']|'(?!''))*+'{{0,5}}+ | \#[^\n]*+
    | (?P<long>(?:{_PART}\.[ \t]*+){{{MAX_KEY_PARTS}}}) | (?:{_PART}(?:\.[ \t]*+)?+)++ | [^\w"'\#-]++
    """.replace("[ \t]", r"[\x20\t]"),
    re.VERBOSE | re.DOTALL,
)
"""In time that grows with the text: each token is read at most twice. Dots in comments and strings are not counted."""


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a regular file of at most `limit` bytes; raises `InputError` for anything else.

    A FIFO, a terminal or another device might block or never end, so none of them is ever read.
    """
    content = read_start(path, limit + 1)
    if len(content) > limit:
        raise InputError(f"{path}: found a file of more than {limit} bytes, expected at most that many")
    return content


def is_there(path: Path) -> bool:
    """Whether something has this path, also a symbolic link that leads nowhere or to itself, which reading refuses.

    Raises `InputError` where that cannot be told, as `is_file` and `is_folder` do: below a folder that may not be
    searched, for a name that is too long.
    """
    return _found(path, follow=False) is not None


def is_file(path: Path) -> bool:
    """Whether a path leads to a regular file. Raises `InputError` as `is_there` does, and for a loop of links."""
    mode = _found(path, follow=True)
    return mode is not None and stat.S_ISREG(mode)


def is_folder(path: Path) -> bool:
    """Whether a path leads to a folder. Raises `InputError` as `is_file` does."""
    mode = _found(path, follow=True)
    return mode is not None and stat.S_ISDIR(mode)


def kind_of(path: Path) -> str:
    """What a path leads to, for a message; empty for nothing. Raises `InputError` as `is_file` does."""
    mode = _found(path, follow=True)
    return "" if mode is None else _KINDS[stat.S_IFMT(mode)]


def leads_to_file(path: Path) -> bool:
    """Whether a name in a record or a frame is the path of a file. It may be any text, so this raises nothing."""
    with suppress(InputError):
        return is_file(path)
    return False


def files_below(path: Path, pattern: str) -> list[Path]:
    """What matches the pattern at any depth below a folder, without folders, sorted; else the path itself.

    A link that leads nowhere is among them, so that its reader says so. Raises `InputError` as `is_folder` does.
    """
    if not is_folder(path):
        return [path]
    files = []
    for place in path.rglob(pattern):
        with suppress(InputError):
            if is_folder(place):
                continue
        files.append(place)
    return sorted(files)


def real_path(path: str | Path) -> Path:
    """The absolute path without symbolic links. A loop of links, and what is no path at all, are left in it."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # a null character
        return Path.cwd() / path


def entries(folder: Path) -> list[Path]:
    """What is in a folder, sorted. Raises `InputError`."""
    try:
        return sorted(folder.iterdir())
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: cannot be read: {_said(error)}, expected a folder") from error


def _found(path: Path, *, follow: bool) -> int | None:
    try:
        return _mode(path, follow=follow)
    except (OSError, ValueError) as error:
        if not follow and isinstance(error, OSError) and error.errno == errno.ELOOP:
            return None  # nothing is below a loop
        raise InputError(
            f"{_short(path)}: cannot be read: {_said(error)}, expected a path that can be looked up"
        ) from error


def _said(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _short(path: Path) -> str:
    """A path for a message. Of one that is longer than any may be, the start is enough."""
    text = str(path)
    shown = text if len(text) < 1_000 else f"{text[:200]}…"
    return repr(shown) if "\0" in text else shown


def read_start(path: Path, size: int) -> bytes:
    """The first `size` bytes of a regular file, or all of a shorter one; raises `InputError` for anything else."""
    try:
        # A FIFO that nobody writes to would block here already.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            kind = stat.S_IFMT(status.st_mode)
            if kind != stat.S_IFREG:
                raise InputError(f"{path}: found {_KINDS[kind]}, expected a regular file")
            if _is_of_kernel(status):
                raise InputError(f"{path}: found a file of the kernel, expected a regular file")
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


def parse_json(content: bytes | str, type_: Any, where: object, expected: str) -> Any:
    """The value of a type in a document or line in JSON; raises `InputError`, which begins with `where`."""
    import msgspec  # noqa: PLC0415 pytest imports this module in every session

    try:
        return msgspec.json.decode(content, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: found {error}, expected {expected}") from error


def json_lines(path: Path, type_: Any, expected: str) -> Iterator[tuple[str, Any]]:
    """The place and the value of each line of a file of JSON lines; raises `InputError`."""
    for number, line in enumerate(read_bytes(path).splitlines(), 1):
        yield f"{path}:{number}", parse_json(line, type_, f"{path}:{number}", expected)


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file; raises `InputError`."""
    text = read_text(path, MAX_TOML)
    if any(token["long"] for token in _TOKEN.finditer(text)):
        raise InputError(f"{path}: found a key of more than {MAX_KEY_PARTS} parts, expected at most that many")
    try:
        table = tomllib.loads(text)
        check_integers(table)
    except RecursionError as error:
        raise InputError(f"{path}: found values nested too deeply, expected at most {MAX_LEVELS} levels") from error
    except ValueError as error:  # that of a syntax error too; Python refuses to read integers of thousands of digits
        reason = " ".join(str(error).partition(";")[0].split())
        raise InputError(f"{path}: found an unreadable file ({reason}), expected a table in TOML") from error
    return table


def check_integers(value: object) -> None:
    """Raise ValueError for a number beyond 64 bits in literals. Python prints none of thousands of digits.

    Raises RecursionError for literals nested more deeply than `MAX_LEVELS`, which Python may not print either.
    """
    level = [value]
    for _ in range(MAX_LEVELS + 1):
        inner = list[object]()
        for item in level:
            if isinstance(item, dict):
                inner += [*item.keys(), *item.values()]
            elif isinstance(item, list | tuple):
                inner += item
            elif isinstance(item, int) and item.bit_length() > 64:
                raise ValueError(f"an integer of {item.bit_length()} bits")
        level = inner
    if level:
        raise RecursionError(f"values nested in more than {MAX_LEVELS} levels")


def _is_of_kernel(status: os.stat_result) -> bool:
    """Whether a file is in /proc or /sys. Reading one may block (/proc/kmsg), or change something."""
    return status.st_dev in {place.stat().st_dev for place in (Path("/proc"), Path("/sys")) if place.is_dir()}


_KINDS: Final = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFLNK: "a symbolic link",
}


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write `content` to `path` in one step: whoever reads it sees the old file or the new one, never half of it.

    Symbolic links are followed. A new file has the permissions and, where possible, the owner of the old one. Devices
    and pipes are written into. A file in a folder that cannot be written is overwritten in place.

    Raises `InputError` if the place cannot be written; a file already there then stays as it was.
    """
    data = content.encode() if isinstance(content, str) else content
    with _one_line(path):
        place, before = _place(path)
        if isinstance(place, int):
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            _write_into(os.dup(place), data)
        elif before is not None and not stat.S_ISREG(before.st_mode):
            # Without O_NONBLOCK it would wait for a reader of a FIFO.
            descriptor = os.open(place, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            os.set_blocking(descriptor, True)
            _write_into(descriptor, data)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                _replace(place, data, before)
            except OSError as error:
                if before is None or error.errno not in _NO_NEW_FILE:
                    raise
                _overwrite(place, data)


def write_own(path: Path, content: bytes) -> Path:
    """Write to a path that others may know before, such as one in the folder of temporary files. Returns where it is.

    Nothing is written through a link, or in place of what is no file of this user: then the file gets another name.
    Raises `InputError`.
    """
    with _one_line(path):
        with suppress(FileNotFoundError):
            there = path.lstat()
            if not stat.S_ISREG(there.st_mode) or there.st_uid != os.geteuid():
                path = path.with_name(f"{path.stem}-{_UNKNOWN}{path.suffix}")
        _replace(path, content, None)
    return path


def check_writable(path: Path) -> None:
    """Raise the `InputError` of `write_atomically`, as far as it is known before anything is written."""
    with _one_line(path):
        _place(path)


def check_folder(folder: Path, names: Iterable[str]) -> None:
    """Raise `InputError` if one of these files below `folder` cannot be written, or is not below it.

    `folder` may be a symbolic link. Below it there must be none.
    """
    done: set[Path] = set()
    for name in names:
        parts = Path(name).parts
        if Path(name).is_absolute() or ".." in parts:
            raise InputError(f"{folder / name}: found a path that leads out of {folder}, expected one below it")
        for number in range(1, len(parts) + 1):
            place = folder.joinpath(*parts[:number])
            with _one_line(place):
                mode = None if place in done else _mode(place, follow=False)
            done.add(place)
            expected = stat.S_IFREG if number == len(parts) else stat.S_IFDIR
            if mode is not None and stat.S_IFMT(mode) != expected:
                kind = _KINDS[stat.S_IFMT(mode)]
                raise InputError(f"{place}: found {kind}, expected {_KINDS[expected]} or nothing there")
        check_writable(folder / name)


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files by their paths below `folder`. Raises `InputError` of `check_folder` before the first one."""
    check_folder(folder, files)
    encoded = {name: content.encode() if isinstance(content, str) else content for name, content in files.items()}
    for name, data in encoded.items():
        write_atomically(folder / name, data)


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Remove files by their paths below `folder`, and their own folders if these become empty. Those that are not there
    are left out. Raises `InputError` of `check_folder` before the first one.
    """
    there = [name for name in names if _mode(folder / name, follow=False) is not None]
    check_folder(folder, there)
    for name in there:
        path = folder / name
        with _one_line(path):
            path.unlink()
            if not any(path.parent.iterdir()):
                path.parent.rmdir()


def append(path: Path, content: bytes) -> None:
    """Add to a regular file, which is made if needed, all or nothing. Raises `InputError`."""
    with _one_line(path):
        place, before = _place(path)
        if isinstance(place, int) or (before is not None and not stat.S_ISREG(before.st_mode)):
            raise InputError(f"{path}: cannot be written: found a pipe or a device, expected a regular file")
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("ab", buffering=0) as file:
            size = file.tell()
            try:
                while content:
                    content = content[file.write(content) :]
            except OSError:
                file.truncate(size)
                raise


_NO_NEW_FILE: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
"""The folder takes no new file, or nothing may take the place of the file, which is a mount point."""

_MOST_LINKS: Final = 40


@contextmanager
def _one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        if _is_own(path):
            raise  # the reader of stdout has ended
        raise InputError(f"{path}: cannot be written: its reader has ended, expected one that reads all") from None
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise InputError(f"{path}: cannot be written: nothing reads from it, expected a reader") from error
        raise InputError(
            f"{path}: cannot be written: {error.strerror}, expected a folder that can be written, with free space"
        ) from error
    except ValueError as error:  # a path with a null character
        raise InputError(f"{str(path)!r}: cannot be written: {error}, expected the path of a file") from error


def _is_own(path: Path) -> bool:
    return isinstance(_place(path)[0], int)


def _place(path: Path) -> tuple[Path | int, os.stat_result | None]:
    """Where the symbolic links of a path lead, and what is there: a file, a pipe or a device that can be written.

    An int is a descriptor of this process (/dev/stdout, /dev/fd/3). Raises `OSError` and `InputError`.
    """
    place = path
    for _ in range(_MOST_LINKS):
        folder = Path(os.path.realpath(place.parent))
        place = folder / place.name
        if folder == Path(f"/proc/{os.getpid()}/fd") and place.name.isdigit():
            os.fstat(int(place.name))
            return int(place.name), None
        if not stat.S_ISLNK(_mode(place, follow=False) or 0):
            break
        place = folder / place.readlink()
    mode = _mode(place, follow=True)
    if mode is None:
        there = next(one for one in place.parents if os.path.lexists(one))
        if not there.is_dir():
            raise InputError(f"{path}: cannot be written: {there} is a file, expected a folder")
        _check_access(there, os.W_OK | os.X_OK)
        return place, None
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        kind = _KINDS[stat.S_IFMT(mode)]
        raise InputError(f"{path}: cannot be written: found {kind}, expected a file, a pipe or a character device")
    _check_access(place, os.W_OK)
    return place, place.stat()


def _check_access(path: Path, mode: int) -> None:
    if not os.access(path, mode, effective_ids=True):
        raise PermissionError(errno.EACCES, f"no permission to write {path}")


def _mode(path: Path, *, follow: bool) -> int | None:
    """None if there is nothing. A loop of links, a name that is too long and so on raise `OSError`."""
    try:
        return path.stat(follow_symlinks=follow).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write_into(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _replace(path: Path, data: bytes, before: os.stat_result | None) -> None:
    """Write a new file next to `path`, and give it the name of the old one."""
    remove_abandoned(path.parent)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=_TEMPORARY.format(_process_numbers(), os.getpid()))
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if before is not None:
                for owner in ((-1, before.st_gid), (before.st_uid, -1)):
                    with suppress(OSError):
                        os.fchown(descriptor, *owner)
            os.fchmod(descriptor, 0o666 & ~_umask() if before is None else before.st_mode & 0o777)
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def remove_abandoned(folder: Path) -> None:
    """Remove the new files of processes that were killed before they could name them.

    Files of another machine or container stay: a number of a process here says nothing about one there.
    """
    known = _process_numbers()
    for place in folder.glob(f".ddefuzz-{known}-*") if known else ():
        written_by = re.fullmatch(_TEMPORARY.format(known, "([1-9][0-9]{0,8})") + r"\w{8}", place.name, re.ASCII)
        if written_by and not psutil.pid_exists(int(written_by[1])):
            with suppress(OSError):
                place.unlink()


@cache
def _process_numbers() -> str:
    """What tells the processes that have one numbering from all others: the start of the machine, and the container.

    Empty where that is not known.
    """
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return hashlib.sha256(f"{started} {Path('/proc/self/ns/pid').readlink()}".encode()).hexdigest()[:16]
    except (OSError, ValueError):
        return ""


def _overwrite(path: Path, data: bytes) -> None:
    """Write over a file that cannot be replaced. If there is no space for all of it, it stays as it was."""
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            os.posix_fallocate(file.fileno(), 0, max(1, len(data)))
        except OSError:
            file.truncate(size)
            raise
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _umask() -> int:
    """The process's mask for new files, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def unified_diff(name: str, before: str, after: str) -> str:
    """The diff of a file, as `git apply` and `patch -p1` take it. `name` is its path below the project's folder."""
    lines = difflib.unified_diff(lines_of(before), lines_of(after), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def to_install(extra: str) -> str:
    """The command that installs an extra of ddefuzz: of the source tree that it runs from, or else by its name."""
    if not is_file(SOURCE / "pyproject.toml"):
        return f"pip install 'ddefuzz[{extra}]'"
    here = os.path.relpath(SOURCE)
    python = os.path.relpath(sys.executable) if Path(sys.executable).is_relative_to(Path.cwd()) else sys.executable
    return f"{python} -m pip install --editable '{here}[{extra}]'"
