"""What further captures say of the failures of a case: the problems after the first one, whether the failure needs
unbacked sizes, and where user code is captured wrong.
"""

from __future__ import annotations

import msgspec

from ddefuzz.answers.model import Control, ControlOutcome, data_dependent
from ddefuzz.checking.problems import CaseRuns, failures_of
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.chain import lasting
from ddefuzz.classify.failure import decisive
from ddefuzz.execute.protocol import CallableSubject, Observation, Run, Runner, Semantics, Stage, Subject
from ddefuzz.instrument.events import Answer
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.capture import KINDS, classify, judge
from ddefuzz.oracles.oracle import attributed
from ddefuzz.oracles.program import TriedRun
from ddefuzz.oracles.table import oracle_of

MOST_RUNS = 5  # the number of captures, at most, that list further problems of one stage
MOST_EXPERIMENTS = 20  # the number of captures, at most, that look for the place of one failure


def with_experiments(subject: Subject, runs: CaseRuns, runner: Runner) -> CaseRuns:
    """The runs of a case with what further captures say of its failures."""
    if isinstance(subject, CallableSubject):
        runs = msgspec.structs.replace(runs, tried=tuple(_located(subject, one, runner) for one in runs.tried))
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


def _located(subject: CallableSubject, tried: TriedRun, runner: Runner) -> TriedRun:
    """A run of user code with the places that experiments find: the guard with whose true value the result is right, or
    the part of inductor without which it is. A failure whose place they do not find keeps its own.
    """
    seen = OracleInput("", tried.observation, user=subject)
    failures = tuple(
        one if one.failure.kind in KINDS or one.failure.second is not None else _experimented(one, seen, runner)
        for one in tried.failures
    )
    return msgspec.structs.replace(tried, failures=failures)


def _experimented(classified: Classification, seen: OracleInput, runner: Runner) -> Classification:
    left = MOST_EXPERIMENTS

    def few(run: Run) -> Observation:
        nonlocal left
        left -= 1
        return runner(run) if left >= 0 else Observation(run.stage, run.semantics, "not-judged", "enough experiments")

    again = attributed(oracle_of(classified.failure.kind), classified.failure, seen, few)
    return classified if again.signature.site.function is None else again
