"""Write changes to the user's files. Nothing else of advice writes a file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ddefuzz.checking.changes import Change, ChangedFile
from ddefuzz.checking.diffs import merged
from ddefuzz.errors import InputError
from ddefuzz.files import check_writable, read_text, write_atomically
from ddefuzz.instrument.events import PROGRAM_FILE


def together(changes: Iterable[Change]) -> tuple[ChangedFile, ...]:
    """The files of several changes. Of changes of the same lines, the first counts."""
    files: dict[str, ChangedFile] = {}
    for change in changes:
        for one in change.files:
            both = merged(files[one.path], one) if one.path in files else one
            files[one.path] = both or files[one.path]
    return tuple(files.values())


def write_changes(changes: Iterable[Change], program: Path | None = None) -> tuple[str, ...]:
    """Write the files of changes; returns their paths. `program` is the file of a program.

    Raises InputError if a file is not any more what it was when the change was tried.
    """
    written = {}
    for one in together(changes):
        path = program if one.path == PROGRAM_FILE and program is not None else Path(one.path)
        if read_text(path) != one.before:
            raise InputError(f"{path}: found a file that changed since, expected the text that was checked")
        check_writable(path)
        written[path] = one.after
    for path, after in written.items():
        write_atomically(path, after)
    return tuple(map(str, written))
