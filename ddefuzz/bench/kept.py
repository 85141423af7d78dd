"""The folder of `bench recall`: the cases of the campaign and the faults that were judged, which are not run again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

import msgspec

from ddefuzz.bench.planted import Planted
from ddefuzz.bench.reachers import Maker, Survey
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Semantics
from ddefuzz.files import append, check_folder, is_there, read_bytes, write_atomically

CASES: Final = "cases.json"
MAKERS: Final = "assertions.json"
FAULTS: Final = "faults.jsonl"

Record = TypeVar("Record")


class Judged(msgspec.Struct, frozen=True):
    """A fault that was planted for an oracle, in at most `tries` cases of a campaign that ran `cases` of them."""

    oracle: str
    tries: int
    cases: int
    fault: Planted


class Kept:
    """The files of the folder. Several threads may add faults."""

    def __init__(self, folder: Path) -> None:
        check_folder(folder, (CASES, MAKERS, FAULTS))
        self._folder = folder
        self._adding = Lock()
        self._judged = {_key(one, one.fault.semantics): one.fault for one in self._lines()}

    def survey(self) -> Survey | None:
        """The campaign; None if the folder has none. Raises InputError if its file is another one."""
        return self._read(CASES, Survey)

    def save_survey(self, survey: Survey) -> None:
        """Keep the campaign, or what is done of it."""
        self._write(CASES, survey)

    def makers(self) -> tuple[Maker, ...] | None:
        """The programs that make run-time assertions; None if they have not been looked for."""
        return self._read(MAKERS, tuple[Maker, ...])

    def save_makers(self, makers: tuple[Maker, ...]) -> None:
        """Keep the programs that make run-time assertions."""
        self._write(MAKERS, makers)

    def judged(self, one: Judged) -> Planted | None:
        """The result for a fault; None if it was not judged yet."""
        return self._judged.get(_key(one, one.fault.semantics))

    def add(self, one: Judged) -> None:
        """Keep the result for a fault."""
        with self._adding:
            append(self._folder / FAULTS, msgspec.json.encode(one) + b"\n")
        self._judged[_key(one, one.fault.semantics)] = one.fault

    def _lines(self) -> Iterator[Judged]:
        path = self._folder / FAULTS
        if not is_there(path):
            return
        content = read_bytes(path)
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:  # a run was cut short while it wrote
            write_atomically(path, whole)
        for number, line in enumerate(whole.splitlines(), 1):
            yield _decoded(line, Judged, f"{path}:{number}")

    def _read(self, name: str, kind: type[Record]) -> Record | None:
        path = self._folder / name
        return _decoded(read_bytes(path), kind, str(path)) if is_there(path) else None

    def _write(self, name: str, record: object) -> None:
        write_atomically(self._folder / name, msgspec.json.encode(record))


def _key(one: Judged, planted: Semantics) -> tuple[str, int, int, Semantics]:
    return one.oracle, one.tries, one.cases, planted


def _decoded(content: bytes, kind: type[Record], where: str) -> Record:
    try:
        return msgspec.json.decode(content, type=kind)
    except (RecursionError, msgspec.DecodeError) as error:
        raise InputError(f"{where}: found {error}, expected what `ddefuzz bench recall --keep` wrote") from error
