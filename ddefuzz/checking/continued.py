"""Capture once more with every undecided guard answered, so that one capture shows all problems."""

from __future__ import annotations

from ddefuzz.execute.protocol import Observation, Run, Runner, Semantics, Stage, Subject
from ddefuzz.instrument.events import Answer, Answered

MOST_RUNS = 5
"""The number of captures, at most, that list further problems of one stage."""


def continued(subject: Subject, stage: Stage, runner: Runner) -> Observation:
    """The capture with answered guards that gets furthest.

    Guards are answered by assumed sizes. If the capture then fails, an answer may have led to code that cannot run. So
    the last answers are inverted, one at a time.
    """
    best = runner(Run(subject, stage, answer_guards=True))
    turned: tuple[Answer, ...] = ()
    runs = 1
    while best.outcome != "ok" and runs < MOST_RUNS:
        candidates = [
            one for one in reversed(best.answered) if isinstance(one.value, bool) and _given(one) not in turned
        ]
        better = None
        for one in candidates[: MOST_RUNS - runs]:
            answer = Answer(one.raised.place, not one.value, one.raised.expression)
            found = runner(Run(subject, stage, Semantics(answers=(*turned, answer)), answer_guards=True))
            runs += 1
            if found.outcome == "ok" or len(found.answered) > len(best.answered):
                better = found, (*turned, answer)
                break
        if better is None:
            return best
        best, turned = better
    return best


def _given(one: Answered) -> Answer:
    """An answer that was given."""
    return Answer(one.raised.place, one.value if isinstance(one.value, bool) else None, one.raised.expression)
