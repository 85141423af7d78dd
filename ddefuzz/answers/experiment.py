"""The experiment: captures a program with each value of its undecided guard, and calls the result at all sizes.

Running is a function (`Runner`), so the tests of the verdicts need no torch. A run may crash torch: a forced value
has led C++ to divide by zero. So the runner should use processes that may die.
"""

from __future__ import annotations

from ddefuzz.answers.model import GIVEN, Experiment, Given, Row, Verdict
from ddefuzz.classify.evidence import NUMBER_METHODS
from ddefuzz.classify.signature import Site
from ddefuzz.execute.calls import Call
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, Runner, Semantics, Stage
from ddefuzz.instrument.events import Answer
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.program.sizes import CALL_SIZES, CallSize

VALUES: dict[Given, bool | None] = {"False": False, "True": True, "assert": None}

DEEPEST = 3
"""How many guards in a row are given a value, the first one included."""


def experiment(text: str, stage: Stage, runner: Runner) -> Experiment:
    """Try each value of the first undecided guard of a program in a stage."""
    observation = runner(Run(ProgramSubject(text), stage))
    failures = judge([observation])
    raised = observation.raised
    if not failures or failures[0].kind != "dde" or raised is None:
        return Experiment(text, stage, None, "", (), "not a guard")
    site = classify(failures[0]).signature.site
    if raised.method in NUMBER_METHODS:
        return Experiment(text, stage, site, raised.expression, (), "needs SymInt")
    rows = tuple(_row(text, stage, site, given, observation, runner) for given in GIVEN)
    return Experiment(text, stage, site, raised.expression, rows, verdict(rows))


def verdict(rows: tuple[Row, ...]) -> Verdict:
    """The verdict over all rows: the smallest change that is correct."""
    by_answer = {row.answer: row for row in rows}
    false, true, asserted = (by_answer[given] for given in GIVEN)
    if false.raises and asserted.is_right_where_it_holds:
        return "torch._check here"
    if false.is_right:
        return "guard_or_false here"
    if true.is_right:
        return "guard_or_true here"
    if asserted.is_right_where_it_holds:
        return "torch._check here"
    captured = [row for row in rows if row.captures]
    if not captured:
        return "no answer captures"
    called = [row for row in captured if row.agrees or row.refuses or row.differs or row.accepts]
    return "no answer is right for all sizes" if called else "nothing to compare"


def _row(text: str, stage: Stage, site: Site, given: Given, first: Observation, runner: Runner) -> Row:
    """The best outcome of one value. If another undecided guard follows, both of its values are tried."""
    answers = (_answer(first, VALUES[given]),)
    best: Row | None = None
    for found in _outcomes(text, stage, site, given, answers, (), runner):
        if best is None or _rank(found) > _rank(best):
            best = found
        if best.is_right:
            break
    assert best is not None
    return best


def _outcomes(
    text: str,
    stage: Stage,
    site: Site,
    given: Given,
    answers: tuple[Answer, ...],
    then: tuple[str, ...],
    runner: Runner,
) -> list[Row]:
    seen = runner(Run(ProgramSubject(text), stage, Semantics(answers=answers), calls=CALL_SIZES))
    if seen.outcome == "ok":
        return [_called(site, given, then, seen)]
    stopped = Row(
        site,
        given,
        captures=False,
        then=then,
        stopped=_stopped(seen),
        raises=seen.raised is None and seen.outcome == "fail",
    )
    follows = seen.raised
    known = {(one.place, one.expression) for one in answers}
    if (
        follows is None
        or follows.method in NUMBER_METHODS
        or len(answers) == DEEPEST
        or (follows.place, follows.expression) in known
    ):
        return [stopped]
    rows = []
    for value in (False, True):
        more = (*answers, _answer(seen, value))
        rows += _outcomes(text, stage, site, given, more, (*then, f"{follows.expression} is {value}"), runner)
        if rows[-1].is_right:
            break
    return rows


def _answer(observation: Observation, value: bool | None) -> Answer:
    raised = observation.raised
    assert raised is not None
    return Answer(raised.place, value, raised.expression)


def _called(site: Site, given: Given, then: tuple[str, ...], seen: Observation) -> Row:
    sizes: dict[str, list[CallSize]] = {"agrees": [], "refuses": [], "differs": [], "accepts": [], "": []}
    for call in seen.calls:
        sizes[_ends(call)].append(call.size)
    return Row(
        site,
        given,
        captures=True,
        agrees=tuple(sizes["agrees"]),
        refuses=tuple(sizes["refuses"]),
        differs=tuple(sizes["differs"]),
        accepts=tuple(sizes["accepts"]),
        then=then,
    )


def _ends(call: Call) -> str:
    """The field of a row that a call belongs to; empty if eager and the captured program both reject it."""
    if not call.eager.returned:
        return "accepts" if call.captured.returned else ""
    if not call.captured.returned:
        return "refuses"
    return "differs" if call.agreement == "differs" else "agrees"


def _stopped(seen: Observation) -> str:
    """What ended a capture, in one line."""
    if seen.raised is not None:
        failures = judge([seen])
        site = classify(failures[0]).signature.site if failures else "an unknown place"
        return f"{seen.raised.expression} at {site}"
    if seen.exceptions:
        return f"{seen.exceptions[-1].name}: {seen.exceptions[-1].message.strip().partition(chr(10))[0][:200]}"
    return seen.reason or seen.outcome


def _rank(row: Row) -> tuple[bool, bool, int, int, int]:
    """Sort key of an outcome: correct ones first, then those that differ and reject least, with the fewest
    forced guards.
    """
    wrong = len(row.differs) + len(row.accepts)
    return (row.is_right, row.captures, -wrong, -len(row.refuses), -len(row.then))
