"""The control run of a problem in user code: whether it also occurs when all sizes of the arguments are static."""

from __future__ import annotations

import msgspec

from ddefuzz.answers.model import Control, ControlOutcome, data_dependent
from ddefuzz.classify.chain import lasting
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.kind import decisive
from ddefuzz.execute.protocol import CallableSubject, Observation, Run, Runner, Subject
from ddefuzz.oracles.capture import classify, judge


def control_of(subject: Subject, named: Classified, runner: Runner) -> Control | None:
    """A capture with static sizes. None where it says nothing: the error itself is about data, or a program has it."""
    if not isinstance(subject, CallableSubject) or data_dependent(named.failure, None) is not None:
        return None
    shown = named.failure.observation
    seen = runner(Run(msgspec.structs.replace(subject, static=True, unbacked=""), shown.stage))
    if seen.unbacked and _outcome(seen, named) == "fails":
        # Data inside of the model makes sizes as well: the failure may be about these.
        return Control("not judged", "not judged")
    return Control(_outcome(seen, named), "not judged")


def _outcome(seen: Observation, named: Classified) -> ControlOutcome:
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
