"""The journal records what a worker was doing, however it ended."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddefuzz.execute.journal import Entry, Journal, Part, Phase, TaskTrace, entries, last_of_case
from ddefuzz.execute.pool import LostTask, lost_observation
from ddefuzz.execute.protocol import ProgramSubject, Run


def test_the_last_entry_of_a_case(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    noted = [Entry(1, "draw", step=1), Entry(1, "export", "def program(): ..."), Entry(2, "draw", step=1)]
    for entry in noted:
        journal.note(entry)
    pid = os.getpid()
    assert list(entries(tmp_path / "journal")) == [msgspec.structs.replace(entry, worker=pid) for entry in noted]
    assert last_of_case(tmp_path / "journal", 1) == Entry(1, "export", "def program(): ...", worker=pid)
    assert last_of_case(tmp_path / "journal", 3) is None


def test_a_folder_that_is_not_there_has_no_entries(tmp_path: Path) -> None:
    assert list(entries(tmp_path / "nothing")) == []


@pytest.mark.slow
@settings(deadline=None, database=None, derandomize=True)
@given(st.text(max_size=40), st.binary(max_size=40).filter(lambda tail: b"\n" not in tail))
def test_a_torn_last_line_is_passed_over(tmp_path_factory: object, program: str, tail: bytes) -> None:
    folder = tmp_path_factory.mktemp("journal")  # type: ignore[attr-defined]
    Journal(folder).note(Entry(1, "export", program))
    path = folder / f"worker-{os.getpid()}.jsonl"
    path.write_bytes(path.read_bytes() + msgspec.json.encode(Entry(2, "export", program))[:-1] + tail[:0])
    assert [entry.case for entry in entries(folder)] == [1]


def test_a_folder_that_was_removed_with_its_command_stays_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Journal(tmp_path / "removed" / "journal")
    assert not (tmp_path / "removed").exists()


@pytest.mark.parametrize(
    ("part", "eager", "outcome", "reason"),
    [
        ("captured", 0.1, "timeout", "stopped after 15 CPU s"),
        ("captured", 2.0, "not-judged", "stopped after 15 CPU s in the captured program at size 2; eager took 2.0 s"),
        ("reading", 0.1, "not-judged", "stopped after 15 CPU s while ddefuzz read what was captured or returned"),
    ],
)
def test_a_call_as_slow_as_eager_is_not_judged(part: Part, eager: float, outcome: str, reason: str) -> None:
    lost = LostTask("timeout", "stopped after 15 CPU s", left=TaskTrace(Phase(part, "2", False, eager)), cpu_seconds=15)
    seen = lost_observation(Run(ProgramSubject(""), "export"), lost)
    assert (seen.outcome, seen.reason) == (outcome, reason)
