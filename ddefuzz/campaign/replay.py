"""Replay stored cases and compare each result with the expected one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias, get_args

import msgspec

from ddefuzz.campaign.corpus import KeptCase
from ddefuzz.coverage.ledger import Ledger
from ddefuzz.coverage.reach import reached
from ddefuzz.errors import InputError
from ddefuzz.execute.pool import Lost, Pool, lost_observation
from ddefuzz.execute.protocol import EXPLICIT, ProgramSubject, Run
from ddefuzz.internal import guarded
from ddefuzz.oracles.program import Trial, Tried, judge_run, tried_of
from ddefuzz.refusals import refuse

CASE_SECONDS = 60.0

Status: TypeAlias = Literal["as expected", "gone", "fails", "fails otherwise", "not judged"]
"""
as expected      passes as expected, or fails as expected, or no result is expected
gone             was expected to fail and passes
fails            was expected to pass
fails otherwise  fails with another kind, site or anchor than expected
not judged       this torch has no such op or stage, or eager fails, or the case cannot be built
"""

MISMATCHES: frozenset[Status] = frozenset({"fails", "fails otherwise", "not judged"})
"""The statuses that make a replay fail. `gone`, a known failure that no longer occurs, does not."""

_WORST_FIRST: tuple[Status, ...] = ("fails otherwise", "fails", "not judged", "gone", "as expected")


class Replayed(msgspec.Struct, frozen=True):
    """The result of one case. `seen` is what it did, in the form of an expectation."""

    case: KeptCase
    status: Status
    seen: str
    evidence: str = ""


def compare(case: KeptCase, seen: Tried) -> Replayed:
    """Compare the result with what is expected of the case."""
    observation = seen.observation
    run = f"{observation.stage}/{observation.semantics}"
    if observation.outcome == "not-judged":
        return Replayed(
            case, "as expected" if case.expect.either else "not judged", f"{run} not judged", observation.reason
        )
    if not seen.failures:
        return Replayed(case, "gone" if case.expect.kind else "as expected", f"{run} ok")
    found = next((one for one in seen.failures if case.expect.fits(one.signature)), None)
    first = found or seen.failures[0]
    status: Status = "fails" if case.expect.kind is None else "fails otherwise" if found is None else "as expected"
    if case.expect.either:
        status = "as expected"
    return Replayed(case, status, f"{run} {first.signature.kind} at {first.signature.site}", first.failure.evidence)


def replay(
    cases: Iterable[KeptCase],
    jobs: int,
    listen: Callable[[Replayed], None] = lambda _: None,
    ledger: Ledger | None = None,
) -> tuple[Replayed, ...]:
    """Run every case in a worker and compare. The results are in the order of the cases.

    The guard sites that the cases reach with explicit semantics are added to `ledger`.
    """
    with Pool(jobs) as pool:
        sent = [(case, pool.submit(judge_run, trial_of(case), CASE_SECONDS)) for case in cases]
        results = []
        for case, future in sent:
            reason = ""
            try:
                with guarded(case.id) as guard:
                    seen = arrived(case, future.result())
                    results.append(compare(case, seen))
                    if ledger is not None and seen.observation.semantics == EXPLICIT:
                        text = case.subject.text if isinstance(case.subject, ProgramSubject) else ""
                        ledger.add([(seen.observation.stage, reached(seen.observation, seen.failures))], text)
                reason = guard.reason
            except InputError as error:  # the case cannot be built
                refuse(InputError(f"{case.id}: {error}"))
                reason = str(error)
            if reason and (not results or results[-1].case is not case):
                results.append(Replayed(case, "not judged", f"{case.expect.stage} not judged", reason))
            listen(results[-1])
    return tuple(results)


def statuses(results: Iterable[Replayed]) -> dict[Status, int]:
    """The number of cases with each status that occurs, in the order of `Status`."""
    return _counted(result.status for result in results)


def statuses_of_findings(results: Iterable[Replayed]) -> dict[Status, int]:
    """The number of findings with each status. A finding has the worst status of its programs. Other cases are not
    counted.
    """
    by_finding: dict[str, set[Status]] = {}
    for result in results:
        if result.case.finding:
            by_finding.setdefault(result.case.finding, set()).add(result.status)
    return _counted(next(status for status in _WORST_FIRST if status in seen) for seen in by_finding.values())


def _counted(seen: Iterable[Status]) -> dict[Status, int]:
    counts = Counter(seen)
    return {status: counts[status] for status in get_args(Status) if counts[status]}


def trial_of(case: KeptCase) -> Trial:
    """The run of a case, and the oracles that judge it."""
    expect = case.expect
    return Trial(Run(case.subject, expect.stage, expect.semantics, calls=expect.calls), expect.oracles)


def arrived(case: KeptCase, result: Tried | Lost) -> Tried:
    """The judged run. If the worker was lost, one that says so."""
    if isinstance(result, Tried):
        return result
    return tried_of(lost_observation(trial_of(case).run, result))
