"""What further captures say of the failures of a case: the problems after the first one, whether the failure needs
unbacked sizes, and where user code is captured wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from ddefuzz.answers.model import Control, ControlOutcome, data_dependent
from ddefuzz.checking.problems import CaseRuns, failures_of
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.chain import lasting
from ddefuzz.classify.failure import decisive
from ddefuzz.execute.protocol import CallableSubject, Observation, Run, Runner, Semantics, Stage, Subject
from ddefuzz.instrument.events import Answer
from ddefuzz.internal import guarded
from ddefuzz.oracles.blame import UNKNOWN, OracleInput
from ddefuzz.oracles.capture import KINDS, classify, judge
from ddefuzz.oracles.oracle import attributed
from ddefuzz.oracles.program import TriedRun
from ddefuzz.oracles.table import oracle_of

MOST_RUNS = 5  # the number of captures, at most, that list further problems of one stage
MOST_EXPERIMENTS = 40  # the number of captures, at most, that look for the places of the failures of a case


def with_experiments(subject: Subject, runs: CaseRuns, runner: Runner) -> CaseRuns:
    """The runs of a case with what further captures say of its failures."""
    if isinstance(subject, CallableSubject):
        runs = msgspec.structs.replace(runs, tried=_located(subject, runs.tried, runner))
    failures: dict[str, Classification] = {}
    for classified in failures_of(runs.tried):
        if classified.failure.kind in KINDS:
            failures.setdefault(classified.signature.key, classified)
    more: list[Observation] = []
    controls = {}
    for key, classified in failures.items():
        stage = classified.failure.observation.stage
        if stage == "eager":
            continue
        if classified.signature.kind == "dde":
            more.append(continued(subject, stage, runner))
            continue
        control = control_of(subject, classified, runner)
        if control is not None:
            controls[key] = control
    return CaseRuns(runs.case, runs.tried, tuple(more), tuple(controls.items()))


def continued(subject: Subject, stage: Stage, runner: Runner) -> Observation:
    """The capture with answered guards that gets furthest.

    Guards are answered by assumed sizes. If the capture then fails, an answer may have led to code that cannot run. So
    the last answers are inverted, one at a time.
    """
    best = runner(Run(subject, stage, answer_guards=True))
    turned: tuple[Answer, ...] = ()
    runs = 1
    while best.outcome != "ok" and runs < MOST_RUNS:
        given = (
            Answer(one.raised.place, one.value, one.raised.expression)
            for one in reversed(best.answered)
            if isinstance(one.value, bool)
        )
        better = None
        for guard in [one for one in given if one not in turned][: MOST_RUNS - runs]:
            answer = msgspec.structs.replace(guard, value=not guard.value)
            observation = runner(Run(subject, stage, Semantics(answers=(*turned, answer)), answer_guards=True))
            runs += 1
            if observation.outcome == "ok" or len(observation.answered) > len(best.answered):
                better = observation, (*turned, answer)
                break
        if better is None:
            return best
        best, turned = better
    return best


def control_of(subject: Subject, named: Classification, runner: Runner) -> Control | None:
    """A capture with static sizes. None where it says nothing: the error itself is about data, or a program has it."""
    if not isinstance(subject, CallableSubject) or data_dependent(named.failure, None) is not None:
        return None
    static = msgspec.structs.replace(subject, static=True, unbacked="")
    seen = runner(Run(static, named.failure.observation.stage))
    outcome = _static_outcome(seen, named)
    # Data inside of the model makes sizes as well: the failure may be about these.
    return Control("not judged" if seen.unbacked and outcome == "fails" else outcome, "not judged")


def _static_outcome(seen: Observation, named: Classification) -> ControlOutcome:
    if seen.outcome in ("crash", "timeout", "not-judged"):
        return "not judged"
    failures = judge([seen])
    if not failures:
        return "passes"
    if classify(failures[0]).signature == named.signature:
        return "fails"
    errors = [decisive(one)[1] for one in (seen, named.failure.observation)]
    same = len({(error.name, lasting(error.message)) for error in errors}) == 1
    return "fails" if same else "fails otherwise"


class _EnoughError(Exception):
    """Ends the experiments of a case."""


def _located(subject: CallableSubject, tried: Sequence[TriedRun], runner: Runner) -> tuple[TriedRun, ...]:
    """The runs of user code, with the places of wrong captures that experiments find: the guard or the part of inductor
    to blame. A failure whose place they do not find keeps its own.
    """
    left = MOST_EXPERIMENTS

    def few(run: Run) -> Observation:
        nonlocal left
        if not left:
            raise _EnoughError
        left -= 1
        return runner(run)

    def located(classified: Classification, seen: OracleInput) -> Classification:
        failure = classified.failure
        if failure.kind in KINDS or failure.second is not None:
            return classified
        with guarded(seen.observation.stage), guarded(failure.kind), suppress(_EnoughError):
            again = attributed(oracle_of(failure.kind), failure, seen, few)
            return classified if again.signature.site == UNKNOWN else again
        return classified

    def explained(run: TriedRun) -> TriedRun:
        seen = OracleInput("", run.observation, user=subject)
        return msgspec.structs.replace(run, failures=tuple(located(one, seen) for one in run.failures))

    return tuple(map(explained, tried))
