"""Changes of a user's code that are tried for `ddefuzz check`, and where they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ddefuzz.checking.advice_task import describe, try_change
from ddefuzz.checking.apply import together, write_changes
from ddefuzz.checking.change_search import advise, explain, may_help
from ddefuzz.checking.changes import Advice, Candidate, Trial, Trialed
from ddefuzz.checking.diffs import unified
from ddefuzz.classify.classify import Classified
from ddefuzz.cli.check_runs import START_SECONDS, Target
from ddefuzz.execute.pool import Lost, Pool
from ddefuzz.execute.protocol import Stage
from ddefuzz.files import write_atomically


class Limits(NamedTuple):
    """How long one trial of a change may take, and the search for changes of one case."""

    run_seconds: float
    search_seconds: float


def advise_case(
    pool: Pool, target: Target, failures: Sequence[Classified], stages: tuple[Stage, ...], limits: Limits
) -> Advice:
    """What happened in the first failure of a case, and changes that pass all stages."""
    if not any(map(may_help, failures)):
        return explain(failures[0])
    described = pool.submit(describe, target.subject, START_SECONDS).result()
    if isinstance(described, Lost):
        return explain(failures[0])
    return advise(
        failures, target.subject, described, stages, trial_in(pool, limits.run_seconds), limits.search_seconds
    )


def trial_in(pool: Pool, seconds: float) -> Trial:
    """Tries a change in a worker of the pool, within this time."""

    def trial(candidate: Candidate) -> Trialed:
        found = pool.submit(try_change, candidate, seconds).result()
        return Trialed(problem=f"ends in {found.outcome}: {found.reason}") if isinstance(found, Lost) else found

    return trial


def write_best(advice: Iterable[Advice], target: str, patch: Path | None, *, applying: bool) -> None:
    """Write the best change of each case: as a diff to `patch`, and with `applying` to the user's files."""
    best = [one.changes[0] for one in advice if one.changes]
    if patch is not None:
        write_atomically(patch, unified(together(best)))
    if applying:
        write_changes(best, Path(target))
