"""The effect of a planted fault on captured programs that are called, and which oracle reports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from ci.bench.planted import JUDGES, Effect, Planted
from ci.bench.survey import Maker, Reacher
from ddefuzz.classify.anchor import callee
from ddefuzz.classify.chain import op_name
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.signature import Signature
from ddefuzz.classify.site import user_frame
from ddefuzz.coverage.ledger import SiteRecord
from ddefuzz.execute.protocol import EXPLICIT, SIZE_OBLIVIOUS, Call, Observation, ProgramSubject, Run, Semantics, Stage
from ddefuzz.instrument.events import Place
from ddefuzz.oracles.program import Trial, Tried
from ddefuzz.oracles.table import calls_of, comparing

Tester = Callable[[Trial], Tried]
"""Runs and judges. A worker that dies is an observation."""

SEVERITY: tuple[Effect, ...] = ("unreached", "equivalent", "harmless", "stops", "changes")


MOST_TIMEOUTS = 2
"""After this many runs with a fault that did not end in time, no more are done. Each costs the whole limit."""


class Shown(NamedTuple):
    """What a fault does to one program: the effect, the failures that are new, and what changed, in a line; whether
    exactly its place was blamed for all failures of some kind, how many of other kinds name another place, and whether
    the run did not end in time.
    """

    effect: Effect
    failures: tuple[Classified, ...]
    change: str
    exact: bool = False
    elsewhere: int = 0
    timeout: bool = False


@dataclass(slots=True)
class Programs:
    """Runs programs with and without faults. Runs without are kept.

    `known` are the signatures of the database: a failure that it knows is not new.
    """

    tester: Tester
    known: frozenset[Signature] = frozenset()
    healthy: dict[Trial, Tried] = field(default_factory=dict)

    def without_fault(self, program: str, stage: Stage, oracle: str, semantics: Semantics = EXPLICIT) -> Tried:
        """The program as it is, judged as with a fault that is planted for an oracle."""
        return self._healthy(_trial(program, stage, semantics, JUDGES[oracle]))

    def captured(self, program: str, stage: Stage, semantics: Semantics = EXPLICIT) -> Observation:
        """What is captured of a program as it is. It is not called."""
        return self._healthy(_captured(program, stage, semantics)).observation

    def _healthy(self, trial: Trial) -> Tried:
        if trial not in self.healthy:
            self.healthy[trial] = self.tester(trial)
        return self.healthy[trial]

    def with_fault(self, program: str, stage: Stage, fault: Planted, oracle: str, *, sampled: bool = True) -> Shown:
        """The program with a fault that is planted for an oracle. With `sampled`, semantics are compared in a sample of
        the programs, as a campaign does.
        """
        graph = self.captured(program, stage)
        if graph.outcome != "ok":
            return Shown("unreached", (), "it is not captured")
        compares = bool(comparing(JUDGES[oracle]))
        if compares and self.captured(program, stage, SIZE_OBLIVIOUS).outcome != "ok":
            return Shown("unreached", (), "size-oblivious semantics do not capture it")
        changed = self.tester(_captured(program, stage, fault.semantics)).observation
        if changed.outcome == "ok" and changed.digest == graph.digest:
            return Shown("equivalent", (), "")
        before = self.without_fault(program, stage, oracle)
        trial = _trial(program, stage, fault.semantics, JUDGES[oracle])
        after = self.tester(msgspec.structs.replace(trial, sampled=sampled))
        known = self.known | {one.signature for one in before.failures}
        new = tuple(one for one in after.failures if one.signature not in known)
        effect, change = effect_of(before.observation, after.observation)
        if compares and after.observation.outcome == "fail":
            effect = "changes"
        elsewhere = [one for one in new if not names(one, fault, before.observation)]
        named = {one.signature.kind for one in new} - {one.signature.kind for one in elsewhere}
        return Shown(effect, new, change, bool(named), len(elsewhere), after.observation.outcome == "timeout")


def _trial(program: str, stage: Stage, semantics: Semantics, judges: tuple[str, ...]) -> Trial:
    run = Run(ProgramSubject(program), stage, semantics, graph=True, calls=calls_of(judges))
    return Trial(run, judges)


def _captured(program: str, stage: Stage, semantics: Semantics) -> Trial:
    return Trial(Run(ProgramSubject(program), stage, semantics, graph=True), ())


def effect_of(before: Observation, after: Observation) -> tuple[Effect, str]:
    """What a fault does, by the runs of a captured program without and with it, and the first change."""
    if after.outcome != "ok":
        error = after.exceptions[0].message.partition("\n")[0][:120] if after.exceptions else after.reason
        return "stops", f"{after.outcome}: {error}"
    calls = {call.size: call for call in after.calls}
    for call in before.calls:
        other = calls.get(call.size)
        # A call for which torch captured again tests another capture.
        if other is None or call.recompiled or other.recompiled or _end(call) == _end(other) or _is_right(other):
            continue
        return "changes", f"at size {call.size}: {_said(call)}, with the fault {_said(other)}"
    return ("equivalent" if before.digest == after.digest else "harmless"), ""


def _is_right(call: Call) -> bool:
    """Whether a call with a fault ends as eager does: without the fault it was wrong."""
    return call.captured.returned == call.eager.returned and call.agreement != "differs"


def _end(call: Call) -> tuple[object, ...]:
    wrong = call.agreement == "differs"
    return call.captured.returned, wrong, {(one.what, one.where) for one in call.differences} if wrong else set()


def _said(call: Call) -> str:
    if not call.captured.returned:
        return f"refused ({call.captured.expression or call.captured.error[:80]})"
    if call.agreement == "differs":
        return f"{call.differences[0].what} of {call.differences[0].where} differ"
    return "as eager" if call.eager.returned else "taken"


def names(found: Classified, fault: Planted, healthy: Observation) -> bool:
    """Whether a failure is blamed on exactly the planted place.

    An assertion that is not there has no place any more. Exact is then the op that made it without the fault.
    """
    if fault.semantics.faults and fault.semantics.faults[0].kind == "drop assertion":
        site = found.signature.site
        return site.language == "op" and site.function in set(_makers(healthy, fault.place))
    frame = found.frame
    return frame is not None and (frame.file, frame.line) == (fault.place.file, fault.place.line)


def _makers(observation: Observation, place: Place) -> Iterator[str]:
    """The ops of the program that make an assertion at a place."""
    for one in observation.constraints:
        frame = user_frame((*one.python, *one.traced)) if one.place == place and one.kind == "assertion" else None
        if frame is not None:
            yield op_name(callee(frame))


def maker_of(case: Reacher, tried: Tried) -> Maker:
    """The places in torch that make run-time assertions in a program."""
    made = {one.place for one in tried.observation.constraints if one.kind == "assertion"}
    inside = sorted(place for place in made if place.language == "C++" or place.file.startswith("torch/"))
    return Maker(case.program, case.stage, tuple(inside))


def show_called(
    fault: Planted, oracle: str, example: SiteRecord | None, cases: Iterable[Reacher], programs: Programs
) -> Planted:
    """Run the campaign's cases with a fault that is planted for an oracle until it is reported; if it is not, the
    database's example.
    """
    fault = msgspec.structs.replace(fault, why="")
    for case in cases:
        fault = _after(fault, oracle, case.program, case.stage, programs, case)
        if fault.found or fault.timeouts == MOST_TIMEOUTS:
            return fault
    for stage in _stages_of(example):
        assert example is not None
        fault = _after(fault, oracle, example.example, stage, programs, None)
        if fault.found_by_example or fault.timeouts == MOST_TIMEOUTS:
            break
    if not fault.programs:
        return msgspec.structs.replace(fault, why="no program that is captured reached it")
    return fault


def _stages_of(example: SiteRecord | None) -> tuple[Stage, ...]:
    stages: tuple[Stage, ...] = ("aot", "export", "compile", "export-strict")
    if example is None or not example.example:
        return ()
    return tuple(sorted(stages, key=lambda one: one != example.stage))


def _after(
    fault: Planted, oracle: str, program: str, stage: Stage, programs: Programs, case: Reacher | None
) -> Planted:
    """A fault after one more program."""
    shown = programs.with_fault(program, stage, fault, oracle, sampled=case is not None)
    if shown.effect == "unreached":
        return fault
    effect = max(fault.effect, shown.effect, key=SEVERITY.index)
    counts = {"programs": fault.programs + 1, "timeouts": fault.timeouts + shown.timeout}
    fault = msgspec.structs.replace(fault, effect=effect, **counts)
    if shown.effect != "changes" or not shown.failures:
        why = f"{stage}: {shown.change}" if shown.change and (not fault.why or shown.effect == "changes") else fault.why
        return msgspec.structs.replace(fault, why=why)
    said = msgspec.structs.replace(
        fault,
        stage=stage,
        kind=", ".join(dict.fromkeys(str(one.signature.kind) for one in shown.failures)),
        named=", ".join(map(blamed, shown.failures)),
        program=program,
        elsewhere=shown.elsewhere,
        why="" if shown.exact else shown.change,
    )
    if case is None:
        return msgspec.structs.replace(said, found_by_example=True, exact_by_example=shown.exact)
    return msgspec.structs.replace(said, found=True, exact=shown.exact, cpu_seconds=case.cpu_seconds, cases=case.cases)


def blamed(classified: Classified) -> str:
    """The place that was blamed, with its line."""
    frame = classified.frame
    line = f" line {frame.line}" if frame is not None and frame.line else ""
    return f"{classified.signature.site}{line}"
