"""Minimizing findings again, with workers that return rows of a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ddefuzz.answers.model import Control
from ddefuzz.campaign.minimize import AHEAD, FollowUp, can_be_minimized, renew
from ddefuzz.campaign.tasks import (
    INSPECTED,
    NO_CASE,
    TAKEN,
    ConfirmResult,
    ControlResult,
    ControlTask,
    MinimizeResult,
    MinimizeTask,
    run_confirm,
    run_minimize,
)
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.execute.journal import Entry, Journal
from ddefuzz.execute.pool import LostTask
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation
from ddefuzz.findings.model import Finding
from ddefuzz.oracles.program import Suspect

SHOWN = Failure(
    "dde",
    Observation("aot", EXPLICIT, "fail", exceptions=(ExceptionInfo("torch.GuardOnDataDependentSymNode", "u0"),)),
    "u0",
)
SITE = Site("C++", None, "at::native::chunk")
FINDING = Finding(
    id=Signature("dde", SITE, "guard_bool operator==").key,
    signature=Signature("dde", SITE, "guard_bool operator=="),
    cause="avoidable",
    original="original",
    minimal="old",
    steps=1,
    attempts=3,
    failure=SHOWN,
)
CONTROL = Control("passes", "passes")


class Done:
    """A future that is done."""

    def __init__(self, value: object) -> None:
        self.value = value

    def result(self) -> Any:
        return self.value


class Workers:
    """Answer minimizations in turn; what is shown in a fresh process is in `shown`."""

    jobs = 1

    def __init__(self, *minimized: MinimizeResult | LostTask, shown: tuple[str, ...] = ("old", "new")) -> None:
        self.minimized = list(minimized)
        self.shown = shown
        self.tasks: list[MinimizeTask] = []
        self.confirmed: list[str] = []
        self.controlled: list[ControlTask] = []

    def submit(self, function: Callable[[Any], Any], argument: Any, timeout: float, *, cold: bool = False) -> Any:
        assert timeout == 9.0
        assert cold == (function is run_confirm)
        if function is run_minimize:
            self.tasks.append(argument)
            return Done(self.minimized.pop(0))
        if function is run_confirm:
            assert isinstance(argument, Suspect)
            self.confirmed.append(argument.program)
            return Done(ConfirmResult(SHOWN if argument.program in self.shown else None))
        self.controlled.append(argument)
        return Done(ControlResult(CONTROL))


def made(program: str) -> MinimizeResult:
    return MinimizeResult(program, 1, 5, exhausted=False)


def renewed(workers: Workers, journal: Path, finding: Finding = FINDING) -> FollowUp:
    (found,) = renew([finding], workers, journal, max_attempts=7, timeout=9.0)
    return found


def test_a_smaller_program_that_is_shown_replaces_the_old_one(tmp_path: Path) -> None:
    workers = Workers(made("new"))
    found = renewed(workers, tmp_path)
    assert (found.status, found.shown, found.control) == ("smaller", SHOWN, CONTROL)
    assert workers.tasks == [MinimizeTask(Suspect("old", FINDING.signature, "aot"), max_attempts=7, finding=FINDING.id)]
    assert [task.program for task in workers.controlled] == ["new"]


def test_where_nothing_is_smaller_the_old_program_is_confirmed(tmp_path: Path) -> None:
    workers = Workers(made("old"))
    assert renewed(workers, tmp_path).status == "same"
    assert workers.confirmed == ["old"]


def test_a_smaller_program_that_is_not_shown_does_not_replace_it(tmp_path: Path) -> None:
    workers = Workers(made("new"), shown=("old",))
    found = renewed(workers, tmp_path)
    assert found.status == "same"
    assert found.result is not None
    assert found.result.program == "old"
    assert workers.confirmed == ["new", "old"]


def test_a_program_that_is_not_confirmed_has_no_control_runs(tmp_path: Path) -> None:
    workers = Workers(made("new"), made("new"), shown=())
    found = renewed(workers, tmp_path)
    assert (found.status, found.shown, workers.controlled) == ("not shown", None, [])


def test_where_the_smallest_program_is_not_shown_the_original_is_the_start(tmp_path: Path) -> None:
    workers = Workers(made("old"), made("new"), shown=("new",))
    found = renewed(workers, tmp_path)
    assert [task.suspect.program for task in workers.tasks] == ["old", "original"]
    assert (found.status, found.finding.id) == ("smaller", FINDING.id)


def test_a_crash_is_tried_again_without_what_crashed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note(Entry(NO_CASE, TAKEN, "halfway", 2, finding=FINDING.id))
    journal.note(Entry(NO_CASE, INSPECTED, "deadly", finding=FINDING.id))
    workers = Workers(LostTask("crash", "SIGSEGV"), made("new"))
    assert renewed(workers, tmp_path).status == "smaller"
    first, second = workers.tasks
    assert second == msgspec.structs.replace(
        first, suspect=msgspec.structs.replace(first.suspect, program="halfway"), avoid=("deadly",)
    )


def test_a_crash_at_the_same_candidate_keeps_what_was_reached(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note(Entry(NO_CASE, INSPECTED, "deadly", finding=FINDING.id))
    workers = Workers(LostTask("crash", "SIGSEGV"), LostTask("crash", "SIGSEGV"))
    found = renewed(workers, tmp_path)
    assert (found.status, found.result, len(workers.tasks)) == ("lost", None, 2)


def test_a_hang_is_not_tried_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note(Entry(NO_CASE, TAKEN, "new", 1, finding=FINDING.id))
    journal.note(Entry(NO_CASE, INSPECTED, "slow", finding=FINDING.id))
    workers = Workers(LostTask("timeout", "stopped after 9 s"))
    assert renewed(workers, tmp_path).status == "smaller"
    assert len(workers.tasks) == 1


def test_what_ends_a_worker_or_has_no_program_is_left_out() -> None:
    assert can_be_minimized(FINDING)
    assert not can_be_minimized(
        msgspec.structs.replace(FINDING, signature=msgspec.structs.replace(FINDING.signature, kind="crash"))
    )
    assert not can_be_minimized(msgspec.structs.replace(FINDING, minimal=None, original=None))
    assert not can_be_minimized(msgspec.structs.replace(FINDING, failure=None))
    assert can_be_minimized(msgspec.structs.replace(FINDING, minimal=None))


def test_results_come_in_order_and_before_all_are_submitted(tmp_path: Path) -> None:
    findings = [msgspec.structs.replace(FINDING, id=f"dde-{number}") for number in range(9)]
    workers = Workers(*(made("new") for _ in findings))
    found = renew(findings, workers, tmp_path, max_attempts=7, timeout=9.0)
    assert next(found).finding.id == "dde-0"
    assert len(workers.tasks) == AHEAD + 1
    assert [one.finding.id for one in found] == [finding.id for finding in findings[1:]]
