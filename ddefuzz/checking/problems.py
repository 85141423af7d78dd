"""The failures of a case as problems: each once, the worst first, with its owner and the calls that lead to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ddefuzz.answers.model import Control, data_dependent
from ddefuzz.checking.explain import DRAWS, LOOP_REMEDY, TYPES, loop_of, remedy
from ddefuzz.checking.owner import YOURS, Owner, owner_of, torch_itself
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.failure import Kind
from ddefuzz.classify.kind import GUARD_EXCEPTIONS
from ddefuzz.classify.plumbing import is_framework, is_python_plumbing
from ddefuzz.classify.signature import USER_CODE
from ddefuzz.classify.site import inside_tracer
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation, Stage
from ddefuzz.instrument.events import Answered, Frame, SymbolOrigin
from ddefuzz.internal import guarded
from ddefuzz.oracles.capture import KINDS, classify, judge
from ddefuzz.oracles.program import Tried
from ddefuzz.oracles.recompilation import Repeated
from ddefuzz.oracles.table import row_of


class Caller(msgspec.Struct, frozen=True):
    """A line of the user's code, or of a package that it calls, on the way to the failure."""

    file: str
    line: int
    function: str
    code: str
    owner: Owner


class Answer(msgspec.Struct, frozen=True):
    """How an undecided guard was answered, in `stage`, so that the capture continued."""

    stage: Stage
    value: bool | int | float


class Problem(msgspec.Struct, frozen=True):
    """One problem: a failure with its site, however many captures and visits show it.

    `stages` are the captures that it stops, or whose captured program has it. There are none if it only shows once the
    problems before it are answered (`answers`): then it has no exception. `keys` has the key of each signature under
    which captures report it. `chain` are the calls from the user's code to the site. `about_data` is None if it is not
    known, `control` the capture with static sizes. `consequence` says that an answer may have led to it.
    """

    case: str
    classified: Classified
    stages: tuple[Stage, ...]
    owner: Owner
    keys: tuple[str, ...]
    chain: tuple[Caller, ...] = ()
    about_data: bool | None = None
    control: Control | None = None
    answers: tuple[Answer, ...] = ()
    consequence: bool = False
    remedy: str = ""

    @property
    def kind(self) -> Kind:
        """The kind of the failure."""
        return self.classified.signature.kind

    @property
    def observation(self) -> Observation:
        """The run that shows it."""
        return self.classified.failure.observation

    @property
    def expression(self) -> str | None:
        """What the guard evaluates."""
        return self.observation.raised.expression if self.observation.raised is not None else None

    @property
    def module(self) -> str:
        """The path of the nn.Module that runs there."""
        raised = self.observation.raised
        return (raised.module if raised is not None else "") or self.observation.module

    @property
    def symbols(self) -> tuple[SymbolOrigin, ...]:
        """The symbols in the guard, with their origins."""
        return self.observation.raised.symbols if self.observation.raised is not None else ()

    @property
    def is_minor(self) -> bool:
        """Whether it neither stops capture nor makes the captured program wrong."""
        return self.kind not in KINDS and self.kind != "regressed" and not row_of(self.kind).wrong


class CaseRuns(msgspec.Struct, frozen=True):
    """All runs of one case: its captures, those with answered guards, and captures with static sizes by key."""

    case: str
    tried: tuple[Tried, ...]
    continued: tuple[Observation, ...] = ()
    controls: tuple[tuple[str, Control], ...] = ()


class Occurrence(msgspec.Struct, frozen=True):
    """A failure and how it was met: in a plain capture, or after answers."""

    classified: Classified
    stops: bool
    answer: Answer | None = None
    consequence: bool = False


def problems_of(runs: CaseRuns) -> tuple[Problem, ...]:
    """The problems of a case, each once, the worst first."""
    controls = dict(runs.controls)
    groups: dict[str, list[Occurrence]] = {}
    for occurrence in _occurrences(runs):
        groups.setdefault(occurrence.classified.signature.key, []).append(occurrence)
    problems: list[Problem] = []
    for key, group in groups.items():
        problem = _problem(runs.case, group, controls.get(key))
        same = next((at for at, other in enumerate(problems) if _is_the_same(other, problem)), None)
        if same is None:
            problems.append(problem)
        else:
            problems[same] = msgspec.structs.replace(
                problems[same],
                stages=(*problems[same].stages, *problem.stages),
                keys=(*problems[same].keys, *problem.keys),
                answers=tuple(dict.fromkeys((*problems[same].answers, *problem.answers))),
            )
    return tuple(sorted(problems, key=_badness))


def _occurrences(runs: CaseRuns) -> Iterator[Occurrence]:
    """The failures of a case under explicit semantics, in the order in which they were met.

    A timeout after answers is none: a loop whose condition is answered True each time does not end.
    """
    yield from (Occurrence(failure, stops=True) for failure in failures_of(runs.tried))
    for seen in runs.continued:
        for answered in seen.answered:
            failure = _as_raised(seen, answered)
            if failure is not None:
                yield Occurrence(failure, stops=False, answer=Answer(seen.stage, answered.value))
        for one in judge([seen]):
            if one.kind != "timeout":
                yield Occurrence(classify(one), stops=False, consequence=True)


def failures_of(tried: Sequence[Tried]) -> tuple[Classified, ...]:
    """The failures of plain captures under explicit semantics. There are none for a case that fails in eager."""
    observations = [one.observation for one in tried]
    if refused_by_eager(observations) is not None:
        return ()
    stopping = list[Classified]()
    for failure in judge(observations):
        if failure.observation.semantics == EXPLICIT:
            with guarded(failure.observation.stage), guarded(failure.kind):
                stopping.append(classify(failure))
    return (*stopping, *(one for of in tried for one in of.failures if one.failure.kind not in KINDS))


def refused_by_eager(observations: Sequence[Observation]) -> Observation | None:
    """The run in eager, if it failed."""
    return next((one for one in observations if one.stage == "eager" and one.outcome != "ok"), None)


def exception_of(seen: Observation) -> str | None:
    """The type and first line of the final exception."""
    if not seen.exceptions:
        return None
    final = seen.exceptions[0]
    return f"{final.name}: {final.message.strip().partition(chr(10))[0]}"


def _as_raised(seen: Observation, answered: Answered) -> Classified | None:
    """The failure that a guard would have been, had it not been answered. It has no exception."""
    expression = answered.raised.expression
    error = ExceptionInfo(min(GUARD_EXCEPTIONS), f"Could not guard on data-dependent expression {expression}")
    alone = msgspec.structs.replace(
        seen, outcome="fail", reason="", exceptions=(error,), raised=answered.raised, answered=(), calls=()
    )
    failures = judge([alone])
    return _with_observation(classify(failures[0]), exceptions=()) if failures else None


def _with_observation(classified: Classified, **changed: object) -> Classified:
    """A classified failure with other fields of its observation."""
    failure = classified.failure
    observation = msgspec.structs.replace(failure.observation, **changed)
    return msgspec.structs.replace(classified, failure=msgspec.structs.replace(failure, observation=observation))


def _problem(case: str, group: Sequence[Occurrence], control: Control | None) -> Problem:
    first = next((one for one in group if one.stops), group[0])
    classified = first.classified
    seen, site = classified.failure.observation, classified.signature.site
    chain = chain_of(seen)
    own = own_caller(chain)
    about_data = data_dependent(classified.failure, control)
    texts = "\n".join([own.code if own is not None else "", *(one.message for one in seen.exceptions)])
    draws = own is not None and DRAWS.search(own.code) is not None
    if draws or (about_data is None and TYPES.search(texts)):
        about_data = False
    help_ = LOOP_REMEDY if loop_of(classified) else remedy(texts) if about_data is False else ""
    is_own = site.module == USER_CODE or classified.cause in ("user", "python-value", "refused") or bool(help_)
    return Problem(
        case,
        _with_observation(classified, guards=(), answered=(), graph=None, exceptions=_without_frames(seen)),
        tuple(dict.fromkeys(one.classified.failure.observation.stage for one in group if one.stops)),
        (own.owner if own is not None else YOURS) if is_own else torch_itself(),
        (classified.signature.key,),
        chain=chain,
        about_data=about_data,
        control=control,
        answers=tuple(dict.fromkeys(one.answer for one in group if one.answer is not None)),
        consequence=first.consequence and about_data is not False,
        remedy=help_,
    )


def _without_frames(seen: Observation) -> tuple[ExceptionInfo, ...]:
    """The exceptions. Where the guard has its stacks, those of the exceptions say nothing more."""
    frames: tuple[Frame, ...] = ()
    replaced = (msgspec.structs.replace(one, frames=frames, traced=frames) for one in seen.exceptions)
    return tuple(replaced) if seen.raised is not None else seen.exceptions


def chain_of(seen: Observation) -> tuple[Caller, ...]:
    """The lines of the user's code and of packages that lead to a failure, outermost first, each once."""
    python, traced = _stacks_of(seen)
    frames = [*traced, *inside_tracer(python)] if traced else python
    callers = [
        Caller(one.file, one.line, one.function, one.code.strip(), owner_of(one.file))
        for one in frames
        if not is_framework(one) and not is_python_plumbing(one)
    ]
    return tuple(dict.fromkeys(one for one in callers if one.owner.kind in ("yours", "package")))


def _stacks_of(seen: Observation) -> tuple[tuple[Frame, ...], tuple[Frame, ...]]:
    """The Python stack, and the stack that dynamo traced, of a failure, or of the guard for which torch.compile
    compiled again.
    """
    repeated = seen.measurement(Repeated)
    decided = seen.raised or (repeated.failed if repeated is not None else None)
    if decided is not None:
        return decided.python, decided.traced
    return (
        next((one.frames for one in reversed(seen.exceptions) if one.frames), ()),
        next((one.traced for one in seen.exceptions if one.traced), ()),
    )


def own_caller(chain: tuple[Caller, ...]) -> Caller | None:
    """The innermost line."""
    return chain[-1] if chain else None


def _is_the_same(one: Problem, other: Problem) -> bool:
    """Whether captures report one problem under two signatures: at one line and one piece of code, in other stages."""
    anchors = {one.classified.signature.anchor, other.classified.signature.anchor}
    if set(one.stages) & set(other.stages) or one.consequence or len(anchors) > 1:
        return False
    mine, theirs = own_caller(one.chain), own_caller(other.chain)
    return mine is not None and theirs is not None and (mine.file, mine.line) == (theirs.file, theirs.line)


def _badness(problem: Problem) -> tuple[bool, bool, bool, bool, int]:
    """Sort key: a wrong result first, then what ends a process, then what stops most captures, then consequences, and
    what is minor last.
    """
    row = row_of(problem.kind)
    return (problem.is_minor, problem.consequence, not row.wrong, not row.deadly, -len(problem.stages))
