"""Cases and observations of a campaign do not depend on the number of jobs, on shards, or on what ran before."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ddefuzz.campaign import case as case_module
from ddefuzz.campaign.case import describe, run_case
from ddefuzz.campaign.summary import Summary
from ddefuzz.campaign.tasks import CaseResult, CaseTask, DescribeTask
from ddefuzz.campaign.tasks import run_case as run_case_task
from ddefuzz.classify.failure import Failure
from ddefuzz.errors import UnsupportedError
from ddefuzz.execute.journal import Entry
from ddefuzz.execute.pool import LostTask, Pool
from ddefuzz.execute.protocol import CAPTURE_STAGES, Observation
from ddefuzz.generate.lockstep import Journal
from ddefuzz.generate.make import program_of
from ddefuzz.generate.profiles import Origin
from ddefuzz.program.model import Program
from tests.campaign.real_campaign import SMALL_ROUND, finished, summary_in

CASES = 20
"""More than two rounds: what comes after them depends on what the first showed."""


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Summary]:
    """Runs one, each into a database of its own."""

    def run(*more: str) -> Summary:
        folder = tmp_path_factory.mktemp("campaign")
        options = ("--seed", "7", "--max-examples", str(CASES), "--no-minimize", "--fail-on", "never", *more)
        result = finished(folder, folder / "ddefuzz.db", *options, "--round", str(SMALL_ROUND))
        assert result.returncode == 0, result.stderr
        return summary_in(result.stdout)

    return run


@pytest.fixture(scope="module")
def whole(campaign: Callable[..., Summary]) -> Summary:
    return campaign("-j", "2")


def seen(summary: Summary) -> dict[str, tuple[int, str]]:
    """What was found: by finding, in how many cases and of which cause."""
    return {one.finding: (one.cases, one.cause) for one in summary.findings}


@pytest.mark.slow
def test_one_job_or_two_give_the_same_cases_and_findings(campaign: Callable[..., Summary], whole: Summary) -> None:
    alone = campaign("-j", "1")
    assert len(alone.digests) == CASES
    assert alone.digests == whole.digests
    assert seen(alone) == seen(whole)
    assert alone.outcomes == whole.outcomes
    assert alone.verdicts == whole.verdicts
    assert alone.sites == whole.sites
    # Which of two cases at work at once was the first to reach a site is the machine's.
    assert {name: strategy.cases for name, strategy in alone.strategies.items()} == {
        name: strategy.cases for name, strategy in whole.strategies.items()
    }


@pytest.mark.slow
@pytest.mark.long
def test_two_shards_are_the_whole(campaign: Callable[..., Summary]) -> None:
    few = ("--no-screen", "--max-examples", "16")
    whole = campaign("-j", "2", "--uniform", *few)
    first, second = (campaign("-j", "1", "--shard", shard, *few) for shard in ("1/2", "2/2"))
    assert first.digests == whole.digests[0::2]
    assert second.digests == whole.digests[1::2]
    together = {
        name: sum(seen(shard).get(name, (0, ""))[0] for shard in (first, second)) for name in seen(first) | seen(second)
    }
    assert together == {name: cases for name, (cases, _) in seen(whole).items()}


def observed(pool: Pool, *indices: int) -> list[bytes]:
    """The cases' results as they go over the wire, without what depends on the machine: seconds and memory."""
    tasks = [CaseTask("default", 7, index, CAPTURE_STAGES[:3]) for index in indices]
    return [without_costs(future.result()) for future in [pool.submit(run_case_task, task, 120) for task in tasks]]


def without_costs(result: CaseResult | LostTask) -> bytes:
    assert isinstance(result, CaseResult)
    replace = msgspec.structs.replace

    def bare(observation: Observation) -> Observation:
        return replace(observation, cpu_seconds=0.0, seconds=0.0, peak_rss_mb=0.0, output="")  # it has times

    def failed(failure: Failure) -> Failure:
        return replace(failure, observation=bare(failure.observation))

    return msgspec.json.encode(
        replace(
            result,
            outcomes=tuple(replace(outcome, cpu_seconds=0.0) for outcome in result.outcomes),
            sightings=tuple(
                replace(one, classified=replace(one.classified, failure=failed(one.classified.failure)))
                for one in result.sightings
            ),
            draw_seconds=0.0,
            cpu_seconds=0.0,
            rss_mb=0.0,
        )
    )


@pytest.mark.slow
@pytest.mark.long
def test_a_case_observed_first_last_and_alone_is_the_same() -> None:
    cases = list(range(6))
    with Pool(1) as pool:
        forwards = observed(pool, *cases)
    with Pool(1) as pool:
        backwards = observed(pool, *reversed(cases))[::-1]
    with Pool(1, tasks_per_worker=1) as pool:
        alone = observed(pool, *cases[2:4])
    assert forwards == backwards
    assert forwards[2:4] == alone


def test_a_case_is_in_the_journal_before_it_is_drawn_and_its_program_before_it_is_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str] = []

    def note(entry: Entry) -> None:
        happened.append(f"note {entry.case} {entry.stage}")

    def drawing(profile: str, seed: int, index: int, origin: Origin, journal: Journal) -> tuple[Program, Origin]:
        happened.append(f"draw {index}")
        return program_of(profile, seed, index, origin, journal)

    def observing(run: object) -> Observation:
        happened.append("observe")
        raise KeyboardInterrupt

    monkeypatch.setattr(case_module, "note", note)
    monkeypatch.setattr(case_module, "program_of", drawing)
    monkeypatch.setattr(case_module, "observe", observing)
    with pytest.raises(KeyboardInterrupt):
        run_case(CaseTask("default", 7, 3, ("export",)))
    assert happened[:2] == ["note 3 draw", "draw 3"]
    assert happened[-2:] == ["note 3 export", "observe"]


def test_a_torch_that_cannot_be_watched_is_an_error_and_not_blindness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.__version__", "2.6.0")
    with pytest.raises(UnsupportedError, match=r"torch 2\.6\.0 is older than 2\.13"):
        describe(DescribeTask("default", 7))
