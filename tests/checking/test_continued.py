"""Going on after undecided guards, with a plain function that runs."""

from __future__ import annotations

import sympy  # type: ignore[import-untyped]

from ddefuzz.checking.check import MOST_RUNS, continued
from ddefuzz.execute.protocol import EXPLICIT, Observation, ProgramSubject, Run
from ddefuzz.instrument.events import Answer, AnsweredGuard, Place, RaisedError
from ddefuzz.instrument.recorder import MOST_ROUNDS, AssumedSizes

SUBJECT = ProgramSubject("text")


def at(line: int) -> RaisedError:
    return RaisedError(f"u0 > {line}", "guard_bool", Place("Python", "model.py", line), ())


def test_one_capture_is_enough_where_it_ends() -> None:
    seen = Observation("export", EXPLICIT, "ok", answered=(AnsweredGuard(at(1), True),))
    done: list[Run] = []

    def runner(run: Run) -> Observation:
        done.append(run)
        return seen

    assert continued(SUBJECT, "export", runner) is seen
    assert done == [Run(SUBJECT, "export", answer_guards=True)]


def test_an_answer_that_leads_nowhere_is_turned() -> None:
    def runner(run: Run) -> Observation:
        turned = Answer(at(2).place, True, "u0 > 2") in run.semantics.answers
        answers = (
            AnsweredGuard(at(1), True),
            AnsweredGuard(at(2), turned),
            *((AnsweredGuard(at(3), 4),) if turned else ()),
        )
        return Observation("export", EXPLICIT, "ok" if turned else "fail", answered=answers)

    seen = continued(SUBJECT, "export", runner)
    assert (seen.outcome, len(seen.answered)) == ("ok", 3)


def test_it_ends_after_some_captures() -> None:
    count = 0

    def runner(run: Run) -> Observation:
        nonlocal count
        count += 1
        return Observation(
            "export", EXPLICIT, "fail", answered=tuple(AnsweredGuard(at(one), True) for one in range(count))
        )

    continued(SUBJECT, "export", runner)
    assert count <= MOST_RUNS


def test_a_line_of_the_users_code_is_left_after_some_rounds() -> None:
    line = Place("Python", "model.py", 7)
    assumed = AssumedSizes({})
    truths = [bool(assumed.value(sympy.Symbol(f"u{number}") > 0, line)) for number in range(MOST_ROUNDS + 2)]
    assert truths == [True] * MOST_ROUNDS + [False] * 2
    assert all(bool(assumed.value(sympy.Symbol(f"u{number}") > 0)) for number in range(MOST_ROUNDS + 2))
