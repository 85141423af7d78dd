"""Further captures of a case, with a plain function that runs: after undecided guards, and for the place of a
failure.
"""

from __future__ import annotations

import msgspec
import sympy  # type: ignore[import-untyped]

from ddefuzz.checking.explain import MOST_EXPERIMENTS, MOST_RUNS, continued, with_experiments
from ddefuzz.checking.problems import CaseRuns
from ddefuzz.execute.protocol import (
    EXPLICIT,
    Call,
    CallableSubject,
    CallEnd,
    Difference,
    Observation,
    ProgramSubject,
    Run,
)
from ddefuzz.instrument.events import Answer, AnsweredGuard, Guard, Place, RaisedError
from ddefuzz.instrument.recorder import MOST_ROUNDS, AssumedSizes
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.program import TriedRun, observe
from ddefuzz.oracles.table import classified

SUBJECT = ProgramSubject("text")
USERS = CallableSubject("model.py", "f")


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


WRONG = Call(
    "example", CallEnd(), CallEnd(), "differs", (Difference("values", "result", "1 of 2"),), symbols=(("u0", 3),)
)
GUARDS = tuple(
    Guard(Place("Python", f"torch/{name}.py", 1), "guard_or_false", "Eq(u0, 3)", False, "same", name)
    for name in ("first", "second")
)


def wrong_run(*guards: Guard) -> TriedRun:
    seen = Observation("export", EXPLICIT, "ok", guards=guards, calls=(WRONG,))
    return TriedRun(seen, classified(OracleInput("", seen), observe, ("agreement",)))


def test_experiments_find_the_guard_that_makes_user_code_wrong() -> None:
    right = msgspec.structs.replace(WRONG, agreement="same", differences=())
    tried = wrong_run(*GUARDS)
    assert [one.signature.site.function for one in tried.failures] == [None]

    def runner(run: Run) -> Observation:
        assert run.subject == USERS
        answered = {answer.place for answer in run.semantics.answers}
        call = right if GUARDS[1].place in answered else WRONG
        return Observation("export", run.semantics, "ok", guards=GUARDS, calls=(call,))

    (again,) = with_experiments(USERS, CaseRuns("c", (tried,)), runner).tried
    assert [one.signature.site.function for one in again.failures] == ["second"]


def test_experiments_that_find_nothing_change_nothing() -> None:
    tried = wrong_run(*GUARDS)
    runs: list[Run] = []

    def runner(run: Run) -> Observation:
        runs.append(run)
        return Observation("export", run.semantics, "ok", calls=(WRONG,))

    assert with_experiments(USERS, CaseRuns("c", (tried,)), runner).tried == (tried,)
    assert 0 < len(runs) <= MOST_EXPERIMENTS
