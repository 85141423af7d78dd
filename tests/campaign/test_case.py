"""One case in a worker: screening in the fake stage, the captures after it, and minimizing."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ddefuzz.campaign.case import run_minimize, run_screened
from ddefuzz.campaign.tasks import CaseTask, MinimizeTask
from ddefuzz.classify.signature import Signature
from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import EXPLICIT, SCREEN, Observation, Run, Stage
from ddefuzz.oracles.program import Suspect, judge_program

FAILING = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0 4"]):
    t0 = torch.sin(x)
    return torch.chunk(t0, 2)
"""
PASSING = FAILING.replace("torch.chunk(t0, 2)", "torch.cos(t0)")


class Runner:
    """Runs in earnest and remembers in which stages."""

    def __init__(self, passing: Iterable[Stage] = ()) -> None:
        self.stages: list[Stage] = []
        self.passing = frozenset(passing)

    def __call__(self, run: Run) -> Observation:
        self.stages.append(run.stage)
        if run.stage in self.passing:
            return Observation(run.stage, run.semantics, "ok")
        return observe(run)


def task(*, known: frozenset[str] = frozenset(), capture: bool = False) -> CaseTask:
    return CaseTask("default", 7, 0, ("export",), screen=True, capture=capture, known=known)


def signature_in(stage: Stage) -> Signature:
    ((failure,),) = (one.failures for one in judge_program(FAILING, (stage,), (EXPLICIT,), observe, compare=False))
    return failure.signature


def key_of_failing() -> str:
    return signature_in(SCREEN).key


def test_a_case_that_passes_the_fake_stage_is_not_captured() -> None:
    runner = Runner()
    judged = run_screened(PASSING, task(), runner)
    assert runner.stages == [SCREEN]
    assert [one.stage for one in judged.reached] == [SCREEN]
    assert not judged.sightings


def test_a_sampled_case_is_captured_although_it_passes_the_fake_stage() -> None:
    runner = Runner()
    run_screened(PASSING, task(capture=True), runner)
    assert runner.stages[:2] == [SCREEN, "export"]


def test_a_failure_in_the_fake_stage_is_captured_once() -> None:
    runner = Runner()
    judged = run_screened(FAILING, task(), runner)
    assert "export" in runner.stages
    assert [one.failure.observation.stage for one in judged.sightings] == ["export"]
    assert judged.screened == (key_of_failing(),)
    assert judged.outcomes[0].verdict == ""
    again = Runner()
    judged = run_screened(FAILING, task(known=frozenset({key_of_failing()})), again)
    assert again.stages == [SCREEN]
    assert [one.signature.key for one in judged.sightings] == [key_of_failing()]


def test_a_failure_of_the_fake_stage_alone_is_no_finding() -> None:
    judged = run_screened(FAILING, task(), Runner(passing=["export"]))
    assert not judged.sightings
    assert judged.screened == (key_of_failing(),)
    known = frozenset(judged.screened)
    again = run_screened(FAILING, msgspec.structs.replace(task(known=known), alarms=known), Runner())
    assert not again.sightings


def suspect() -> Suspect:
    return Suspect(FAILING, signature_in("export"), "export", EXPLICIT)


def test_minimizing_runs_the_fake_stage_and_then_the_suspects_own_stage() -> None:
    runner = Runner()
    found = run_minimize(MinimizeTask(suspect()), runner)
    assert found.steps == 1
    assert runner.stages[-1] == "export"
    assert set(runner.stages[:-1]) == {SCREEN}


def test_without_a_failure_in_the_fake_stage_minimizing_runs_the_suspects_own_stage() -> None:
    runner = Runner(passing=[SCREEN])
    found = run_minimize(MinimizeTask(suspect()), runner)
    assert found.steps == 1
    assert runner.stages[0] == SCREEN
    assert set(runner.stages[1:]) == {"export"}
