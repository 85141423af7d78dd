"""Go on after the first undecided guard: one more capture in which every undecided guard is answered."""

from __future__ import annotations

from ddefuzz.execute.protocol import Observation, Run, Runner, Semantics, Stage, Subject
from ddefuzz.instrument.events import Answer, Answered

MOST_RUNS = 5
"""How many captures are made for the sake of listing further problems of one stage."""


def go_on(subject: Subject, stage: Stage, runner: Runner) -> Observation:
    """The capture that gets furthest when undecided guards are answered.

    Guards are answered for one choice of sizes. Where the capture then fails, an answer may have led to code that
    cannot run: the last ones are turned to their other value, one at a time.
    """
    best = runner(Run(subject, stage, onward=True))
    turned: tuple[Answer, ...] = ()
    runs = 1
    while best.outcome != "ok" and runs < MOST_RUNS:
        candidates = [
            one for one in reversed(best.answered) if isinstance(one.value, bool) and _given(one) not in turned
        ]
        better = None
        for one in candidates[: MOST_RUNS - runs]:
            answer = Answer(one.raised.place, not one.value, one.raised.expression)
            found = runner(Run(subject, stage, Semantics(answers=(*turned, answer)), onward=True))
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
