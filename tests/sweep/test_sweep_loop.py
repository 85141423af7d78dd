"""The sweep's loop with workers made by hand: no torch, no processes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from ddefuzz import internal
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature
from ddefuzz.errors import EXIT_UNSUPPORTED, InputError, refusals
from ddefuzz.execute.journal import Entry, Journal
from ddefuzz.execute.pool import Future, LostTask
from ddefuzz.execute.protocol import EXPLICIT, Observation
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Sighting
from ddefuzz.ops.catalogue import parse
from ddefuzz.program.text import digest
from ddefuzz.sweep.sweep import LOST_AT_MOST, Op, Sweep, SweepProgress, key_of, selected
from ddefuzz.sweep.tasks import Caps, OpResult, SweepResult, SweepTask, Versions
from tests.sweep.made_by_hand import CHUNK, PROGRAM, failed, swept

VERSIONS = Versions("2.13.0", "sweep=1", ("add", "chunk", "unsafe_chunk"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def sighting(signature: Signature = CHUNK) -> Sighting:
    return Sighting(
        classified=Classification(
            Failure("dde", Observation("fake", EXPLICIT, "fail"), "Eq(u0, 0)"), signature, "avoidable", "rule"
        ),
        verdict="fails",
        ops=("torch.chunk",),
        torch="2.13.0",
        program=PROGRAM,
    )


class Done:
    """A future that is already there."""

    def __init__(self, result: object) -> None:
        self._result = result

    def result(self) -> object:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def add_done_callback(self, callback: Callable[[Future[Any]], None]) -> None:
        callback(cast("Future[Any]", self))


class ByHand:
    """Workers that answer by a function, at once."""

    jobs = 1

    def __init__(self, answer: Callable[[SweepTask], object]) -> None:
        self.answer = answer
        self.tasks: list[SweepTask] = []

    def submit(
        self, function: Callable[[Any], Any], argument: Any, timeout: float, *, cold: bool = False
    ) -> Future[Any]:
        del function, timeout, cold
        self.tasks.append(argument)
        return cast("Future[Any]", Done(self.answer(argument)))


def found(task: SweepTask) -> SweepResult:
    one = swept(task.op, *([failed()] if task.op == "chunk" else []), cpu_seconds=1.0)
    return SweepResult(one, (sighting(),) if task.op == "chunk" else ())


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database.open(f"sqlite:///{tmp_path}/ddefuzz.db")


def begin(
    database: Database, folder: Path, workers: ByHand, *, stop_after: int = 10**6
) -> tuple[Sweep, list[SweepProgress]]:
    told: list[SweepProgress] = []
    sweep = Sweep(
        ops=tuple(Op(name, "opinfo") for name in VERSIONS.entries),
        caps=Caps(),
        versions=VERSIONS,
        database=database,
        workers=workers,
        journal=folder,
        seconds=lambda: float(len(told)),
        now=lambda: NOW,
        listen=told.append,
        stopped=lambda: len(told) >= stop_after,
    )
    return sweep, told


def test_every_op_is_swept_and_recorded(database: Database, tmp_path: Path) -> None:
    sweep, told = begin(database, tmp_path, ByHand(found))
    sweep.run()
    assert sorted(sweep.done) == ["opinfo:add", "opinfo:chunk", "opinfo:unsafe_chunk"]
    assert [finding.id for finding in database.findings()] == [CHUNK.key]
    assert (told[-1].done, told[-1].left, told[-1].findings, told[-1].new) == (3, 0, 1, 1)


def test_what_was_swept_is_kept(database: Database, tmp_path: Path) -> None:
    sweep, told = begin(database, tmp_path, ByHand(found), stop_after=1)
    sweep.run()
    assert sweep.interrupted
    assert len(told) == 1
    workers = ByHand(found)
    again, told = begin(database, tmp_path, workers)
    again.run()
    assert len(workers.tasks) == 2
    assert (told[-1].kept, told[-1].left) == (1, 0)
    assert len(again.done) == 3


def test_a_fresh_sweep_does_all_of_it(database: Database, tmp_path: Path) -> None:
    begin(database, tmp_path, ByHand(found))[0].run()
    workers = ByHand(found)
    begin(database, tmp_path, workers)[0].run(fresh=True)
    assert len(workers.tasks) == 3


def test_other_caps_are_another_sweep() -> None:
    assert key_of(VERSIONS, Caps()) != key_of(VERSIONS, Caps(full=1))
    assert key_of(VERSIONS, Caps()) != key_of(msgspec.structs.replace(VERSIONS, torch="2.15.0"), Caps())


def test_a_program_that_ends_its_worker_is_a_finding_and_left_out(database: Database, tmp_path: Path) -> None:
    journal = Journal(tmp_path)

    def crashing(task: SweepTask) -> object:
        if task.op != "add" or task.skip:
            return found(task)
        journal.note(Entry(task.index, "fake", PROGRAM, semantics="explicit"))
        return LostTask("crash", "SIGSEGV")

    workers = ByHand(crashing)
    sweep, _ = begin(database, tmp_path, workers)
    sweep.run()
    assert [task.skip for task in workers.tasks if task.op == "add"] == [(), (digest(parse(PROGRAM, "p").program),)]
    assert sweep.done["opinfo:add"].lost == ("crash in fake: SIGSEGV",)
    assert sweep.done["opinfo:add"].explicit == "other"
    assert sorted(finding.kind for finding in database.findings()) == ["crash", "dde"]


def test_an_op_that_always_ends_its_worker_is_given_up(database: Database, tmp_path: Path) -> None:
    workers = ByHand(lambda task: LostTask("timeout", "stopped") if task.op == "add" else found(task))
    sweep, told = begin(database, tmp_path, workers)
    sweep.run()
    assert sum(task.op == "add" for task in workers.tasks) == LOST_AT_MOST + 1
    assert sweep.done["opinfo:add"].explicit == "other"
    assert any("while its samples were made" in now.note for now in told)


def test_a_result_that_cannot_be_read_is_left_out_and_done_again(database: Database, tmp_path: Path) -> None:
    begin(database, tmp_path, ByHand(found))[0].run()
    database.save_swept(key_of(VERSIONS, Caps()), "opinfo:chunk", "[" * 100_000)
    workers = ByHand(found)
    sweep, _ = begin(database, tmp_path, workers)
    with refusals() as refused:
        sweep.run()
    assert [task.op for task in workers.tasks] == ["chunk"]
    assert list(refused.values()) == [EXIT_UNSUPPORTED]
    assert len(database.swept(key_of(VERSIONS, Caps()), OpResult)) == 3


def test_a_bug_of_ours_ends_one_op(database: Database, tmp_path: Path) -> None:
    sweep, told = begin(database, tmp_path, ByHand(lambda task: ValueError("x") if task.op == "add" else found(task)))
    sweep.run()
    assert len(sweep.done) == 3
    (error,) = internal.take()
    assert (error.where, error.error) == ("add", "ValueError: x")
    assert [now.note for now in told if now.note] == [f"add: {error.reason}"]
    assert sorted(database.swept(key_of(VERSIONS, Caps()), OpResult)) == ["opinfo:chunk", "opinfo:unsafe_chunk"]


def test_globs() -> None:
    def names(*globs: str) -> set[str]:
        return {op.name for op in selected(VERSIONS, globs)}

    assert {"chunk", "torch.chunk(x, k, d)"} <= names("chunk*")
    assert "unsafe_chunk" not in names("chunk*")
    assert {"add", "unsafe_chunk"} <= names("add", "unsafe_*")
    assert len(names()) > 600


def test_a_glob_of_nothing_is_an_error() -> None:
    with pytest.raises(InputError, match="--ops: found 'chnk', which names none of"):
        selected(VERSIONS, ["chunk", "chnk"])
