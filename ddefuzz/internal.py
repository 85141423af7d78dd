"""Exceptions of ddefuzz itself: one ends what it was raised in, and is a row beside the other results.

`guarded` stands where one case is handled, one stage is run, one oracle judges. What it catches is noted in this
process, and a worker's result takes its notes along. The command prints them, and ends with the exit code 3.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from ddefuzz import __version__
from ddefuzz.errors import EXIT_INTERNAL, DdefuzzError, InputError, is_of, unsupported_by
from ddefuzz.files import is_folder, is_there, write_own

FOLDER: Final = "_DDEFUZZ_REPORTS"
"""The environment variable by which workers know the folder of reports: their folder of temporary files is removed."""

PLACE: Final = os.environ.get(FOLDER, "")
"""Read at import, because the user's code in a worker may change the environment."""

DRAFTS: Final = tempfile.gettempdir()
"""Where a worker writes reports. They are published with a result that names them."""

SCHEMA: Final = "ddefuzz.error/1"

MOST_SAID: Final = 500
"""How many characters of an exception a row has. The report has all."""

_USER: Final = re.compile(r":/++[^\s:/@]*+:")
"""One slash is how a path spells the beginning of a URL."""

hiding: list[Callable[[str], str]] = []
"""What else takes passwords out of reports."""

_noted: ContextVar[list[InternalError]] = ContextVar("_noted")
"""What was caught in this process, or arrived with results of workers, and was not taken yet."""

_OF_PROCESS: Final[list[InternalError]] = []
"""The same outside of `apart`."""

_where: ContextVar[tuple[str, ...]] = ContextVar("_where", default=())


class InternalError(msgspec.Struct, frozen=True):
    """An exception of ddefuzz itself.

    `where` names the case, the stage and the oracle, as far as they are known. `report` is the file with the traceback,
    empty if it could not be written.
    """

    where: str
    error: str
    report: str = ""

    @property
    def reason(self) -> str:
        """Why there is no result here."""
        return _line(self.error, self.report or "what DDEFUZZ_DEBUG=1 shows")

    def document(self) -> dict[str, str]:
        """The row of a machine-readable output."""
        return {"schema": SCHEMA, "status": "not judged", **msgspec.structs.asdict(self)}

    def __str__(self) -> str:
        return f"{self.where}: not judged: {self.reason}" if self.where else f"not judged: {self.reason}"


class guarded:  # noqa: N801 a context manager is written as a function is
    """Notes an exception of ddefuzz that is raised in the block, and ends the block only.

    `error` is what was noted. Other exceptions pass: what the user handed in, what the environment lacks, an
    interruption.
    """

    def __init__(self, what: object) -> None:
        self._what = str(what)
        self.error: InternalError | None = None

    def __enter__(self) -> guarded:
        self._token = _where.set((*_where.get(), self._what))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            if not isinstance(error, Exception) or not is_internal(error):
                return False
            self.error = note(error)
            return True
        finally:
            _where.reset(self._token)

    @property
    def reason(self) -> str:
        """Why the block has no result."""
        return "" if self.error is None else self.error.reason


def _line(error: str, report: str) -> str:
    return f"internal error, a bug of ddefuzz: {error}; please report it with {report}"


def said_with(error: BaseException, report: str) -> str:
    """The line about an exception whose report is elsewhere."""
    return _line(error_line(error), report)


def is_internal(error: BaseException) -> bool:
    """Whether an exception is a bug of ddefuzz."""
    if is_of(error, DdefuzzError):
        return error.exit_code == EXIT_INTERNAL
    return not is_of(error, BrokenPipeError) and unsupported_by(error, "") is None


def note(error: BaseException) -> InternalError:
    """Note an exception, and write its report."""
    where = ": ".join(filter(None, _where.get()))
    noted_error = InternalError(where, error_line(error), written(error, where))
    _keep(noted_error)
    return noted_error


def add(errors: Iterable[InternalError], drafts: Path) -> None:
    """Note what arrived with a worker's result, and publish its reports. The names of the blocks around this call go
    before its own.
    """
    for error in errors:
        report = error.report if error.report and is_there(Path(error.report)) else ""
        if error.report:
            with suppress(InputError, OSError):
                report = str(write_own(Path(error.report), (drafts / Path(error.report).name).read_bytes()))
        where = ": ".join(filter(None, [*_where.get(), error.where]))
        _keep(msgspec.structs.replace(error, where=where, report=report))


def _keep(error: InternalError) -> None:
    kept = _noted.get(_OF_PROCESS)
    if error not in kept:
        kept.append(error)


@contextmanager
def apart() -> Iterator[list[InternalError]]:
    """What is noted in this block is apart from what the rest of this process notes."""
    collected: list[InternalError] = []
    token = _noted.set(collected)
    try:
        yield collected
    finally:
        _noted.reset(token)


def error_line(error: BaseException) -> str:
    """An exception in one line."""
    message = message_of(error)
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return " ".join(text.split())[:MOST_SAID]


def message_of(error: BaseException) -> str:
    """The message of an exception that may be the user's. Lone surrogates are replaced, which JSON cannot have.

    A KeyError has the repr of its key: that of several lines, to which dynamo has added its own, is given as it is.
    """
    try:
        key = error.args[0] if is_of(error, KeyError) and len(error.args) == 1 else ""
        text = key if type(key) is str and "\n" in key else str(error)
        return text.encode(errors="backslashreplace").decode()
    except BaseException as failure:  # noqa: BLE001 an exception whose own __str__ fails is still one
        return f"<{type(failure).__name__} in __str__>"


def traceback_of(error: BaseException) -> TracebackType | None:
    """The traceback of an exception, whatever its class has by that name."""
    trace: TracebackType | None = _slot(error, "__traceback__")
    return trace


def innermost_file(error: BaseException) -> str:
    """The file of the code that raised it, empty if it was not raised."""
    trace = traceback_of(error)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else trace.tb_frame.f_code.co_filename


def exception_chain(error: BaseException) -> list[BaseException]:
    """`error` and its causes, by `__cause__`, else `__context__`, each once, whatever their classes have by that
    name.
    """
    chain: dict[int, BaseException] = {}
    following: BaseException | None = error
    while following is not None and id(following) not in chain:
        chain[id(following)] = following
        cause = _slot(following, "__cause__")
        following = cause if cause is not None else _slot(following, "__context__")
    return list(chain.values())


def _slot(error: BaseException, name: str) -> Any:
    return vars(BaseException)[name].__get__(error)


def noted() -> tuple[InternalError, ...]:
    """What was noted and not taken yet."""
    return tuple(_noted.get(_OF_PROCESS))


def take() -> tuple[InternalError, ...]:
    """The same, and forget it."""
    taken = noted()
    _noted.get(_OF_PROCESS).clear()
    return taken


def folder() -> str:
    """The folder of reports."""
    return PLACE or tempfile.gettempdir()


def without_url_passwords(text: str) -> str:
    """A text with `***` for what may be the password of a URL, in time that grows with the text."""
    return re.sub(r"\S+", _without_password, text)


def _without_password(match: re.Match[str]) -> str:
    word = match[0]
    end = word.rfind("@")
    user = _USER.search(word, 0, end) if end > 0 else None
    return word if user is None else f"{word[: user.end()]}***{word[end:]}"


def written(error: BaseException, where: str = "") -> str:
    """The path of the report of an exception, empty if it cannot be written, as on a full disk.

    An exception that is raised at the same place again has the same report: that of the last one.
    """
    lines = "".join(f"{one.f_code.co_filename}:{line}\n" for one, line in traceback.walk_tb(traceback_of(error)))
    try:
        trace = "".join(traceback.TracebackException.from_exception(error).format())
    except BaseException:  # noqa: BLE001 the exception, its source and its code may be the user's
        trace = f"{lines}{error_line(error)}\n"
    place = lines + type(error).__qualname__
    name = f"ddefuzz-error-{hashlib.sha256(place.encode(errors='replace')).hexdigest()[:12]}.txt"
    text = f"ddefuzz {__version__}: {' '.join(sys.argv)}\n{where}\n{trace}"
    for hide in (without_url_passwords, *hiding):
        text = hide(text)
    if PLACE and not is_folder(Path(DRAFTS)):
        return ""  # it was removed, and stays so: the command says it
    try:
        path = write_own(Path(DRAFTS if PLACE else folder()) / name, text.encode(errors="backslashreplace"))
    except (InputError, OSError):
        return ""
    return str(Path(folder()) / path.name)
