"""Advice about a failure: where the sizes come from, and changes to the user's code that were tried and helped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from ddefuzz.classify.anchor import python_anchor
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.plumbing import is_framework
from ddefuzz.classify.site import USER_SITE, inside_tracer, user_frame
from ddefuzz.execute.protocol import Observation, Stage
from ddefuzz.instrument.events import Frame, SymbolOrigin
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.report.rewrites import (
    DECISIONS,
    PROBE,
    QUESTIONS,
    Edit,
    Place,
    assume_size,
    assume_value,
    locate,
    meaning,
    probe,
)
from ddefuzz.report.symbols import named, parameters_at

MOST_TRIES = 12
"""The number of changed sources that are captured for one failure."""

DEEPEST = 3
"""The number of changes that are combined."""

ENOUGH = 2
"""The search ends after this many suggestions that pass wherever the original failed."""

Trial: TypeAlias = Callable[[str, Stage], Observation]
"""Runs a changed source in a stage."""


class Suggestion(msgspec.Struct, frozen=True):
    """A change that was tried: insert `code` before `line` of the user's file, or change that line.

    `assumes` is what must hold for the change to be right; it holds for the example inputs. `passes` and
    `fails` are the stages that failed before.
    """

    line: int
    code: tuple[str, ...]
    does: str
    assumes: str
    passes: tuple[Stage, ...]
    fails: tuple[Stage, ...] = ()


class Advice(msgspec.Struct, frozen=True):
    """What happened in a sentence, the user's line, where each size comes from, and what was tried."""

    summary: str
    line: Frame | None = None
    origins: tuple[str, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    tried: int = 0


class _Attempt(NamedTuple):
    """A source in the search, the failure that it still shows, and the changes that led to it."""

    source: str
    failure: Classified
    edits: tuple[Edit, ...] = ()


def advise(failures: Sequence[Classified], file: str, source: str, trial: Trial) -> Advice:
    """Advice on failures of one user's line in several stages. The first stage is explained.

    `source` is the text of `file`, by its name in frames. Only changes that pass eager, and then pass a stage
    that failed, are suggested.
    """
    first = failures[0]
    frame = own_line(first.failure.observation)
    raised = first.failure.observation.raised
    origins = tuple(map(_origin_line, raised.symbols)) if raised is not None else ()
    if frame is None or not _is_in(frame, file) or not _may_help(first):
        return Advice(_summary(first), frame, origins)
    stages = tuple(dict.fromkeys(one.failure.observation.stage for one in failures))
    search = _Search(file, stages, trial)
    original = _Attempt(source, first)
    search.run(original, original)
    whole = [suggestion for suggestion in search.found if not suggestion.fails]
    return Advice(_summary(first), frame, origins, tuple(whole or search.found), search.tries)


def at_own_line(failed: Classified) -> bool:
    """Whether the site is the user's own line, or an op that the line calls."""
    site = failed.signature.site
    called = site.language == "op" and failed.frame is not None and not is_framework(failed.frame)
    return site == USER_SITE or called


def own_line(observation: Observation) -> Frame | None:
    """The innermost frame of the user's own code in a failure."""
    raised = observation.raised
    stacks = [inside_tracer(raised.python), raised.traced] if raised is not None else []
    for exception in observation.exceptions:
        stacks += [exception.traced, inside_tracer(exception.frames)]
    return next((frame for stack in stacks if (frame := user_frame(stack)) is not None), None)


class _Search:
    """Tries edits depth first: a change that moves the failure elsewhere is extended before its siblings."""

    def __init__(self, file: str, stages: tuple[Stage, ...], trial: Trial) -> None:
        self.file = file
        self.stages = stages
        self.trial = trial
        self.tries = 0
        self.found: list[Suggestion] = []
        self._seen: set[str] = set()
        self._said: set[str] = set()

    def run(self, attempt: _Attempt, original: _Attempt) -> None:
        """Collect in `found` what helps, from this attempt on."""
        for edit in self._edits(attempt):
            if self._is_enough() or edit.source in self._seen or meaning(edit.source) in self._said:
                continue
            self._seen.add(edit.source)
            tried = attempt._replace(source=edit.source, edits=(*attempt.edits, edit))
            passes, remaining = self._try(tried)
            if passes:
                if passes == self.stages:
                    self._said.add(meaning(edit.source))
                self.found.append(self._suggestion(original, tried, passes))
            elif remaining is not None and len(tried.edits) < DEEPEST and _moved(attempt.failure, remaining):
                self.run(tried._replace(failure=remaining), original)

    def _is_enough(self) -> bool:
        return self.tries >= MOST_TRIES or sum(not suggestion.fails for suggestion in self.found) >= ENOUGH

    def _try(self, attempt: _Attempt) -> tuple[tuple[Stage, ...], Classified | None]:
        """The stages that pass; else the failure that the first one shows now."""
        if self.trial(attempt.source, "eager").outcome != "ok":
            return (), None
        self.tries += 1
        first = self.trial(attempt.source, self.stages[0])
        failures = judge([first])
        if failures or first.outcome != "ok":
            return (), classify(failures[0]) if failures else None
        others = [stage for stage in self.stages[1:] if self.trial(attempt.source, stage).outcome == "ok"]
        return (self.stages[0], *others), None

    def _edits(self, attempt: _Attempt) -> Iterator[Edit]:
        frame = own_line(attempt.failure.failure.observation)
        if frame is None or not _is_in(frame, self.file):
            return
        raised = attempt.failure.failure.observation.raised
        anchor = python_anchor(frame)
        question = raised.expression if raised is not None else ""
        plain = locate(attempt.source, frame, anchor, question, {})
        if plain is None:
            return
        if at_own_line(attempt.failure):
            yield from (edit for rewrite in DECISIONS for edit in rewrite(plain))
        if raised is None:
            return
        known = named(attempt.source, (origin for origin in raised.symbols if _made_in(origin, self.file)))
        moved = msgspec.structs.replace(frame, line=known.line(frame.line))
        places = [locate(known.source, moved, anchor, question, known.sizes)]
        inputs = [origin.symbol for origin in raised.symbols if origin.frame is None]
        for parameter in parameters_at(attempt.source, frame.line) if len(inputs) == 1 else ():
            places += [plain._replace(sizes={inputs[0]: f"{parameter}.shape[{dim}]"}) for dim in (0, 1)]
        for place in filter(None, places):
            yield from (edit for rewrite in QUESTIONS for edit in rewrite(place))
            if not at_own_line(attempt.failure):
                yield from assume_size(place)
            yield from self._at_its_value(place)

    def _at_its_value(self, place: Place) -> Iterator[Edit]:
        """Assume that a number always has the value of the example inputs: the last resort if a number is
        required.
        """
        probing = probe(place)
        if probing is None:
            return
        exceptions = self.trial(probing, "eager").exceptions
        if exceptions and exceptions[0].message.startswith(PROBE):
            edit = assume_value(place, exceptions[0].message.removeprefix(PROBE))
            if edit is not None:
                yield edit

    def _suggestion(self, start: _Attempt, attempt: _Attempt, passes: tuple[Stage, ...]) -> Suggestion:
        frame = own_line(start.failure.failure.observation)
        return Suggestion(
            line=frame.line if frame is not None else 0,
            code=new_lines(start.source, attempt.source),
            does="; ".join(dict.fromkeys(edit.does for edit in attempt.edits)),
            assumes="; ".join(dict.fromkeys(edit.assumes for edit in attempt.edits)),
            passes=passes,
            fails=tuple(stage for stage in self.stages if stage not in passes),
        )


def new_lines(before: str, after: str) -> tuple[str, ...]:
    """The lines of a changed source that the original has not, as they are written there, without indent."""
    old = before.splitlines()
    return tuple(line.strip() for line in after.splitlines() if line not in old)


def _moved(before: Classified, after: Classified) -> bool:
    """Whether a change got past the first guard, to another one."""
    one, two = before.failure.observation.raised, after.failure.observation.raised
    if one is None or two is None:
        return before.signature != after.signature
    return (before.signature, one.expression) != (after.signature, two.expression)


def _may_help(failure: Classified) -> bool:
    return failure.signature.kind == "dde" or failure.rule == "branch-on-a-tensor"


def _is_in(frame: Frame, file: str) -> bool:
    return Path(frame.file).name == Path(file).name


def _made_in(origin: SymbolOrigin, file: str) -> bool:
    return origin.frame is not None and _is_in(origin.frame, file)


def _origin_line(origin: SymbolOrigin) -> str:
    if origin.frame is None:
        return f"{origin.symbol} is an unbacked size of an input"
    by = f"`{origin.op}`" if origin.op else "an op"
    return f"{origin.symbol} comes from {by} at {origin.frame.file}:{origin.frame.line}: {origin.frame.code.strip()}"


def _summary(failure: Classified) -> str:
    signature, raised = failure.signature, failure.failure.observation.raised
    guard = f", guard `{raised.expression}`" if raised is not None else ""
    wanted = f"`{raised.expression}`" if raised is not None else str(signature.site)
    match failure.cause:
        case "user" if raised is not None:
            return f"Your code branches on `{raised.expression}`, which is known only at run time."
        case "user":
            return "Your code branches on the value of a tensor, which is known only at run time."
        case "python-value":
            return f"Your code needs a Python bool or number that is computed from data: {wanted}."
        case "result-depends-on-data":
            return f"The rank, structure or meaning of the result depends on data ({signature.site}{guard})."
        case "refused":
            return f"Capture refuses this code by design or by a default option, for any sizes: {signature.anchor}."
        case "no-kernel":
            return f"{signature.site} has no fake kernel that capture can use: it is PyTorch's to add, or its author's."
        case "int-required":
            return f"The limitation is PyTorch's: {signature.site} needs a plain int{guard}. Worth an issue upstream."
        case "wrong-capture":
            return f"PyTorch captured something else than your code: {signature.site}. Worth an issue upstream."
        case "avoidable" | "unclassified" if raised is not None:
            return f"The error is PyTorch's: {signature.site} evaluates `{raised.expression}`. Worth an issue upstream."
        case "avoidable" | "unclassified":
            return f"The error is PyTorch's: it is raised at {signature.site} ({signature.anchor})."
