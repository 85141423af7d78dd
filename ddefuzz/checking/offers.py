"""Which changes were offered for the cases of a check, by the cause of their first problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ddefuzz.checking.changes import HARM, ChangeKind
from ddefuzz.checking.check import Document


def offered_by_cause(document: Document) -> Iterator[tuple[str, Counter[ChangeKind | None]]]:
    """For each cause the cases whose first problem has it, by the kind of their best change; None if there is none."""
    best: dict[str, ChangeKind] = {}
    for one in document.changes:
        best.setdefault(one.case, one.change.kind)  # they are in order of harm
    causes: dict[str, str] = {}
    for problem in document.problems:
        causes.setdefault(problem.case, problem.cause)
    for cause, _ in Counter(causes.values()).most_common():
        yield cause, Counter(best.get(case) for case, of_case in causes.items() if of_case == cause)


def offers_lines(document: Document) -> Iterator[str]:
    """A line for each cause, such as `user: 7 cases with a problem, best change: 3 rewrite, 4 none`.

    There are none for a single case.
    """
    if len({problem.case for problem in document.problems}) < 2:
        return
    for cause, counts in offered_by_cause(document):
        kinds = [f"{counts[kind]} {kind}" for kind in HARM if counts[kind]]
        kinds += [f"{counts[None]} none"] if counts[None] else []
        cases = counts.total()
        yield f"{cause}: {cases} {'case' if cases == 1 else 'cases'} with a problem, best change: {', '.join(kinds)}"
