"""The search for changes: the least harmful first, each tried, the result as small as it can be."""

from __future__ import annotations

import ast
import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import msgspec

from ddefuzz.checking.attempt import Attempt, fixed
from ddefuzz.checking.candidates import Proposed, Sources, proposed, with_checks
from ddefuzz.checking.change_summary import error_of, loop_of, origin_line, own_line, summary
from ddefuzz.checking.change_text import compiles, replaced
from ddefuzz.checking.changes import (
    DECIDED,
    HARM,
    Advice,
    Attempted,
    Candidate,
    Change,
    ChangedFile,
    ChangeKind,
    Described,
    Trial,
    Trialed,
)
from ddefuzz.checking.conditions import fixes_a_size, meaning
from ddefuzz.checking.diffs import hunks, owner_of, places, replacement, unified, without_hunk
from ddefuzz.checking.refusals import refusals
from ddefuzz.checking.rewrites import PROBE, VALUE, probe_of, with_value
from ddefuzz.checking.wrapper import in_use, wrapper
from ddefuzz.classify.classify import Classified
from ddefuzz.execute.protocol import CallableSubject, ProgramSubject, Stage, Subject
from ddefuzz.instrument.events import PROGRAM_FILE
from ddefuzz.oracles.capture import classify, judge

MOST_TRIES = 60
"""The number of changes that are tried at most for one subject."""

DEEPEST = 4
"""The number of changes that are combined at most."""

ENOUGH = 2
"""The search ends after this many changes that pass."""

MOST_SAID = 4
"""The number of changes that are listed where none helps."""

UNBOUND = ("NameError", "UnboundLocalError")
"""What a promise raises if the code that makes its size is not run before it. This says nothing to a reader."""

BROKEN = "Expected cond to be True"
"""What `torch._check` says without a message of its own."""

Clock = Callable[[], float]


class Search:
    """One search for changes of a subject. `seconds` is its budget, `failing` the keys of what fails in the stages."""

    def __init__(
        self,
        subject: Subject,
        described: Described,
        stages: tuple[Stage, ...],
        trial: Trial,
        seconds: float,
        clock: Clock = time.monotonic,
        failing: Sequence[str] = (),
    ) -> None:
        self.subject = subject
        self.failing = tuple(failing)
        self.described = described
        self.stages = stages
        self.trial = trial
        self.clock = clock
        self.ends = clock() + seconds
        self.changes: list[Change] = []
        self.tried: list[Attempted] = []
        self.remaining = ""
        self.stopped = False
        self.deepest = 0
        self.passing: list[tuple[Change, Candidate]] = []
        self._seen: set[tuple[object, ...]] = set()
        self._offered: list[tuple[Change, frozenset[str]]] = []
        self._order = count()

    def run(self, failure: Classified) -> None:
        """Collect the changes that pass, and what was tried."""
        program = self.subject.text if isinstance(self.subject, ProgramSubject) else ""
        queue: list[tuple[float, int, int, Attempt]] = []
        self._extend(queue, Attempt(Sources(program), failure))
        best: float | None = None
        while queue and len(self.changes) < ENOUGH and len(self.tried) < MOST_TRIES and self.clock() < self.ends:
            rank, _, _, attempt = heapq.heappop(queue)
            if best is not None and rank > best:
                break
            change, left, refused = self._try(attempt)
            if change is not None:
                self._offer(change, refused)
                best = max(rank, change.harm) if best is None else max(best, rank, change.harm)
            elif left is not None and len(attempt.edits) < DEEPEST and _moved(attempt.failure, left):
                self._note_remaining(attempt, left)
                self._extend(queue, attempt._replace(failure=left))
        self.stopped = bool(queue) and self.clock() >= self.ends
        self.changes.sort(key=lambda one: (one.harm, len(one.refuses), len(one.where)))

    def _extend(self, queue: list[tuple[float, int, int, Attempt]], attempt: Attempt) -> None:
        """Queue what may help with the failure that an attempt leaves."""
        for one in proposed(attempt.failure, attempt.sources, self.described):
            extended = self._applied(attempt, one)
            if extended is None:
                continue
            key = (*sorted(meaning(text) for text in extended.sources.changed.values()), *extended.promises)
            if key not in self._seen:
                self._seen.add(key)
                # What got past a failure goes on first: what it does not need is left out once it passes.
                heapq.heappush(queue, (extended.rank, -len(extended.edits), next(self._order), extended))

    def _applied(self, attempt: Attempt, one: Proposed) -> Attempt | None:
        attempt = attempt._replace(met=(*attempt.met, attempt.failure.signature.key))
        edits = (*attempt.edits, one)
        if one.path:
            return attempt._replace(sources=attempt.sources.with_text(one.path, one.edit.source), edits=edits)
        condition = one.edit.condition
        if fixes_a_size(condition):
            one = one._replace(edit=one.edit._replace(kind="example-value"))
            edits = (*attempt.edits, one)
        if self._is_own(self.described.file):
            sources = with_checks(attempt.sources, self.described, condition)
            if sources is not None:
                return attempt._replace(sources=sources, edits=edits)
        if not self.described.positional and not self.described.keywords:
            return None
        return attempt._replace(edits=edits, promises=(*attempt.promises, condition))

    def _is_own(self, path: str) -> bool:
        return bool(path) and not owner_of(path)

    def _offer(self, change: Change, refused: frozenset[str]) -> None:
        """Keep a change, unless another one of its kind does the same or refuses less."""
        alike = [(one, less) for one, less in self._offered if one.kind == change.kind]
        if not any(one.does == change.does or (one.kind != "rewrite" and less <= refused) for one, less in alike):
            self._offered.append((change, refused))
            self.changes.append(change)

    def _try(self, attempt: Attempt) -> tuple[Change | None, Classified | None, frozenset[str]]:
        """The change if it passes, and the inputs that it refuses; else the failure that it leaves."""
        if VALUE in attempt.edits[-1].edit.condition:
            known = self._with_value(attempt)
            if known is None:
                return None, None, frozenset()
            attempt = known
        tried = self.trial(self._candidate(attempt))
        ended, left = self._ended(attempt, tried)
        self.tried.append(Attempted(attempt.does, ended or "passes"))
        if ended:
            return None, left, frozenset()
        attempt, tried = self._smallest(attempt, tried)
        change = self._change(attempt, tried)
        self.passing.append((change, self._candidate(attempt)))
        return change, None, frozenset(one.inputs for one in tried.compared if one.refused)

    def _with_value(self, attempt: Attempt) -> Attempt | None:
        """The attempt with the value of the example, which a changed source raises. None if it does not get there."""
        last = attempt.edits[-1]
        probing = attempt._replace(sources=attempt.sources.with_text(last.path, probe_of(last.edit)))
        compared = self.trial(self._candidate(probing)).compared
        _, found, value = (compared[0].changed if compared else "").partition(PROBE)
        if not found:
            return None
        edit = with_value(last.edit, value)
        sources = attempt.sources.with_text(last.path, edit.source)
        return attempt._replace(sources=sources, edits=(*attempt.edits[:-1], Proposed(last.path, edit)))

    def _ended(self, attempt: Attempt, tried: Trialed) -> tuple[str, Classified | None]:
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
        if not tried.observations:
            refused = next((one for one in tried.compared if one.refused), None)
            said = f"for {refused.inputs}: {refused.changed}" if refused is not None else "in eager"
            return f"raises where the original returns, {said}", None
        last = tried.observations[-1]
        if last.outcome != "ok":
            failures = judge([last])
            left = classify(failures[0]) if failures else None
            return f"still fails in {last.stage}: {said_of(left) if left else last.reason}", left
        if len(tried.observations) < len(self.stages):
            return "was not captured in all stages", None
        if example is not None and example.captured:
            return f"the captured program refuses the example: {example.captured[0][1]}", None
        return "", None

    def _candidate(self, attempt: Attempt) -> Candidate:
        promises = attempt.promises
        return Candidate(
            self.subject,
            self.stages,
            tuple(self._files(attempt)),
            wrapper(self.described, promises) if promises else "",
            tuple(self._probed(attempt)),
            may_refuse=attempt.harm > 1,
        )

    def _files(self, attempt: Attempt) -> Iterator[ChangedFile]:
        for path, text in attempt.sources.changed.items():
            before = attempt.sources.original(path)
            if before is not None and before != text:
                yield ChangedFile(path, before, text)

    def _probed(self, attempt: Attempt) -> Iterator[ChangedFile]:
        """The original files in which the first decision that the change removes is reported."""
        for one in attempt.edits[:1]:
            before = attempt.sources.original(one.path)
            if one.edit.removed is not None and before is not None and one.path != PROGRAM_FILE:
                text = f"{DECIDED}({ast.unparse(one.edit.removed)})"
                yield ChangedFile(one.path, before, replaced(before, one.edit.removed, text))

    def _smallest(self, attempt: Attempt, tried: Trialed) -> tuple[Attempt, Trialed]:
        """The attempt without the parts that it does not need: one at a time is left out, as long as it passes."""
        if len(attempt.edits) < 2:
            return attempt, tried
        at = 0
        smaller = list(self._parts(attempt))
        while at < len(smaller) and self.clock() < self.ends:
            found = self.trial(self._candidate(smaller[at]))
            if not self._ended(smaller[at], found)[0]:
                attempt, tried = smaller[at], found
                smaller, at = list(self._parts(attempt)), 0
            else:
                at += 1
        return attempt, tried

    def _parts(self, attempt: Attempt) -> Iterator[Attempt]:
        """The attempt with one part less: a promise, or a changed place of a file."""
        for condition in attempt.promises:
            kept = [
                pair for pair in zip(attempt.edits, attempt.met, strict=True) if pair[0].edit.condition != condition
            ]
            yield attempt._replace(
                promises=tuple(one for one in attempt.promises if one != condition),
                edits=tuple(edit for edit, _ in kept),
                met=tuple(key for _, key in kept),
            )
        for file in self._files(attempt):
            number = hunks(file)
            if number + len(attempt.promises) < 2:
                continue
            for hunk in range(number):
                less = without_hunk(file, hunk)
                if compiles(less.after):
                    yield attempt._replace(sources=attempt.sources.with_text(file.path, less.after), met=())

    def _change(self, attempt: Attempt, tried: Trialed) -> Change:
        files = list(self._files(attempt))
        kind, refuses = self._judged(attempt, tried)
        own = [one for one in files if not owner_of(one.path)]
        outside = [one for one in files if owner_of(one.path)]
        paste = [text for one in outside if (text := replacement(one))]
        if attempt.promises:
            text = wrapper(self.described, attempt.promises)
            used = self._wrapped(attempt, text)
            own = [*(one for one in own if used is None or one.path != used.path), *([used] if used else [])]
            paste = paste if used is not None else [*paste, text]
        return Change(
            kind=kind,
            harm=HARM[kind],
            does=attempt.does,
            diff=unified([*own, *outside]),
            where=tuple(places([*own, *outside])),
            paste="\n".join(paste),
            passes=self.stages,
            refuses=refuses,
            agrees=sum(not one.original and not one.refused for one in tried.compared),
            files=tuple(own),
            fixes=fixed(attempt, self.failing),
        )

    def _wrapped(self, attempt: Attempt, text: str) -> ChangedFile | None:
        """The user's file with the subject wrapped; None if the file does not make it in a form that can be changed."""
        subject = self.subject
        if not isinstance(subject, CallableSubject) or subject.name is None:
            return None
        path = str(Path(subject.path).resolve())
        before, source = attempt.sources.original(path), attempt.sources.text(path)
        after = in_use(source, subject.name, text) if source is not None else None
        return ChangedFile(path, before, after) if before is not None and after is not None else None

    def _judged(self, attempt: Attempt, tried: Trialed) -> tuple[ChangeKind, tuple[str, ...]]:
        """What kind of change it turned out to be, and which inputs it refuses, in words."""
        kinds: dict[int, ChangeKind] = {HARM[one.edit.kind]: one.edit.kind for one in attempt.edits}
        kind = kinds[attempt.harm]
        taken = sum(not one.original for one in tried.compared)
        refused = [one for one in tried.compared if one.refused]
        promises = [one.edit for one in attempt.edits if one.edit.condition]
        said = refusals(promises, refused, taken)
        removed = [one.edit for one in attempt.edits if one.edit.removed is not None]
        if kind == "rewrite" and refused:
            kind = "inside-promise"
            said.append(f"the captured program refuses inputs that eager takes, such as {refused[0].inputs}")
        if kind == "rewrite" and removed and len(tried.sides) < 2:
            kind = "inside-promise"
            side = (
                f" (it was {str(tried.sides[0]).lower()} for all inputs tried that eager takes)" if tried.sides else ""
            )
            test = ast.unparse(removed[0].removed) if removed[0].removed is not None else ""
            said.append(f"results may be others where `{test}` has the other outcome{side}")
        return kind, tuple(dict.fromkeys(said))

    def _note_remaining(self, attempt: Attempt, left: Classified) -> None:
        if len(attempt.edits) > self.deepest:
            self.deepest = len(attempt.edits)
            self.remaining = f"after `{attempt.does}` the next failure is {said_of(left)}"


def advise(
    failures: Sequence[Classified],
    subject: Subject,
    described: Described,
    stages: tuple[Stage, ...],
    trial: Trial,
    seconds: float,
    clock: Clock = time.monotonic,
) -> Advice:
    """Advice on the failures of a subject: the first is explained, and changes pass all `stages`.

    Stages that failed are captured first.
    """
    first = next(filter(may_help, failures), failures[0])
    explained = explain(first)
    if not may_help(first):
        return explained
    failing = dict.fromkeys(one.failure.observation.stage for one in failures)
    keys = [one.signature.key for one in failures]
    search = Search(subject, described, tuple(dict.fromkeys([*failing, *stages])), trial, seconds, clock, keys)
    search.run(first)
    if search.changes:
        return msgspec.structs.replace(explained, changes=tuple(search.changes))
    said = [one for one in search.tried if not any(name in one.ended for name in UNBOUND)]
    return msgspec.structs.replace(
        explained, tried=tuple(said[:MOST_SAID]), remaining=search.remaining, stopped=search.stopped
    )


def explain(failure: Classified) -> Advice:
    """What happened, without changes."""
    raised = failure.failure.observation.raised
    origins = tuple(map(origin_line, raised.symbols)) if raised is not None else ()
    return Advice(summary(failure), own_line(failure.failure.observation), origins)


def may_help(failure: Classified) -> bool:
    """Whether changes of code may help with a failure. No promise about sizes helps with a loop."""
    if loop_of(failure):
        return False
    return failure.signature.kind in {"dde", "pending-unbacked", "data-dependent-output"} or (
        failure.rule == "branch-on-a-tensor"
    )


def said_of(failure: Classified) -> str:
    """A failure in a few words: its guard, or its site, and the user's line."""
    raised = failure.failure.observation.raised
    what = f"`{raised.expression}`" if raised is not None else error_of(failure)
    frame = own_line(failure.failure.observation)
    return f"{what} at {frame.file}:{frame.line}" if frame is not None else what


def _moved(before: Classified, after: Classified) -> bool:
    """Whether a change got past the first guard, to another one."""
    one, two = before.failure.observation.raised, after.failure.observation.raised
    if one is None or two is None:
        return before.signature != after.signature
    return (before.signature, one.expression) != (after.signature, two.expression)
