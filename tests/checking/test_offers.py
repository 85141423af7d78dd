"""The changes that a check of many cases offers, counted by cause."""

from __future__ import annotations

import msgspec

from ddefuzz.checking.patch import Change
from ddefuzz.checking.problems import problems_of
from ddefuzz.checking.record import report_record
from ddefuzz.checking.report import Offer, Report, captures_of, offers_lines
from tests.checking.test_check_rows import EAGER, FAILED, runs

CASE = runs(EAGER, FAILED)
(PROBLEM,) = problems_of(CASE)
PROBLEMS = tuple(
    msgspec.structs.replace(PROBLEM, case=case, classified=msgspec.structs.replace(PROBLEM.classified, cause=cause))
    for case, cause in (("a", "user"), ("b", "user"), ("b", "avoidable"), ("c", "avoidable"))
)
DOCUMENT = Report(
    "m.py",
    "2.13.0",
    False,
    tuple(msgspec.structs.replace(one, case=case) for case in "abc" for one in captures_of(CASE)),
    PROBLEMS,
    (Offer("a", Change("rewrite", 1, "x", "", ())), Offer("a", Change("inside-promise", 3, "y", "", ()))),
)


def test_each_case_counts_once_with_its_first_cause_and_best_change() -> None:
    assert list(offers_lines(DOCUMENT)) == [
        "user: 2 cases with a problem, best change: 1 rewrite, 1 none",
        "avoidable: 1 case with a problem, best change: 1 none",
    ]


def test_a_change_that_passes_some_stages_does_not_count() -> None:
    weaker = Change("rewrite", 1, "x", "", (), fails="still fails in compile: `u0`")
    document = msgspec.structs.replace(DOCUMENT, changes=(Offer("a", weaker), *DOCUMENT.changes[1:]))
    assert next(iter(offers_lines(document))).endswith("best change: 1 inside-promise, 1 none")
    assert document.best == (DOCUMENT.changes[1].change,)


def test_they_are_printed_for_several_cases_only() -> None:
    line = "user: 2 cases with a problem, best change: 1 rewrite, 1 none"
    assert line in DOCUMENT.text()
    assert line in report_record(DOCUMENT, "ddefuzz").facts
    of_one = msgspec.structs.replace(
        DOCUMENT,
        captures=tuple(one for one in DOCUMENT.captures if one.case == "a"),
        problems=DOCUMENT.problems[:1],
    )
    assert "best change" not in of_one.text()
    assert not any("best change" in fact for fact in report_record(of_one, "ddefuzz").facts)
