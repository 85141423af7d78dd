"""Which programs a guided campaign calls: those that come to guards which few called programs came to."""

from __future__ import annotations

from random import Random

from ddefuzz.campaign.guide import FRESH, RETRIED, CallHistory
from ddefuzz.campaign.tasks import CaseResult, StageOutcome, StageReached
from ddefuzz.execute.protocol import Stage
from ddefuzz.findings.ledger import Answer, SiteVisit
from ddefuzz.generate.profiles import CAPTURES, Again, Draw, Mutate, Origin
from ddefuzz.instrument.events import Place

OFTEN, RARELY = (Place("Python", "torch/_refs/__init__.py", line) for line in (10, 20))


def came(
    index: int, stage: Stage, program: str, *places: Place, outcome: str = "ok", raised: bool = False
) -> CaseResult:
    """A case that came to guards in a stage."""
    ended = StageOutcome(stage, "explicit", outcome, "", 0.1)
    answer: Answer = "raised" if raised else "False"
    sites = tuple(SiteVisit(place, "f", "guard_or_false", answer, "same", "Eq(x0, 1)") for place in places)
    return CaseResult(index, f"digest {index}", (ended,), program, reached=(StageReached(stage, sites),))


def chosen(calling: CallHistory, first: int, number: int, stage: Stage = "aot") -> list[Origin]:
    """What is called next, without the new draws."""
    cases = (calling.choose(index, stage, Draw(index), Random(index)) for index in range(first, first + number))
    return [one for one in cases if not isinstance(one, Draw)]


def test_without_a_program_a_new_one_is_drawn() -> None:
    fresh = Draw(0, profile=CAPTURES)
    assert CallHistory().choose(0, "aot", fresh, Random(0)) == fresh


def test_a_program_that_only_passed_the_fake_stage_is_called() -> None:
    calling = CallHistory()
    calling.learn(came(1, "fake", "rare", RARELY))
    assert chosen(calling, 2, 1) == [Again("rare")]


def test_the_guard_with_the_fewest_called_programs_comes_first() -> None:
    calling = CallHistory()
    calling.learn(came(1, "aot", "often", OFTEN))
    calling.learn(came(2, "fake", "other", OFTEN))
    calling.learn(came(3, "fake", "rare", RARELY))
    assert chosen(calling, 4, 1) == [Again("rare")]


def test_a_program_is_run_once_in_a_stage_and_then_mutated() -> None:
    calling = CallHistory()
    calling.learn(came(1, "fake", "rare", RARELY))
    first, second = chosen(calling, 2, 2)
    assert first == Again("rare")
    assert isinstance(second, Mutate)
    assert second.program == "rare"


def test_what_failed_is_called_once_in_other_stages_if_its_guard_has_no_other_program() -> None:
    calling = CallHistory()
    calling.learn(came(1, "export", "fails", RARELY, outcome="fail"))
    assert chosen(calling, 2, 1, "export") == []
    assert chosen(calling, 3, 2, "aot") == [Again("fails")]
    calling.learn(came(6, "fake", "passes", RARELY))
    assert chosen(calling, 7, 1, "compile") == [Again("passes")]
    assert isinstance(chosen(calling, 8, 2, "compile")[0], Mutate)


def test_few_of_the_called_programs_are_ones_that_failed() -> None:
    calling = CallHistory()
    calling.learn(came(1, "fake", "often", OFTEN))
    for index in range(2, 7):
        place = Place("Python", "torch/_refs/__init__.py", 20 + index)
        calling.learn(came(index, "fake", f"fails {index}", place, outcome="fail"))
    again = [one for one in chosen(calling, 7, 2 * RETRIED) if isinstance(one, Again) and one.program != "often"]
    assert len(again) == 2


def test_a_guard_that_raised_is_not_called() -> None:
    calling = CallHistory()
    calling.learn(came(1, "aot", "raises", RARELY, outcome="fail", raised=True))
    assert chosen(calling, 2, 4) == []


def test_one_in_a_few_is_a_new_draw() -> None:
    calling = CallHistory()
    calling.learn(came(1, "fake", "rare", RARELY))
    cases = [calling.choose(index, "aot", Draw(index), Random(index)) for index in range(2, 2 + 4 * FRESH)]
    assert sum(isinstance(one, Draw) for one in cases) == 4
