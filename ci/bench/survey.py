"""What a campaign without faults reached, and the folder that keeps it with the faults that were judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final, Literal, TypeVar

import msgspec

from ci.bench.planted import Maker, Planted, Reacher
from ddefuzz.campaign.summary import Tally
from ddefuzz.campaign.tasks import CaseResult
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import CHEAP_TO_CALL, EXPLICIT, Semantics
from ddefuzz.files import append, check_folder, is_there, read_bytes, write_atomically
from ddefuzz.instrument.events import Place

CASES: Final = "cases.json"
MAKERS: Final = "assertions.json"
FAULTS: Final = "faults.jsonl"

Record = TypeVar("Record")


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign without faults, and all runs of its cases that reached a place with an undecided guard, in order.

    `cpu_seconds` are those of the campaign. It was `interrupted` if that is not its whole budget.
    """

    schema: Literal["ddefuzz.bench.survey/1"] = "ddefuzz.bench.survey/1"
    torch: str
    seed: int
    budget: str
    cpu_seconds: float
    interrupted: bool
    found: tuple[Reacher, ...]

    def first(self, place: Place) -> Reacher | None:
        """The first run that reached a place."""
        return next((one for one in self.found if any(at == place for at, _ in one.reached)), None)

    def called(self, place: Place, number: int, alike: int) -> Iterator[Reacher]:
        """The first `number` captured and called programs that reached a place, with at most `alike` for each set of
        forms of the expressions there.
        """
        forms: dict[frozenset[str], int] = {}
        for one in self.found:
            form = frozenset(shape for at, shape in one.reached if at == place)
            if one.called and form and forms.get(form, 0) < alike:
                forms[form] = forms.get(form, 0) + 1
                yield one
                number -= 1
                if not number:
                    return


@dataclass(slots=True)
class Reachers:
    """Collects the runs of a campaign's cases that reached a place with an undecided guard."""

    found: list[Reacher] = field(default_factory=list)

    def __call__(self, result: CaseResult, tally: Tally) -> None:
        """Note one case, in all stages of its explicit runs."""
        captured = {one.stage for one in result.outcomes if one.outcome == "ok" and one.semantics == str(EXPLICIT)}
        now = round(tally.total_cpu_seconds(), 3)
        for one in result.reached:
            places = frozenset((each.place, each.shape) for each in one.reached if each.answer != "raised")
            if result.program and places:
                called = one.stage in captured and one.stage in CHEAP_TO_CALL
                self.found.append(Reacher(result.program, one.stage, called, places, now, len(tally.digests)))


class Judged(msgspec.Struct, frozen=True):
    """A fault that was planted for an oracle, in at most `tries` cases of a campaign that ran `cases` of them."""

    oracle: str
    tries: int
    cases: int
    fault: Planted


class RecallFolder:
    """The files of the folder. Several threads may add faults. What is not there is None; raises InputError for a file
    that is another one.
    """

    def __init__(self, folder: Path) -> None:
        check_folder(folder, (CASES, MAKERS, FAULTS))
        self._folder = folder
        self._adding = Lock()
        self._judged = {_key(one): one.fault for one in self._lines()}

    def survey(self) -> Survey | None:
        """The campaign."""
        return self._read(CASES, Survey)

    def save_survey(self, survey: Survey) -> None:
        """Keep the campaign, or what is done of it."""
        write_atomically(self._folder / CASES, msgspec.json.encode(survey))

    def makers(self) -> tuple[Maker, ...] | None:
        """The programs that make run-time assertions."""
        return self._read(MAKERS, tuple[Maker, ...])

    def save_makers(self, makers: tuple[Maker, ...]) -> None:
        """Keep the programs that make run-time assertions."""
        write_atomically(self._folder / MAKERS, msgspec.json.encode(makers))

    def judged(self, one: Judged) -> Planted | None:
        """The result for a fault."""
        return self._judged.get(_key(one))

    def add(self, one: Judged) -> None:
        """Keep the result for a fault."""
        with self._adding:
            append(self._folder / FAULTS, msgspec.json.encode(one) + b"\n")
        self._judged[_key(one)] = one.fault

    def _lines(self) -> Iterator[Judged]:
        path = self._folder / FAULTS
        content = read_bytes(path) if is_there(path) else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:  # a run was cut short while it wrote
            write_atomically(path, whole)
        for number, line in enumerate(whole.splitlines(), 1):
            yield _decoded(line, Judged, f"{path}:{number}")

    def _read(self, name: str, kind: type[Record]) -> Record | None:
        path = self._folder / name
        return _decoded(read_bytes(path), kind, str(path)) if is_there(path) else None


def _key(one: Judged) -> tuple[str, int, int, Semantics]:
    return one.oracle, one.tries, one.cases, one.fault.semantics


def _decoded(content: bytes, kind: type[Record], where: str) -> Record:
    try:
        return msgspec.json.decode(content, type=kind)
    except (RecursionError, msgspec.DecodeError) as error:
        raise InputError(f"{where}: found {error}, expected what `python ci/bench recall --keep` wrote") from error
