"""The campaign's loop with workers made by hand: no torch, no processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import msgspec
import pytest

from ddefuzz import internal
from ddefuzz.answers.model import Control
from ddefuzz.campaign.campaign import GRACE_SECONDS, Campaign, Clock, Event
from ddefuzz.campaign.guide import WHOLE, Shard
from ddefuzz.campaign.plan import (
    CALLED,
    CALLED_COMPILED,
    CONFIRM_SECONDS,
    RETRACED,
    RETRACED_TURN,
    Budget,
    Plan,
    confirm_seconds,
)
from ddefuzz.campaign.summary import Step, Summary, Tally
from ddefuzz.campaign.tasks import (
    NO_CASE,
    TAKEN,
    TRIED,
    BatchResult,
    CaseBatch,
    CaseResult,
    CaseTask,
    ConfirmResult,
    ControlResult,
    ControlTask,
    MinimizeResult,
    MinimizeTask,
    StageOutcome,
    run_batch,
    run_case,
)
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Cause, Signature, Site
from ddefuzz.errors import DdefuzzError
from ddefuzz.execute.journal import Entry, Journal, Phase, TaskTrace
from ddefuzz.execute.pool import Future, LostTask
from ddefuzz.execute.protocol import AFTER_EXPORT, DECOMPOSED, EXPLICIT, Observation, Stage
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Sighting
from ddefuzz.findings.schema import packed, unpacked
from ddefuzz.findings.textform import NONE, Now
from ddefuzz.generate.profiles import Single, name_of
from ddefuzz.ops.catalogue import OPS
from ddefuzz.oracles.program import CAPTURE, Suspect
from ddefuzz.oracles.table import NAMES, own_stage

PROGRAM = """# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    return torch.roll(x, 1, 0)
"""


SHOWN = Failure("dde", Observation("export", EXPLICIT, "fail"), "Eq(u1, 0)")


def sighting(function: str, cause: Cause = "avoidable") -> Sighting:
    observation = Observation("export", EXPLICIT, "fail")
    return Sighting(
        classified=Classification(
            Failure("dde", observation, "Eq(u0, 0)"),
            Signature("dde", Site("C++", None, function), "guard_bool operator=="),
            cause,
            "rule",
        ),
        verdict="fails",
        ops=("torch.roll",),
        torch="2.13.0",
        program=PROGRAM,
    )


class Done:
    """A future that is already there."""

    def __init__(self, value: object) -> None:
        self.value = value

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        callback(self)

    def result(self) -> object:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Workers:
    """Answers at once: case `i` shows the signature `sites[i % len]`, every second of `clock` a task."""

    jobs = 2

    def __init__(
        self, sites: tuple[str, ...], *, lost: frozenset[int] = frozenset(), cause: Cause = "avoidable"
    ) -> None:
        self.sites, self.lost, self.cause = sites, lost, cause
        self.seconds = 0.0
        self.done: list[str] = []

    def submit(
        self, function: Callable[[Any], Any], argument: Any, timeout: float, *, cold: bool = False
    ) -> Future[Any]:
        self.seconds += 1
        assert timeout > 0
        assert cold == isinstance(argument, Suspect)
        return cast("Future[Any]", Done(self.answer(function, argument)))

    def answer(self, function: Callable[[Any], Any], argument: object) -> object:
        match argument:
            case CaseTask(index=index):
                assert function is run_case
                self.done.append(f"case {index}")
                if index in self.lost:
                    return LostTask("crash", "SIGSEGV (Segmentation fault)")
                site = self.sites[index % len(self.sites)]
                outcome = StageOutcome("export", "explicit", "fail" if site else "ok", "fails" if site else "ok", 0.5)
                sightings = (sighting(site, self.cause),) if site else ()
                return CaseResult(
                    index, f"digest {index}", (outcome,), sightings=sightings, draw_seconds=0.1, cpu_seconds=0.7
                )
            case MinimizeTask(suspect=suspect):
                self.done.append(f"minimize {suspect.signature.site}")
                return MinimizeResult(PROGRAM, 1, 9, exhausted=False, cpu_seconds=0.3)
            case Suspect(signature=signature):
                self.done.append(f"confirm {signature.site}")
                return ConfirmResult(shown=SHOWN if signature.kind == SHOWN.kind else None, cpu_seconds=0.2)
            case ControlTask(program=program, shown=shown):
                assert (program, shown) == (PROGRAM, SHOWN)
                self.done.append("control")
                return ControlResult(Control("passes", "fails"), cpu_seconds=0.1)
            case _:
                raise AssertionError(argument)


def run(
    tmp_path: Path,
    workers: Workers,
    budget: Budget,
    *,
    stopped: Callable[[], bool] = lambda: False,
    shard: Shard = WHOLE,
    number: int | None = None,
    stages: tuple[Stage, ...] = ("export",),
    look: Callable[[Event], None] = lambda _: None,
    known: Now = NONE,
    oracles: tuple[str, ...] = CAPTURE,
    results: SimpleQueue[Callable[[], None]] | None = None,
) -> tuple[Summary, Database, list[Event]]:
    tmp_path.mkdir(exist_ok=True)
    database = Database.open(f"sqlite:///{tmp_path / 'campaign.db'}")
    events: list[Event] = []
    epoch = datetime(2025, 1, 1, tzinfo=UTC)

    def listen(event: Event, tally: Tally) -> None:
        assert tally.findings is not None
        look(event)
        events.append(event)

    campaign = Campaign(
        plan=Plan("default", 7, budget, 2, stages, (EXPLICIT,), shard, oracles=oracles, known=known),
        database=database,
        workers=workers,
        clock=Clock(lambda: workers.seconds, lambda: epoch + timedelta(seconds=workers.seconds)),
        journal=tmp_path,
        torch="2.13.0",
        generator="generator=1",
        listen=listen,
        stopped=stopped,
        results=results or SimpleQueue(),
        number=number
        or database.start_campaign(profile="default", seed=7, generator="generator=1", options={}, when=epoch),
    )
    return campaign.run(), database, events


class Late(SimpleQueue[Callable[[], None]]):
    """Each result arrives 20 ms after the one before, for who waits."""

    def __init__(self, workers: Workers) -> None:
        super().__init__()
        self.workers = workers

    def empty(self) -> bool:
        return True

    def get(self, block: bool = True, timeout: float | None = None) -> Callable[[], None]:
        self.workers.seconds += 0.02
        return super().get(block, timeout)


@pytest.mark.parametrize(("jobs", "together"), [(1, {1}), (2, {1}), (9, {4})])
def test_results_that_arrive_soon_are_saved_together(
    jobs: int, together: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of half of the workers: each of them has a task that waits."""
    saved: list[int] = []
    monkeypatch.setattr(Database, "add_step", lambda _self, _, step: saved.append(len(unpacked(step, Step).cases)))
    workers = Workers(("",))
    workers.jobs = jobs
    summary, _, _ = run(tmp_path, workers, Budget(cases=36), results=Late(workers))
    assert (summary.cases, sum(saved)) == (36, 36)
    assert set(saved[:4]) == together


def test_every_case_is_done_once_and_in_order(tmp_path: Path) -> None:
    workers = Workers(("",))
    summary, database, _ = run(tmp_path, workers, Budget(cases=5))
    assert workers.done == [f"case {index}" for index in range(5)]
    assert summary.digests == tuple(f"digest {index}" for index in range(5))
    assert summary.outcomes == {"export": {"explicit": {"ok": 5}}}
    assert database.unfinished() == ()


def test_a_finding_is_recorded_then_minimized_then_confirmed_once(tmp_path: Path) -> None:
    workers = Workers(("at::native::chunk",))
    summary, database, events = run(tmp_path, workers, Budget(cases=6))
    (finding,) = database.findings()
    assert finding.count == 6
    assert (finding.steps, finding.attempts, finding.minimal) == (1, 9, PROGRAM)
    assert str(finding.confirmed) == "1/1"
    assert (finding.shown, finding.evidence) == (SHOWN, SHOWN)
    assert finding.failure != SHOWN
    assert [line for line in workers.done if "case" not in line] == [
        "minimize at::native::chunk",
        "confirm at::native::chunk",
        "control",
    ]
    assert finding.control == Control("passes", "fails")
    assert [seen.data_dependent for seen in summary.findings] == [True]
    assert [kind for kind, _ in events if kind != "case"] == ["found", "smaller", "confirmed"]
    assert [(seen.cases, seen.steps, seen.confirmed, seen.is_new) for seen in summary.findings] == [(6, 1, "1/1", True)]


class Confirming(Workers):
    """Confirms as told: a result is returned, an error raised when the result is asked for."""

    def __init__(self, confirm: Callable[[Suspect], object]) -> None:
        super().__init__(("at::native::chunk",))
        self.confirm = confirm

    def answer(self, function: Callable[[Any], Any], argument: object) -> object:
        answer = super().answer(function, argument)
        return self.confirm(argument) if isinstance(argument, Suspect) else answer


def test_what_a_minimal_program_shows_in_other_stages_is_recorded(tmp_path: Path) -> None:
    class Showing(Workers):
        """The other stages show another bug of the minimal program."""

        def answer(self, function: Callable[[Any], Any], argument: object) -> object:
            answer = super().answer(function, argument)
            if isinstance(answer, MinimizeResult) and isinstance(argument, MinimizeTask) and argument.also:
                assert argument.also == ("aot",)
                return msgspec.structs.replace(answer, sightings=(sighting("at::native::unbind", "avoidable"),))
            return answer

    stages: tuple[Stage, ...] = ("export", "aot", "inductor")
    _, database, _ = run(tmp_path, Showing(("at::native::chunk",)), Budget(cases=1), stages=stages)
    assert {finding.signature.site.function for finding in database.findings()} == {
        "at::native::chunk",
        "at::native::unbind",
    }


def test_a_lost_confirmation_shows_nothing(tmp_path: Path) -> None:
    _, database, _ = run(tmp_path, Confirming(lambda task: LostTask("timeout", "30 s")), Budget(cases=1))
    assert [str(finding.confirmed) for finding in database.findings()] == ["0/1"]


def test_an_error_of_its_own_is_no_confirmation_that_failed(tmp_path: Path) -> None:
    _, database, events = run(tmp_path, Confirming(lambda task: ValueError("ours")), Budget(cases=1))
    assert [finding.confirmed for finding in database.findings()] == [None]
    assert any(kind == "lost" and "ValueError: ours" in line for kind, line in events)
    (error,) = internal.take()
    assert error.where == database.findings()[0].id


def test_what_is_known_is_not_minimized_again(tmp_path: Path) -> None:
    run(tmp_path, Workers(("at::native::chunk",)), Budget(cases=1))
    workers = Workers(("at::native::chunk",))
    summary, _, _ = run(tmp_path, workers, Budget(cases=1))
    assert workers.done == ["case 0"]
    assert not summary.findings[0].is_new


def test_a_finding_on_the_list_of_known_ones_is_neither_new_nor_minimized(tmp_path: Path) -> None:
    found = run(tmp_path / "first", Workers(("at::native::chunk",)), Budget(cases=1))[0].findings[0].finding
    workers = Workers(("at::native::chunk",))
    summary, _, _ = run(tmp_path / "second", workers, Budget(cases=1), known=Now(frozenset({found})))
    assert (workers.done, summary.findings[0].status) == (["case 0"], "known")


def test_a_finding_whose_decision_has_expired_is_new_again(tmp_path: Path) -> None:
    found = run(tmp_path, Workers(("at::native::chunk",)), Budget(cases=1))[0].findings[0].finding
    expired = Now(expired=frozenset({found}))
    summary, _, _ = run(tmp_path, Workers(("at::native::chunk",)), Budget(cases=1), known=expired)
    assert (summary.findings[0].status, summary.findings[0].is_new) == ("expired", True)


def test_a_failure_of_the_programs_own_code_is_not_minimized(tmp_path: Path) -> None:
    workers = Workers(("user code",), cause="user")
    run(tmp_path, workers, Budget(cases=1))
    assert workers.done == ["case 0"]


@pytest.mark.parametrize(("doing", "kinds"), [("draw", []), ("export", ["crash"])])
def test_a_worker_that_dies_in_a_capture_is_a_finding_and_not_the_end(
    tmp_path: Path, doing: str, kinds: list[str]
) -> None:
    """While a program is drawn, eager runs its steps."""
    Journal(tmp_path).note(Entry(1, doing, PROGRAM))
    workers = Workers(("",), lost=frozenset({1}))
    summary, database, _ = run(tmp_path, workers, Budget(cases=4))
    assert summary.cases == 4
    assert summary.lost == 1
    assert [finding.kind for finding in database.findings()] == kinds


CALLED_THERE = TaskTrace(Phase("captured", "0"))


@pytest.mark.parametrize(
    ("case", "again", "confirmed"),
    [
        (CALLED_THERE, CALLED_THERE, ["crash-in-call 1/1"]),
        (CALLED_THERE, TaskTrace(), ["crash-in-call 0/1"]),
        (CALLED_THERE, TaskTrace(Phase("eager", "0")), ["crash-in-call 0/1"]),
        (TaskTrace(), TaskTrace(), ["crash 1/1"]),
        (TaskTrace(), CALLED_THERE, ["crash 0/1"]),
        (TaskTrace(Phase("eager", "0")), TaskTrace(), []),
    ],
)
def test_a_loss_is_confirmed_by_the_loss_of_the_same_part(
    tmp_path: Path, case: TaskTrace, again: TaskTrace, confirmed: list[str]
) -> None:
    class Dying(Workers):
        def answer(self, function: Callable[[Any], Any], argument: object) -> object:
            match argument:
                case CaseTask():
                    return LostTask("crash", "SIGSEGV (Segmentation fault)", left=case)
                case Suspect(calls=calls):
                    assert calls == (("0",) if case == CALLED_THERE else ())
                    return LostTask("crash", "SIGSEGV (Segmentation fault)", left=again)
                case ControlTask():
                    return ControlResult(Control("not judged", "not judged"))
                case _:
                    return super().answer(function, argument)

    Journal(tmp_path).note(Entry(0, "export", PROGRAM, semantics="explicit"))
    _, database, _ = run(tmp_path, Dying(("",)), Budget(cases=1))
    assert [f"{finding.kind} {finding.confirmed}" for finding in database.findings()] == confirmed


def test_a_case_that_no_worker_began_is_submitted_again_a_limited_number_of_times(tmp_path: Path) -> None:
    workers = Workers(("",), lost=frozenset({1}))
    with pytest.raises(DdefuzzError, match="end before they run any task"):
        run(tmp_path, workers, Budget(cases=4))


def test_what_a_lost_minimization_had_reached_is_kept_and_confirmed(tmp_path: Path) -> None:
    class Dying(Workers):
        """Two candidates tried, one taken, then the worker dies."""

        def answer(self, function: Callable[[Any], Any], argument: object) -> object:
            if isinstance(argument, MinimizeTask):
                journal = Journal(tmp_path)
                for entry in (Entry(NO_CASE, TRIED), Entry(NO_CASE, TRIED), Entry(NO_CASE, TAKEN, PROGRAM, 1)):
                    journal.note(msgspec.structs.replace(entry, finding=argument.finding))
                return LostTask("crash", "SIGKILL (Killed)")
            return super().answer(function, argument)

    _, database, events = run(tmp_path, Dying(("at::native::chunk",)), Budget(cases=1))
    (finding,) = database.findings()
    assert (finding.minimal, finding.steps, finding.attempts) == (PROGRAM, 1, 2)
    assert str(finding.confirmed) == "1/1"
    cut = f"{finding.id}: minimizing was cut short: SIGKILL (Killed); the smallest program so far is kept"
    assert ("lost", cut) in events


def test_a_minimal_program_that_another_stage_loses_is_kept_and_that_said(tmp_path: Path) -> None:
    class Dying(Workers):
        """A candidate taken, then the worker dies in another stage."""

        def answer(self, function: Callable[[Any], Any], argument: object) -> object:
            if isinstance(argument, MinimizeTask):
                journal = Journal(tmp_path)
                for entry in (Entry(NO_CASE, TAKEN, PROGRAM, 1), Entry(NO_CASE, "aot", PROGRAM)):
                    journal.note(msgspec.structs.replace(entry, finding=argument.finding))
                return LostTask("crash", "SIGSEGV (Segmentation fault)")
            return super().answer(function, argument)

    stages: tuple[Stage, ...] = ("export", "aot")
    _, database, events = run(tmp_path, Dying(("at::native::chunk",)), Budget(cases=1), stages=stages)
    (finding,) = database.findings()
    assert (finding.minimal, str(finding.confirmed)) == (PROGRAM, "1/1")
    said = (
        f"{finding.id}: its smallest program was lost in aot: SIGSEGV (Segmentation fault); the smallest program so far"
    )
    assert any(kind == "lost" and line.startswith(said) for kind, line in events)


def test_a_time_budget_ends_the_campaign(tmp_path: Path) -> None:
    workers = Workers(("",))
    summary, _, _ = run(tmp_path, workers, Budget(seconds=30))
    assert 20 <= summary.cases <= 30
    assert summary.seconds <= 30 + GRACE_SECONDS


def test_what_is_stopped_can_be_resumed_where_it_was(tmp_path: Path) -> None:
    workers = Workers(("at::native::chunk",))
    summary, database, _ = run(tmp_path, workers, Budget(cases=50), stopped=lambda: len(workers.done) > 5)
    assert summary.interrupted
    (entry,) = database.unfinished()
    assert 0 < entry.next_index <= summary.cases
    again = Workers(("at::native::chunk",))
    resumed, _, _ = run(tmp_path, again, Budget(cases=50), number=entry.id)
    assert next(name for name in again.done if "case" in name) == f"case {entry.next_index}"
    whole, other, _ = run(tmp_path / "undisturbed", Workers(("at::native::chunk",)), Budget(cases=50))
    assert counts(resumed) == counts(whole)
    assert database.findings()[0].count == other.findings()[0].count == 50
    assert database.steps(entry.id) == ()


def counts(summary: Summary) -> dict[str, object]:
    """The counts of a summary: all but seconds, and the number of the campaign."""
    found = msgspec.to_builtins(summary)
    for name in ("seconds", "start_seconds", "cpu_seconds", "growth", "peak_rss_mb", "minimized", "campaign"):
        del found[name]
    return {**found, "findings": [{**seen, "first_seconds": 0} for seen in found["findings"]]}


def test_what_was_done_ahead_of_a_slower_case_is_not_done_again(tmp_path: Path) -> None:
    tmp_path.mkdir(exist_ok=True)
    database = Database.open(f"sqlite:///{tmp_path / 'campaign.db'}")
    epoch = datetime(2025, 1, 1, tzinfo=UTC)
    number = database.start_campaign(profile="default", seed=7, generator="generator=1", options={}, when=epoch)
    tally = Tally()
    for index in (0, 3, 1):
        tally.add(CaseResult(index, f"digest {index}"))
        step = tally.drain()
        assert step is not None
        database.add_step(number, packed(step))
    workers = Workers(("",))
    summary, _, _ = run(tmp_path, workers, Budget(cases=6), number=number)
    assert [name for name in workers.done if "case" in name] == [f"case {index}" for index in (2, 4, 5)]
    assert summary.digests == tuple(f"digest {index}" for index in range(6))


def test_events_are_sent_after_results_are_saved(tmp_path: Path) -> None:
    other = Database.open(f"sqlite:///{tmp_path / 'campaign.db'}")
    told: list[bool] = []

    def look(event: Event) -> None:
        if event[0] == "found":
            told.append(other.get(event[1]).id == event[1])

    run(tmp_path, Workers(("at::native::chunk", "at::native::roll")), Budget(cases=4), look=look)
    assert told == [True, True]


@pytest.mark.parametrize("index", [1, 2])
def test_a_shard_does_its_own_cases(tmp_path: Path, index: int) -> None:
    workers = Workers(("",))
    run(tmp_path, workers, Budget(cases=6), shard=Shard(index, 2))
    assert workers.done == [f"case {case}" for case in range(index - 1, 6, 2)]


def test_stages_in_turn_are_one_a_case() -> None:
    plan = Plan("default", 7, Budget(cases=4), 1, ("export", "compile"), (EXPLICIT,), in_turn=True)
    assert [plan.stages_of(index) for index in range(3)] == [("export",), ("compile",), ("export",)]
    assert replace(plan, in_turn=False).stages_of(1) == ("export", "compile")


def test_blocks_of_cases_are_called_in_inductor() -> None:
    plan = Plan("default", 7, Budget(cases=4), 1, ("export", "compile"), (EXPLICIT,), in_turn=True, oracles=NAMES)
    slow = [index for index in range(640) if plan.compiled_stages(index)]
    assert slow == [*range(304, 320), *range(624, 640)]
    assert {plan.stages_of(index) for index in slow} == {("compile", "inductor")}
    task = plan.task_of(304, None)
    assert "inductor" in task.called
    assert not task.screen
    assert plan.seconds_of(task) > plan.case_seconds == plan.seconds_of(plan.task_of(302, None))
    cases = [plan.called_case(index) for index in slow]
    assert Counter(name_of(one.fresh) for one in cases if one is not None) == {
        "compiled": 16,
        "captures": 8,
        "single": 8,
    }
    for other in (
        replace(plan, stages=("export",)),
        replace(plan, oracles=("capture",)),
        replace(plan, profile="capture"),
    ):
        assert not any(other.compiled_stages(index) for index in range(640))
    assert replace(plan, stages=("inductor",)).compiled_stages(CALLED) == ("inductor",)
    both = replace(plan, stages=("export", "aoti", "inductor"))
    assert [index for index in range(640) if both.compiled_stages(index) == ("inductor",)] == slow
    once = CALLED * (CALLED_COMPILED - 1)
    assert both.compiled_stages(once) == both.stages_of(once) == ("aoti",)
    alone = replace(plan, stages=("aoti", "cpp-wrapper"))
    assert [alone.compiled_stages(CALLED * number) for number in (1, 2)] == [("cpp-wrapper",), ("aoti",)]
    assert (
        confirm_seconds(Suspect("", Signature("dde", Site("op", None, "f"), ""), "aoti", calls=("example",)))
        > CONFIRM_SECONDS
    )


class Together(Workers):
    """Loses each batch with the case `deadly`, after the worker has noted in its journal what it does."""

    def __init__(self, journal: Path, deadly: int) -> None:
        super().__init__(("",))
        self.journal, self.deadly = Journal(journal), deadly

    def answer(self, function: Callable[[Any], Any], argument: object) -> object:
        if not isinstance(argument, CaseBatch):
            return super().answer(function, argument)
        assert function is run_batch
        indices = [task.index for task in argument.tasks]
        self.done.append(f"batch {indices[0]}-{indices[-1]} ({len(indices)})")
        for index in indices:
            self.journal.note(Entry(index, "inductor", PROGRAM, semantics="explicit"))
            if index == self.deadly:
                return LostTask("crash", "SIGSEGV (Segmentation fault)")
        outcome = (StageOutcome("inductor", "explicit", "ok", "ok", 0.5),)
        return BatchResult(tuple(CaseResult(index, f"digest {index}", outcome, cpu_seconds=0.7) for index in indices))


def test_a_case_that_ends_its_batch_is_run_alone(tmp_path: Path) -> None:
    workers = Together(tmp_path, 6)
    summary, _, _ = run(tmp_path, workers, Budget(cases=20), stages=("inductor",), oracles=NAMES)
    batches = [one for one in workers.done if one.startswith("batch")]
    assert batches == ["batch 0-18 (7)", "batch 6-6 (1)", "batch 0-18 (6)"]
    assert (summary.cases, summary.lost) == (20, 1)
    assert [one.signature.kind for one in summary.findings] == ["crash"]


def test_the_ops_of_the_catalogue_take_turns_among_the_called_cases() -> None:
    plan = Plan("default", 7, Budget(cases=4), 1, ("export", "compile"), (EXPLICIT,), in_turn=True, oracles=NAMES)
    called = [plan.called_case(index) for index in range(0, 2 * CALLED * len(OPS), CALLED)]
    alone = [one.fresh.op for one in called if one is not None and isinstance(one.fresh, Single)]
    assert len(alone) > 0.9 * len(OPS)
    assert len(set(alone)) > 0.95 * len(alone)  # those for inductor come out of turn


def test_a_share_of_the_called_cases_goes_on_after_export() -> None:
    plan = Plan("default", 7, Budget(cases=4), 1, ("export", "compile"), (EXPLICIT,), in_turn=True, oracles=NAMES)
    often = CALLED * RETRACED
    taken = [index for index in range(often * 16) if not {*plan.retraced_stages(index)}.isdisjoint(AFTER_EXPORT)]
    # Cases for inductor go first.
    assert {index % often for index in taken} == {CALLED * RETRACED_TURN}
    stages = [plan.stages_of(index) for index in taken]
    # An oracle's own stage goes first.
    assert all(own_stage(stage) for (stage,) in stages if stage not in AFTER_EXPORT)
    assert {stage for (stage,) in stages} >= set(AFTER_EXPORT)
    assert all(plan.called_case(index) is not None for index in taken)
    assert not any(replace(plan, stages=("compile",)).retraced_stages(index) for index in taken)
    assert not any(replace(plan, oracles=("capture",)).retraced_stages(index) for index in taken)


def test_a_share_of_the_called_cases_is_decomposed() -> None:
    plan = Plan("default", 7, Budget(cases=4), 1, ("export", "compile"), (EXPLICIT,), in_turn=True, oracles=NAMES)
    taken = [index for index in range(640) if plan.retraced_stages(index) == (DECOMPOSED,)]
    assert len(taken) in range(70, 82)
    for index in taken:
        called = plan.called_case(index)
        assert called is not None
        if plan.stages_of(index) == (DECOMPOSED,):
            assert (called.stage, called.drawn) == (DECOMPOSED, True)
            assert called.fresh.gradients if isinstance(called.fresh, Single) else called.fresh.profile == "decomposing"
    assert not any(replace(plan, stages=("export",)).retraced_stages(index) for index in taken)


def test_a_case_that_fails_in_the_fake_stage_skips_slow_stages() -> None:
    stages: tuple[Stage, ...] = ("export", "inductor")
    plan = Plan("default", 7, Budget(cases=4), 1, stages, (EXPLICIT,), in_turn=True, screen=True)
    for index in range(100):
        expected = stages[index % 2] if plan.is_sampled(index) else "export"
        assert plan.stages_of(index) == (expected,)
    assert any(plan.stages_of(index) == ("inductor",) for index in range(100))
    assert replace(plan, screen=False).stages_of(3) == ("inductor",)
