"""The search for changes: the least harmful first, each tried, the result as small as it can be."""

from __future__ import annotations

import ast
import heapq
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from ddefuzz.checking.candidates import Proposal, is_subscript, proposed, with_checks
from ddefuzz.checking.edits import ChangeKind, Edit, Sources, holds, meaning, numbers_in, opposite, parsed, unbound
from ddefuzz.checking.patch import (
    DECIDED,
    HARM,
    Advice,
    Candidate,
    Change,
    ChangedFile,
    Comparison,
    FailedAttempt,
    Fix,
    Interface,
    TrialResult,
    TryChange,
    hunks,
    in_use,
    line_before,
    places,
    replacement,
    unified,
    without_hunk,
    wrapper,
)
from ddefuzz.checking.problems import error_of, full_path, loop_of, own_line, package_of, summary
from ddefuzz.classify.cause import Classification
from ddefuzz.execute.protocol import CallableSubject, ProgramSubject, Stage, Subject
from ddefuzz.files import real_path
from ddefuzz.instrument.events import PROGRAM_FILE
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.syntax import compiles, replaced

MOST_TRIES = 60  # the number of changes that are tried at most for one subject
DEEPEST = 4  # the number of changes that are combined at most
ENOUGH = 2  # the search ends after this many changes that pass
MOST_SAID = 4  # the number of changes that are listed where none helps

UNBOUND = ("NameError", "UnboundLocalError")
"""What a promise raises if the code that makes its size is not run before it. This says nothing to a reader."""

BROKEN = "Expected cond to be True"  # what `torch._check` says without a message of its own

MOST_NUMBERS = 3  # of the conditions that a change is about


class Attempt(NamedTuple):
    """Changed sources, the edits and promises about inputs that led to them, and the failure that is left.

    `pasted` says that the wrapper with the promises is not written into the user's file. `at` is the user's line of the
    failure.
    """

    sources: Sources
    failure: Classification
    edits: tuple[Proposal, ...] = ()
    pasted: bool = False
    at: str = ""

    @property
    def promises(self) -> tuple[str, ...]:
        """What a wrapper promises about inputs."""
        return tuple(dict.fromkeys(one.edit.condition for one in self.edits if not one.path))

    @property
    def harm(self) -> int:
        """That of its most harmful edit."""
        return max((HARM[one.edit.kind] for one in self.edits), default=0)

    @property
    def rank(self) -> float:
        """The order of trying. A change of a package's code comes after promises about inputs, which leave it alone."""
        outside = any(one.path and package_of(one.path) for one in self.edits)
        return max(self.harm, HARM["input-promise"] + 0.5) if outside else self.harm

    @property
    def numbers(self) -> tuple[int | float, ...]:
        """Those in the conditions that it is about."""
        edits = [one.edit for one in self.edits]
        conditions = [ast.unparse(one.removed) for one in edits if one.removed is not None]
        conditions += [one.condition for one in edits] + [one.question for one in self.edits]
        return tuple(dict.fromkeys(number for one in conditions for number in numbers_in(one)))[:MOST_NUMBERS]

    @property
    def does(self) -> str:
        """The edits in words."""
        return "; ".join(dict.fromkeys(one.edit.does for one in self.edits))

    def line_of(self, failure: Classification) -> str:
        """The user's line at which a capture of the changed files fails, with its number before the change."""
        frame = own_line(failure.failure.observation)
        if frame is None:
            return ""
        changed = next((one for one in self.files() if one.path == full_path(frame.file)), None)
        return f"{frame.file}:{line_before(changed, frame.line) if changed is not None else frame.line}"

    def files(self) -> Iterator[ChangedFile]:
        """The files that it changes."""
        for path, text in self.sources.changed.items():
            before = self.sources.original(path)
            if before is not None and before != text:
                yield ChangedFile(path, before, text)

    def parts(self) -> Iterator[Attempt]:
        """The attempt with one part less: a promise, or a changed place of a file."""
        for condition in self.promises:
            yield self._replace(edits=tuple(one for one in self.edits if one.edit.condition != condition))
        for file in self.files():
            number = len(hunks(file))
            for hunk in range(number if number + len(self.promises) > 1 else 0):
                less = without_hunk(file, hunk)
                if compiles(less.after):
                    # It is not known whose edit that was.
                    edits = tuple(one._replace(key="") for one in self.edits)
                    yield self._replace(sources=self.sources.with_text(file.path, less.after), edits=edits)

    def fixes(self, failing: Sequence[str]) -> tuple[Fix, ...]:
        """What each part of a change fixes that passes all stages. `failing` are the keys of the failures without it.

        A single part fixes all of them. Of several parts, each fixes the failures that it was proposed for: the capture
        with the parts before it ended there, and the capture with it does not.
        """
        parts: dict[str, dict[str, None]] = {}
        for attempted in self.edits:
            if attempted.key:
                parts.setdefault(attempted.edit.does, {})[attempted.key] = None
        if len(parts) > 1:
            return tuple(Fix(does, tuple(keys)) for does, keys in parts.items())
        keys = dict.fromkeys([*failing, *(one.key for one in self.edits if one.key)])
        keeps_code = all(HARM[one.edit.kind] > 1 and one.edit.removed is None for one in self.edits)
        return (Fix(self.does, tuple(keys), continued=keeps_code and bool(parts)),)


class PassingChange(NamedTuple):
    """A change that passes stages, the candidate that was tried, and the inputs that it refuses."""

    change: Change
    candidate: Candidate
    refuses: frozenset[str]


@dataclass(slots=True)
class Search:
    """One search for changes of a subject. `seconds` is its budget of CPU time, of which `spent` is gone, `failing` the
    keys of what fails in the stages. `weaker` is a change that passes some of the stages.
    """

    subject: Subject
    described: Interface
    stages: tuple[Stage, ...]
    trial: TryChange
    seconds: float
    failing: Sequence[str] = ()
    spent: float = 0.0
    offers: list[PassingChange] = field(default_factory=list)
    weaker: PassingChange | None = None
    tried: list[FailedAttempt] = field(default_factory=list)
    remaining: str = ""
    stopped: bool = False
    _deepest: int = 0
    _seen: set[tuple[object, ...]] = field(default_factory=set)
    _queue: list[tuple[float, int, int, Attempt]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=count)

    def run(self, failure: Classification) -> None:
        """Collect the changes that pass, the least harmful first, and what was tried."""
        original = Attempt(Sources(self.subject.text if isinstance(self.subject, ProgramSubject) else ""), failure)
        self._extend(original._replace(at=original.line_of(failure)))
        best: float | None = None
        while self._queue and len(self.offers) < ENOUGH and len(self.tried) < MOST_TRIES and not self._is_over:
            rank, _, _, attempt = heapq.heappop(self._queue)
            if best is not None and rank > best:
                break
            outcome = self._try(attempt)
            if isinstance(outcome, PassingChange):
                self._offer(outcome)
                best = max(rank, outcome.change.harm, best or 0)
            elif outcome is not None and len(attempt.edits) < DEEPEST and _moved(attempt, outcome):
                if len(attempt.edits) > self._deepest:
                    self._deepest = len(attempt.edits)
                    self.remaining = (
                        f"after `{attempt.does}` the next failure is {said_of(outcome, attempt.line_of(outcome))}"
                    )
                self._extend(attempt._replace(failure=outcome, at=attempt.line_of(outcome)))
        self.stopped = bool(self._queue) and self._is_over
        self.offers.sort(key=lambda one: (one.change.harm, len(one.change.refuses), len(one.change.where)))

    def _extend(self, attempt: Attempt) -> None:
        """Queue what may help with the failure that an attempt leaves."""
        for proposal in proposed(attempt.failure, attempt.sources, self.described):
            extended = self._applied(attempt, proposal)
            if extended is None:
                continue
            key = (*sorted(meaning(text) for text in extended.sources.changed.values()), *extended.promises)
            if key not in self._seen:
                self._seen.add(key)
                # What got past a failure goes on first: what it does not need is left out once it passes.
                heapq.heappush(self._queue, (extended.rank, -len(extended.edits), next(self._order), extended))

    def _applied(self, attempt: Attempt, proposal: Proposal) -> Attempt | None:
        if proposal.path:
            sources = attempt.sources.with_text(proposal.path, proposal.edit.source)
            return attempt._replace(sources=sources, edits=(*attempt.edits, proposal))
        file = self.described.file
        checked = None
        if file and not package_of(file):
            checked = with_checks(attempt.sources, self.described, proposal.edit.condition)
        if checked is not None:
            return attempt._replace(sources=checked, edits=(*attempt.edits, proposal._replace(path=file)))
        if not self.described.positional and not self.described.keywords:
            return None
        return attempt._replace(edits=(*attempt.edits, proposal))

    def _offer(self, passing: PassingChange) -> None:
        """Keep a change, unless another one of its kind does the same or refuses less."""
        change = passing.change
        alike = [one for one in self.offers if one.change.kind == change.kind]
        if not any(
            one.change.does == change.does or (change.kind != "rewrite" and one.refuses <= passing.refuses)
            for one in alike
        ):
            self.offers.append(passing)

    @property
    def _is_over(self) -> bool:
        return self.spent >= self.seconds

    def _trial(self, attempt: Attempt) -> TrialResult:
        for file in (one for one in attempt.files() if one.path != PROGRAM_FILE):
            if names := unbound(file.after) - unbound(file.before):
                return TrialResult(problem=f"uses a name that the file does not import: {', '.join(sorted(names))}")
        tried = self.trial(self._candidate(attempt))
        self.spent += tried.cpu_seconds
        return tried

    def _try(self, attempt: Attempt) -> PassingChange | Classification | None:
        """The change if it passes; else the failure that it leaves, if it is known."""
        tried = self._trial(attempt)
        if attempt.promises and tried.compared and tried.compared[0].changed and self._wrapped(attempt) is not None:
            attempt = attempt._replace(pasted=True)  # the file does not use the model as it was taken to do
            tried = self._trial(attempt)
        ended, left = self._ended(attempt, tried)
        self.tried.append(FailedAttempt(attempt.does, ended or "passes"))
        if ended:
            if left is not None:
                self._keep_weaker(attempt, tried, ended)
            return left
        attempt, tried = self._smallest(attempt, tried)
        return self._passing(attempt, tried)

    def _passing(self, attempt: Attempt, tried: TrialResult, fails: str = "") -> PassingChange:
        refused = frozenset(one.inputs for one in tried.compared if one.refused)
        return PassingChange(self._change(attempt, tried, fails), self._candidate(attempt), refused)

    def _keep_weaker(self, attempt: Attempt, tried: TrialResult, fails: str) -> None:
        """Keep a change that passes more stages than any other one, but not all."""
        passed = sum(one.outcome == "ok" for one in tried.observations)
        if passed == len(tried.observations) or not tried.agrees:
            return
        if passed > (len(self.weaker.change.passes) if self.weaker is not None else 0):
            self.weaker = self._passing(attempt, tried, fails)

    def _ended(self, attempt: Attempt, tried: TrialResult) -> tuple[str, Classification | None]:
        """Why a change does not help, empty if it does, and the failure that it leaves."""
        if tried.problem:
            return tried.problem, None
        example = tried.compared[0] if tried.compared else None
        if example is not None and example.changed:
            if BROKEN in example.changed:
                return "is not true for the example", None
            return f"raises for the example in eager: {example.changed}", None
        wrong = next((one for one in tried.compared if one.differs), None)
        if wrong is not None:
            return f"other results for {wrong.inputs}: {wrong.differs}", None
        other = next((one for one in tried.compared if one.refused and one.changed and BROKEN not in one.changed), None)
        if other is not None:
            return f"raises where the original returns, for {other.inputs}: {other.changed}", None
        if not tried.observations:
            refused = next((one for one in tried.compared if one.refused), None)
            where = f"for {refused.inputs}: {refused.changed}" if refused is not None else "in eager"
            return f"raises where the original returns, {where}", None
        last = tried.observations[-1]
        if last.outcome != "ok":
            failures = judge([last])
            left = classify(failures[0]) if failures else None
            why = said_of(left, attempt.line_of(left)) if left is not None else last.reason
            return f"still fails in {last.stage}: {why}", left
        if len(tried.observations) < len(self.stages):
            return "was not captured in all stages", None
        if example is not None and example.captured:
            return f"the captured program refuses the example: {example.captured[0][1]}", None
        return "", None

    def _candidate(self, attempt: Attempt) -> Candidate:
        """What to try. The first decision that it removes is reported in the original file."""
        probed: tuple[ChangedFile, ...] = ()
        first = attempt.edits[0] if attempt.edits else None
        if first is not None and first.edit.removed is not None and first.path != PROGRAM_FILE:
            before = attempt.sources.original(first.path)
            if before is not None:
                text = f"{DECIDED}({ast.unparse(first.edit.removed)})"
                probed = (ChangedFile(first.path, before, replaced(before, first.edit.removed, text)),)
        files, text = self._files(attempt)
        return Candidate(
            self.subject, self.stages, files, text, probed, may_refuse=attempt.harm > 1, numbers=attempt.numbers
        )

    def _files(self, attempt: Attempt) -> tuple[tuple[ChangedFile, ...], str]:
        """The files that change, and the wrapper that none of them has."""
        files = tuple(attempt.files())
        if not attempt.promises:
            return files, ""
        used = None if attempt.pasted else self._wrapped(attempt)
        if used is None:
            return files, wrapper(self.described, attempt.promises)
        return (*(one for one in files if one.path != used.path), used), ""

    def _smallest(self, attempt: Attempt, tried: TrialResult) -> tuple[Attempt, TrialResult]:
        """The attempt without the parts that it does not need: one at a time is left out, as long as it passes."""
        smaller = list(attempt.parts()) if len(attempt.edits) > 1 else []
        while smaller and not self._is_over:
            less = smaller.pop(0)
            result = self._trial(less)
            if not self._ended(less, result)[0]:
                attempt, tried, smaller = less, result, list(less.parts())
        return attempt, tried

    def _change(self, attempt: Attempt, tried: TrialResult, fails: str) -> Change:
        files, text = self._files(attempt)
        kind, refuses = _judged(attempt, tried)
        own = [one for one in files if not package_of(one.path)]
        outside = [one for one in files if package_of(one.path)]
        paste = [text for one in outside if (text := replacement(one))] + ([text] if text else [])
        return Change(
            kind=kind,
            harm=HARM[kind],
            does=attempt.does,
            diff=unified([*own, *outside]),
            where=tuple(places([*own, *outside])),
            paste="\n".join(paste),
            passes=tuple(one.stage for one in tried.observations if one.outcome == "ok"),
            refuses=refuses,
            agrees=sum(not one.original and not one.refused for one in tried.compared),
            files=tuple(own),
            fixes=attempt.fixes(self.failing),
            fails=fails,
            is_live=tried.is_live,
        )

    def _wrapped(self, attempt: Attempt) -> ChangedFile | None:
        """The user's file with the subject wrapped; None if the file does not make it in a form that can be changed."""
        subject = self.subject
        if not isinstance(subject, CallableSubject) or subject.name is None:
            return None
        path = str(real_path(subject.path))
        before, source = attempt.sources.original(path), attempt.sources.text(path)
        text = wrapper(self.described, attempt.promises)
        after = in_use(source, subject.name, text) if source is not None else None
        return ChangedFile(path, before, after) if before is not None and after is not None else None


def _judged(attempt: Attempt, tried: TrialResult) -> tuple[ChangeKind, tuple[str, ...]]:
    """What kind of change it turned out to be, and which inputs it refuses, in words."""
    edits = [one.edit for one in attempt.edits]
    kind = max((edit.kind for edit in edits), key=HARM.__getitem__)
    taken = sum(not one.original for one in tried.compared)
    refused = [one for one in tried.compared if one.refused]
    refuses = restrictions([edit for edit in edits if edit.condition], refused, taken)
    removed = next((edit.removed for edit in edits if edit.removed is not None), None)
    captured = [one for one in refused if not one.changed]
    if captured:
        kind = "inside-promise" if kind == "rewrite" else kind
        refuses.append(f"the captured program refuses inputs that eager takes, such as {captured[0].inputs}")
    if kind == "rewrite" and removed is not None and len(tried.sides) < 2:
        kind = "inside-promise"
        outcome = (
            f" (it was {str(tried.sides[0]).lower()} for all inputs tried that eager takes)" if tried.sides else ""
        )
        test = ast.unparse(removed)
        refuses.append(f"results may be others where `{test}` has the other outcome{outcome}")
    return kind, tuple(dict.fromkeys(refuses))


def advise(
    failures: Sequence[Classification],
    subject: Subject,
    described: Interface,
    stages: tuple[Stage, ...],
    trial: TryChange,
    seconds: float,
) -> Advice:
    """What helps with the failures of a subject: changes that pass all `stages`, or else one that passes some. At least
    one failure `may_help`. Changes are tried for `seconds` of CPU time.

    Stages that failed are captured first.
    """
    first = next(filter(may_help, failures))
    failing = dict.fromkeys(one.failure.observation.stage for one in failures)
    keys = [one.signature.key for one in failures]
    search = Search(subject, described, tuple(dict.fromkeys([*failing, *stages])), trial, seconds, keys)
    search.run(first)
    if search.offers:
        return Advice(summary(first), tuple(one.change for one in search.offers))
    tried = [one for one in search.tried if not any(name in one.ended for name in UNBOUND)]
    weaker = (search.weaker.change,) if search.weaker is not None else ()
    return Advice(summary(first), weaker, tuple(tried[:MOST_SAID]), search.remaining, search.stopped)


def may_help(failure: Classification) -> bool:
    """Whether changes of code may help with a failure. No promise about sizes helps with a loop."""
    if loop_of(failure):
        return False
    signature = failure.signature
    return (
        signature.kind in {"dde", "pending-unbacked", "data-dependent-output"}
        or failure.rule == "branch-on-a-tensor"
        or (signature.kind == "internal-error" and is_subscript(signature.site))
    )


def said_of(failure: Classification, line: str) -> str:
    """A failure in a few words: its guard, or its site, and the user's line."""
    raised = failure.failure.observation.raised
    what = f"`{raised.expression}`" if raised is not None else error_of(failure)
    return f"{what} at {line}" if line else what


def _moved(attempt: Attempt, after: Classification) -> bool:
    """Whether a change got past the failure that it was for, to another one."""
    before = attempt.failure
    guards = [one.failure.observation.raised for one in (before, after)]
    expressions = [guard.expression for guard in guards if guard is not None]
    if before.signature != after.signature or len(set(expressions)) > 1:
        return True
    last = attempt.edits[-1].edit  # the same question may be that of another line: of the next `len(kept)`
    return not last.condition and last.removed is None and attempt.at != attempt.line_of(after)


_LARGEST = 100_000  # sizes up to this one are tried


_NO_SIZE = re.compile(r"(\.shape\[\d+\]) <= 0$")  # no size is below 0


def restrictions(promises: Sequence[Edit], refused: Sequence[Comparison], taken: int) -> list[str]:
    """Which inputs promises refuse that eager takes, in words, with an example that breaks the promise.

    A promise that all sizes keep refuses nothing. `taken` is the number of sets of inputs that eager takes.
    """
    sentences, binding = [], [edit for edit in promises if not _holds_always(edit.condition)]
    for edit in binding:
        if refused:
            fitting = [one for one in refused if _breaks(edit.condition, one, only=len(binding) == 1)]
            example = f", which eager takes, such as {fitting[0].inputs}" if fitting else ""
            sentences.append(f"refuses inputs for which {_broken(edit.condition)}{example}")
    others = dict.fromkeys(_broken(edit.condition) for edit in binding)
    if others and not refused:
        none = f"none of the {taken} sets of inputs that eager takes is refused"
        sentences.append(f"refuses inputs for which {', or '.join(others)}; {none}")
    return sentences


def _breaks(promise: str, refused: Comparison, *, only: bool) -> bool:
    """Whether refused inputs break a promise. If that is not known: whether the only promise raises for them."""
    given: dict[str, int] = {}
    for part in refused.inputs.split(", "):  # such as `ids.shape[1] = mask.shape[1] = 0`
        *names, value = part.split(" = ")
        if value.isdigit():
            given |= dict.fromkeys(names, int(value))
    kept = holds(promise, given)
    return not kept if kept is not None else only and BROKEN in refused.changed


def _holds_always(promise: str) -> bool:
    """Whether a promise about one size holds for all, as `3 * x.shape[0] != 1` does: torch cannot decide that."""
    sizes, tree = _sizes(promise), parsed(promise)
    if len(sizes) != 1 or tree is None:
        return False
    numbers = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is int]
    largest = max(numbers, default=0) + 2
    return largest <= _LARGEST and all(holds(promise, dict.fromkeys(sizes, value)) for value in range(largest))


def _broken(promise: str) -> str:
    tree = parsed(promise)
    if not isinstance(tree, ast.Compare | ast.UnaryOp):
        return f"not ({promise})"
    return _NO_SIZE.sub(r"\1 == 0", ast.unparse(opposite(tree)))


def _sizes(promise: str) -> set[str]:
    tree = parsed(promise)
    return {
        ast.unparse(node)
        for node in (() if tree is None else ast.walk(tree))
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    }
