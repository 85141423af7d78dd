"""Reports of custom ops without torch: what is accepted, what is kept and used again, and what is shown."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ddefuzz.checking.acceptance import Acceptance
from ddefuzz.custom_ops.check import Store, check_one, check_ops, list_ops, verdict, with_accepted
from ddefuzz.custom_ops.model import CheckResult, ListTask, OpList, OpReport, OpsReport, OpTask, Problem, Source
from ddefuzz.custom_ops.report import op_text, ops_report, ops_view
from ddefuzz.errors import InputError
from ddefuzz.execute.journal import Phase, TaskTrace
from ddefuzz.execute.pool import LostTask
from ddefuzz.findings.database import Database
from ddefuzz.instrument.events import Frame
from ddefuzz.show.terminal import terminal
from tests.in_process import Done

PROBLEM = Problem(
    "sizes",
    "result",
    "the fake kernel says (1,), the real result has (2,)",
    "lib::op(float32[3])",
    ("n=3", "n=5"),
    4,
    "float32[1]",
    "float32[2]",
    (Frame("ops.py", 7, "_", "return x.new_empty(x.shape[0] // 2)"),),
)
WRONG = OpReport(
    "lib::op",
    "lib::op(Tensor x) -> Tensor",
    "ops.py:5",
    ("float32[3]; sizes n=3",),
    (CheckResult("sizes", 30, (PROBLEM,)), CheckResult("vmap", 0, skipped="the op has no vmap rule")),
    calls=30,
    refused=2,
    cpu_seconds=1.25,
)
RIGHT = OpReport("lib::right", checks=(CheckResult("sizes", 30),), calls=30, cpu_seconds=0.5)
CRASHING = OpReport("lib::crashing", checks=(CheckResult("sizes", 9),), crashes=("lib::crashing(float32[0])",))
REFUSED = OpReport("lib::other", reason="lib::other: found an op without a fake kernel, expected one")


def accepting(target: str, key: str) -> Acceptance:
    return Acceptance(target, key, "waits for the next release", datetime.date(2027, 1, 1))


def test_a_verdict_is_one_line() -> None:
    assert [verdict(one) for one in (WRONG, RIGHT, REFUSED, CRASHING)] == [
        "wrong: sizes",
        "ok",
        "not judged",
        "ok (the process ends in 1 call)",
    ]


def test_a_budget_that_is_used_up_is_said() -> None:
    cut = msgspec.structs.replace(RIGHT, is_cut=True)
    assert verdict(cut) == "ok (not all was tried)"
    assert "budget  used up before all sizes" in " ".join(op_text(cut).split("\n")).replace("budget      ", "budget  ")


def test_an_accepted_problem_does_not_fail() -> None:
    report = OpsReport("2.13.0", (WRONG, RIGHT))
    (wrong, _) = with_accepted(report, [accepting("lib::op", "sizes: result")]).ops
    assert wrong.ok
    assert verdict(wrong) == "ok (1 accepted)"


def test_an_accepted_problem_that_does_not_occur_is_said() -> None:
    accepted = [
        accepting("lib::op", "sizes"),
        accepting("lib::right", "sizes: result"),
        accepting("lib::other", "dtype"),
    ]
    report = with_accepted(OpsReport("2.13.0", (WRONG, RIGHT, REFUSED)), accepted)
    wrong, right, other = report.ops
    assert (wrong.checks, wrong.notes) == (WRONG.checks, ("accepted, and did not occur: sizes",))
    assert (right.notes, other.notes) == (("accepted, and did not occur: sizes: result",), ())
    assert "accepted, and did not occur: sizes: result" in terminal(tuple(ops_view(report)), 100)


def test_the_text_of_one_op() -> None:
    assert op_text(WRONG, 100).splitlines() == [
        "lib::op: wrong: sizes",
        "schema       lib::op(Tensor x) -> Tensor",
        "fake kernel  ops.py:5",
        "arguments    float32[3]; sizes n=3",
        "real calls   30, of which the real kernel refused 2",
        "",
        "check  result   tries  meaning",
        "─" * 100,
        "sizes  wrong       30  the fake result has the sizes of the real one",
        "vmap   skipped      -  the vmap rule computes what calls one after the other compute (the op has no",
        "                       vmap rule)",
        "",
        "sizes, result",
        "the fake kernel says (1,), the real result has (2,)",
        "",
        "call      lib::op(float32[3])",
        "at sizes  n=3",
        "          n=5",
        "          and 2 other calls",
        "fake      float32[1]",
        "real      float32[2]",
        "line      ops.py:7 return x.new_empty(x.shape[0] // 2)",
    ]


def test_several_ops_have_a_table_and_a_result() -> None:
    lines = terminal(tuple(ops_view(OpsReport("2.13.0", (WRONG, RIGHT, REFUSED)))), 100).splitlines()
    assert lines[0] == "Custom ops (torch 2.13.0)"
    assert [line.split()[0] for line in lines[3:6]] == ["lib::op", "lib::right", "lib::other"]
    assert "not tried    vmap: the op has no vmap rule" in lines
    assert "not judged  lib::other: found an op without a fake kernel, expected one" in lines
    assert lines[-1] == "1 of 2 ops wrong, 1 not judged"


def test_the_reports_of_other_tools_have_a_result_for_each_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.py").touch()
    report = ops_report(OpsReport("2.13.0", (WRONG, RIGHT, REFUSED)))
    assert report.title == "ddefuzz check-op: 1 of 2 ops wrong, 1 not judged"
    assert [(one.rule, one.outcome, one.path, one.line) for one in report.results] == [
        ("sizes", "failed", "ops.py", 7),
        ("runs", "passed", "", 0),
        ("runs", "skipped", "", 0),
    ]
    assert dict(report.results[0].facts)["at sizes"] == "n=3; n=5"
    without_frames = msgspec.structs.replace(PROBLEM, frames=())
    bare = msgspec.structs.replace(WRONG, checks=(CheckResult("sizes", 30, (without_frames,)),))
    (of_kernel,) = ops_report(OpsReport("2.13.0", (bare,))).results
    assert (of_kernel.path, of_kernel.line) == ("ops.py", 5)
    accepted = with_accepted(OpsReport("2.13.0", (WRONG,)), [accepting("lib::op", "sizes: result")])
    assert [one.outcome for one in ops_report(accepted).results] == ["known"]


class FakePool:
    """What a worker answers to each task, in turn for each op."""

    def __init__(self, answers: dict[str, list[OpReport | LostTask]]) -> None:
        self.answers = answers
        self.asked: list[OpTask] = []

    def submit(self, function: Any, task: Any, _seconds: float) -> Done:
        if function is list_ops:
            assert isinstance(task, ListTask)
            return Done(lambda: OpList(tuple(self.answers), "files"))
        assert function is check_one
        self.asked.append(task)
        answer = self.answers[task.op].pop(0)
        return Done(lambda: answer)


OPTIONS = OpTask(Source(), "")


def checked(pool: FakePool, store: Store | None = None, options: OpTask = OPTIONS) -> OpsReport:
    shared: Any = pool
    return check_ops(shared, (), options, "2.13.0", store, lambda: False, lambda _line, **_: None)


def lost(phase: Phase) -> LostTask:
    return LostTask("crash", "SIGSEGV (Segmentation fault)", left=TaskTrace(phase))


def test_an_op_that_ends_its_worker_is_checked_carefully() -> None:
    crash = lost(Phase("kernel", call="lib::crashing(float32[0])"))
    pool = FakePool({"lib::crashing": [crash, CRASHING], "lib::right": [RIGHT]})
    assert checked(pool).ops == (CRASHING, RIGHT)
    assert [(task.op, task.careful) for task in pool.asked] == [
        ("lib::crashing", False),
        ("lib::right", False),
        ("lib::crashing", True),
    ]


def test_an_op_that_ends_its_worker_again_is_not_judged() -> None:
    crash = lost(Phase("kernel", call="lib::op(float32[0])"))
    (report,) = checked(FakePool({"lib::op": [crash, crash]})).ops
    assert report.reason == ("its worker ended: SIGSEGV (Segmentation fault) in or after the call lib::op(float32[0])")
    (report,) = checked(FakePool({"lib::op": [lost(Phase())]})).ops
    assert report.reason == "its worker ended: SIGSEGV (Segmentation fault)"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(f"sqlite:///{tmp_path}/ops.db") as opened:
        yield opened


def test_what_was_judged_is_not_checked_again_until_something_changes(database: Database) -> None:
    store = Store(database, fresh=False)
    first = FakePool({"lib::op": [WRONG], "lib::other": [REFUSED]})
    report = checked(first, store)
    second = FakePool({"lib::op": [RIGHT], "lib::other": [REFUSED]})
    assert checked(second, store) == report
    assert [task.op for task in second.asked] == ["lib::other"]
    for other in (msgspec.structs.replace(OPTIONS, seed=1), msgspec.structs.replace(OPTIONS, budget=3.0)):
        assert checked(FakePool({"lib::op": [RIGHT]}), store, other).ops == (RIGHT,)
    assert checked(FakePool({"lib::op": [RIGHT]}), Store(database, fresh=True)).ops == (RIGHT,)


def test_an_interrupt_keeps_what_was_judged(database: Database) -> None:
    class Interrupted(FakePool):
        def submit(self, function: Any, task: Any, seconds: float) -> Done:
            done = super().submit(function, task, seconds)
            if function is check_one and task.op == "lib::right":

                def interrupt() -> None:
                    raise KeyboardInterrupt

                done.result = interrupt
            return done

    store = Store(database, fresh=False)
    report = checked(Interrupted({"lib::op": [WRONG], "lib::right": [RIGHT]}), store)
    assert (report.interrupted, report.ops) == (True, (WRONG,))
    resumed = FakePool({"lib::op": [], "lib::right": [RIGHT]})
    assert checked(resumed, store).ops == (WRONG, RIGHT)


def test_libraries_that_end_the_worker_are_one_line() -> None:
    class Lost(FakePool):
        def submit(self, function: Any, task: Any, seconds: float) -> Done:
            return Done(lambda: lost(Phase()))

    with pytest.raises(InputError, match=r"the import of the libraries ends in crash: SIGSEGV \(Segmentation fault\)"):
        checked(Lost({}))
