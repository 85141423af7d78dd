"""Measures what unbacked sizes cost a target: its versions, then the questions that decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from ddefuzz.checking.check import Target
from ddefuzz.cost.model import (
    QUESTION_KINDS,
    VERSIONS,
    Code,
    Cost,
    DrawTask,
    ExportCost,
    ExportTask,
    Look,
    LookTask,
    Question,
    QuestionEffect,
    TimeTask,
    Timing,
    VersionName,
)
from ddefuzz.execute.pool import LostTask, Pool, Stopped, waited
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.worker import Task
from ddefuzz.oracles.blame import fewest

R = TypeVar("R")

MOST_TIMED = 4
"""The questions of which the times are measured: each needs three compilations for real."""

look = Task("ddefuzz.cost.worker:look", LookTask, Look)
time_versions = Task("ddefuzz.cost.worker:time_versions", TimeTask, tuple[Timing, ...])
export_cost = Task("ddefuzz.cost.export:export_cost", ExportTask, ExportCost)
draw = Task("ddefuzz.cost.ops:draw", DrawTask, tuple[tuple[str, str], ...])


class Effort(NamedTuple):
    """How much is measured: rounds of run times, questions that are answered, and what the dynamic dims are multiplied
    by.
    """

    rounds: int
    questions: int
    scale: int = 1


class CostMeasurement:
    """One measurement, step by step: `so_far` is what there is when a step is interrupted."""

    def __init__(
        self, pool: Pool, target: Target, torch: str, timeout: float, stopped: Stopped, say: Callable[[str], None]
    ) -> None:
        self.pool, self.target, self.timeout, self.stopped, self.say = pool, target, timeout, stopped, say
        program = target.subject.text if isinstance(target.subject, ProgramSubject) else ""
        self.so_far = Cost(target.case, torch, program=program)

    def run(self, effort: Effort) -> Cost:
        """Measure the versions, and answer questions one at a time."""
        try:
            self._look(effort)
            self._time(effort)
            self._decide(effort)
        except KeyboardInterrupt:
            self._add(interrupted=True)
        return self.so_far

    def run_export(self, budget: float, *, speedscope: bool) -> Cost:
        """Measure exports, within a budget of CPU seconds."""
        self.say(f"{self.target.case}: exporting more and more blocks, for {budget:g} CPU seconds")
        try:
            seen = self._answer(export_cost, ExportTask(self.target.subject, budget, speedscope))
        except KeyboardInterrupt:
            self._add(interrupted=True)
            return self.so_far
        self._add(export=ExportCost(error=f"{seen.outcome}: {seen.reason}") if isinstance(seen, LostTask) else seen)
        return self.so_far

    def _look(self, effort: Effort) -> None:
        for version in VERSIONS:
            self.say(f"{self.target.case}: compiling with sizes {version}")
            seen = self._answer(look, LookTask(self.target.subject, effort.scale, version))
            if isinstance(seen, LostTask):
                seen = Look(version, seen.outcome, seen.reason)
            self._add(looks=(*self.so_far.looks, seen))

    def _time(self, effort: Effort) -> None:
        versions = tuple(one.version for one in self.so_far.looks if one.outcome == "ok")
        if not effort.rounds or not versions:
            return
        self.say(f"{self.target.case}: compiling {len(versions)} versions for real, and timing their calls")
        timings = self._answer(time_versions, TimeTask(self.target.subject, effort.scale, versions, effort.rounds))
        if isinstance(timings, LostTask):
            self._note(f"no times: {timings.reason}")
        else:
            self._add(timings=timings)

    def _decide(self, effort: Effort) -> None:
        unbacked, backed = self.so_far.look(self.so_far.measured), self.so_far.look("backed")
        if unbacked is None or backed is None or unbacked.code is None:
            return
        asked = sorted(
            candidates(unbacked, backed), key=lambda one: (list(QUESTION_KINDS).index(one.kind), -one.count, str(one))
        )
        self._add(asked=len(asked))
        effects: list[QuestionEffect] = []
        chosen = asked[: effort.questions]

        def answered(questions: tuple[Question, ...]) -> Code | None:
            left = tuple(one for one in unbacked.questions if one not in questions)
            seen = self._answer(look, LookTask(self.target.subject, effort.scale, unbacked.version, questions, left))
            if isinstance(seen, LostTask) or seen.code is None:
                self._note(f"not captured with the answer to {', '.join(map(str, questions))}: {seen.reason}")
                return None
            return seen.code

        for tried, question in enumerate(chosen, 1):
            self.say(f"{self.target.case}: question {tried} of {len(chosen)}, {question}")
            code = answered((question,))
            self._add(tried=tried)
            if code is not None and code.differs(unbacked.code):
                effects.append(QuestionEffect((question,), code))
                self._add(decided=tuple(effects))
        if not effects and backed.code is not None and unbacked.code.work > backed.code.work:
            effects += self._together(tuple(chosen), unbacked.code, answered)
            self._add(decided=tuple(effects))
        effects.sort(key=lambda one: one.code.work)
        for place, effect in enumerate(effects[:MOST_TIMED] if effort.rounds else ()):
            effects[place] = self._timed(effect, unbacked, effort)
            self._add(decided=tuple(effects))

    def _together(
        self, questions: tuple[Question, ...], before: Code, answered: Callable[[tuple[Question, ...]], Code | None]
    ) -> list[QuestionEffect]:
        """The fewest questions that only together make the code better."""
        self.say(f"{self.target.case}: {len(questions)} questions together")

        def is_enough(some: tuple[Question, ...]) -> bool:
            code = answered(some) if len(some) > 1 else None
            return code is not None and code.work < before.work

        needed = fewest(questions, is_enough)
        code = answered(needed) if needed else None
        return [QuestionEffect(needed, code)] if code is not None else []

    def _timed(self, effect: QuestionEffect, unbacked: Look, effort: Effort) -> QuestionEffect:
        """The effect with run times."""
        name = ", ".join(map(str, effect.questions))
        self.say(f"{self.target.case}: timing the answer to {name}")
        left = tuple(one for one in unbacked.questions if one not in effect.questions)
        versions: tuple[VersionName, ...] = ("backed", unbacked.version)
        subject = self.target.subject
        task = TimeTask(subject, effort.scale, versions, effort.rounds, ("example",), effect.questions, left)
        timings = self._answer(time_versions, task)
        if isinstance(timings, LostTask):
            self._note(f"no times with the answer to {name}: {timings.reason}")
            return effect
        by_name = {one.version: one.rounds.get("example", ()) for one in timings}
        for timing in timings:
            if problem := timing.error or timing.errors.get("example", ""):
                self._note(f"no time of {timing.version} with the answer to {name}: {problem}")
        return msgspec.structs.replace(
            effect,
            answered=by_name.get("answered", ()),
            unanswered=by_name.get(unbacked.version, ()),
            backed=by_name.get("backed", ()),
        )

    def _answer(self, call: Callable[[Any], R], task: LookTask | TimeTask | ExportTask) -> R | LostTask:
        """What a worker returned. Raises InputError for a subject that cannot be measured."""
        return waited(self.pool.submit(call, task, self.timeout), self.stopped)

    def _add(self, **values: Any) -> None:
        self.so_far = msgspec.structs.replace(self.so_far, **values)

    def _note(self, text: str) -> None:
        self._add(notes=(*self.so_far.notes, text))


def candidates(unbacked: Look, backed: Look) -> Iterator[Question]:
    """The questions of the unbacked version, each place once, and of guards each expression. Those that the backed
    version was answered the same way at the same place are left out: there torch does not know more.
    """
    same = {(one.kind, one.file, one.line) for one in backed.questions}
    seen: set[tuple[str, ...]] = set()
    for question in unbacked.questions:
        place = (question.kind, question.file, question.line)
        key = (*map(str, place), question.expression if question.kind == "guard" else "")
        if place not in same and key not in seen:
            seen.add(key)
            yield question
