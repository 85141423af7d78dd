"""The share of the programs of each profile that is captured."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ddefuzz.campaign.tasks import CaseResult, CaseTask, run_case
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import EXPLICIT, Stage

SHARED_STAGES: tuple[Stage, ...] = ("aot", "export")
"""The stages in which the share of captured programs is measured."""

CASE_SECONDS = 120.0


def capture_shares(
    profiles: Iterable[str], seed: int, draws: int, jobs: int, say: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """The share of the first `draws` cases of each profile that is captured, by stage. A lost worker captures none."""
    shares: dict[str, dict[str, float]] = {}
    with Pool(jobs) as pool:
        for profile in profiles:
            say(f"capturing {draws} programs of profile {profile}")
            tasks = [CaseTask(profile, seed, index, SHARED_STAGES) for index in range(draws)]
            done = [future.result() for future in [pool.submit(run_case, task, CASE_SECONDS) for task in tasks]]
            shares[profile] = shares_of([one for one in done if isinstance(one, CaseResult)], draws)
    return shares


def shares_of(results: list[CaseResult], draws: int) -> dict[str, float]:
    """The share of cases that is captured, by stage, of `draws` in all."""
    ended = [(one.stage, one.outcome) for each in results for one in each.outcomes if one.semantics == str(EXPLICIT)]
    return {stage: ended.count((stage, "ok")) / draws for stage in SHARED_STAGES}
