"""The status of a replayed case, from observations made by hand."""

from __future__ import annotations

import pytest

from ddefuzz.campaign.replay import MISMATCHES, Expectation, KeptCase, Status, arrived, compare
from ddefuzz.execute.pool import LostTask
from ddefuzz.execute.protocol import EXPLICIT, Observation, ProgramSubject
from ddefuzz.oracles.program import tried_of
from tests.findings.arbitrary_findings import ROLL, failure_of

PASSES = Expectation("export")
FAILS = Expectation("export", EXPLICIT, ROLL.kind, str(ROLL.site), ROLL.anchor)
OK = Observation("export", EXPLICIT, "ok")
ROLLS = failure_of(ROLL).observation
NOT_JUDGED = Observation("export", EXPLICIT, "not-judged", "no compiler")
CRASH = Observation("export", EXPLICIT, "crash", "SIGSEGV")


def case(expect: Expectation) -> KeptCase:
    return KeptCase("case.py", ProgramSubject(""), expect)


@pytest.mark.parametrize(
    ("expect", "observation", "status", "seen"),
    [
        (PASSES, OK, "as expected", "export/explicit ok"),
        (PASSES, ROLLS, "fails", f"export/explicit dde at {ROLL.site}"),
        (FAILS, ROLLS, "as expected", f"export/explicit dde at {ROLL.site}"),
        (FAILS, OK, "gone", "export/explicit ok"),
        (FAILS, CRASH, "fails otherwise", "export/explicit crash at "),
        (Expectation("export", EXPLICIT, "dde"), ROLLS, "as expected", f"export/explicit dde at {ROLL.site}"),
        (Expectation("export", EXPLICIT, "dde", "elsewhere"), ROLLS, "fails otherwise", "export/explicit dde at"),
        (Expectation("export", EXPLICIT, "unsupported"), ROLLS, "fails otherwise", "export/explicit dde at"),
        (
            Expectation("export", EXPLICIT, "dde", str(ROLL.site), "another anchor"),
            ROLLS,
            "fails otherwise",
            "export/explicit dde at",
        ),
        (PASSES, NOT_JUDGED, "not judged", "export/explicit not judged"),
        (FAILS, NOT_JUDGED, "not judged", "export/explicit not judged"),
    ],
)
def test_the_status_compares_the_result_with_the_expectation(
    expect: Expectation, observation: Observation, status: Status, seen: str
) -> None:
    replayed = compare(case(expect), tried_of(observation))
    assert replayed.status == status
    assert replayed.seen.startswith(seen)


def test_the_evidence_is_that_of_the_failure_or_the_reason() -> None:
    assert compare(case(FAILS), tried_of(ROLLS)).evidence == "Eq(u0, 0)"
    assert compare(case(PASSES), tried_of(NOT_JUDGED)).evidence == "no compiler"
    assert compare(case(PASSES), tried_of(OK)).evidence == ""


def test_a_fixed_case_is_no_mismatch() -> None:
    assert {"gone", "as expected"}.isdisjoint(MISMATCHES)


def test_a_lost_worker_is_the_result_of_its_case() -> None:
    lost = arrived(case(PASSES), LostTask("timeout", "stopped after 60 s"))
    assert compare(case(PASSES), lost).seen.startswith("export/explicit timeout at ")
