"""Detect that an open database file was deleted, moved or replaced, and save its findings in the text form.

SQLite keeps writing to the file that it opened, even if no path leads to it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from ddefuzz.errors import DatabaseError, InputError
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import write_findings
from ddefuzz.findings.url import DatabaseUrl


class OpenFile:
    """The file of an SQLite database that was just opened. A database without a file counts as always present."""

    def __init__(self, url: DatabaseUrl) -> None:
        path = url.path()
        self.path = None if path is None else path.absolute()
        self._identity = self._now()

    def is_there(self) -> bool:
        """Whether the path still leads to the file that was opened."""
        return self._now() == self._identity

    def _now(self) -> tuple[int, int] | None:
        if self.path is None:
            return None
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


@contextmanager
def rescued(file: OpenFile, url: DatabaseUrl, findings: Callable[[], tuple[Finding, ...]]) -> Iterator[None]:
    """Wrap a transaction. If the file is gone afterwards, save the findings as text and raise `DatabaseError`."""
    try:
        yield
    except DatabaseError:
        if file.is_there():
            raise
    if file.is_there() or file.path is None:
        return
    found = findings()
    names = (Path(f"{file.path}-rescued{number or ''}") for number in count())
    folder = next(name for name in names if not name.exists())
    try:
        write_findings(found, folder)
        kept = f"its findings ({len(found)}) are in {folder}: `ddefuzz findings import {folder}` reads them"
    except (InputError, OSError) as error:
        kept = f"its findings ({len(found)}) are lost: {error}"
    raise DatabaseError(
        f"findings database {url}: the file was deleted, moved or replaced while it was open, expected it to stay; "
        f"{kept}"
    )
