"""The effect of a planted fault on captured programs that are called, and which oracle reports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class Programs:
    """Runs programs with and without faults. Runs without are kept.

    `known` are the signatures of the database: a failure that it knows is not new.
    """

    tester: Tester
    known: frozenset[Signature] = frozenset()
    healthy: dict[Trial, Tried] = field(default_factory=dict)

    def without_fault(self, program: str, stage: Stage, judges: tuple[str, ...]) -> Tried:
        """The program as it is; called and judged by oracles, if there are any."""
        return self._healthy(_trial(program, stage, EXPLICIT, judges))

    def _healthy(self, trial: Trial) -> Tried:
        if trial not in self.healthy:
            self.healthy[trial] = self.tester(trial)
        return self.healthy[trial]

    def with_fault(self, fault: Planted, oracle: str, program: str, stage: Stage, case: Reacher | None) -> Planted:
        """A fault that is planted for an oracle, after one more program: one of a `case`, else the database's example.

        Semantics are compared in a sample of the cases, as a campaign does.
        """
        judges = JUDGES[oracle]
        graph = self.without_fault(program, stage, ()).observation
        compares = bool(comparing(judges))
        others = (SIZE_OBLIVIOUS,) if compares else ()
        captured = (graph, *(self._healthy(_trial(program, stage, other, ())).observation for other in others))
        if any(one.outcome != "ok" for one in captured):
            return fault
        fault = msgspec.structs.replace(fault, programs=fault.programs + 1)
        changed = self.tester(_trial(program, stage, fault.semantics, ())).observation
        if changed.outcome == "ok" and changed.digest == graph.digest:
            return msgspec.structs.replace(fault, effect=max(fault.effect, "equivalent", key=SEVERITY.index))
        before = self.without_fault(program, stage, judges)
        trial = _trial(program, stage, fault.semantics, judges)
        after = self.tester(msgspec.structs.replace(trial, sampled=case is not None))
        known = self.known | {one.signature for one in before.failures}
        new = tuple(one for one in after.failures if one.signature not in known)
        effect, change = effect_of(before.observation, after.observation)
        if compares and after.observation.outcome == "fail":
            effect = "changes"
        why = f"{stage}: {change}" if change and (not fault.why or effect == "changes") else fault.why
        timeouts = fault.timeouts + (after.observation.outcome == "timeout")
        worst = max(fault.effect, effect, key=SEVERITY.index)
        fault = msgspec.structs.replace(fault, effect=worst, timeouts=timeouts, why=why)
        if effect != "changes" or not new:
            return fault
        elsewhere = [one for one in new if not names(one, fault, before.observation)]
        exact = bool({one.signature.kind for one in new} - {one.signature.kind for one in elsewhere})
        fault = msgspec.structs.replace(
            fault,
            stage=stage,
            kind=", ".join(dict.fromkeys(str(one.signature.kind) for one in new)),
            named=", ".join(map(blamed, new)),
            program=program,
            elsewhere=len(elsewhere),
            why="" if exact else change,
        )
        if case is None:
            return msgspec.structs.replace(fault, found_by_example=True, exact_by_example=exact)
        return msgspec.structs.replace(fault, found=True, exact=exact, cpu_seconds=case.cpu_seconds, cases=case.cases)


def _trial(program: str, stage: Stage, semantics: Semantics, judges: tuple[str, ...]) -> Trial:
    """A capture; with oracles that judge it, what is captured is called."""
    return Trial(Run(ProgramSubject(program), stage, semantics, graph=True, calls=calls_of(judges)), judges)


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
    tries = [(case.program, case.stage, case) for case in cases]
    if example is not None and example.example:
        stages: tuple[Stage, ...] = ("aot", "export", "compile", "export-strict")
        ordered = sorted(stages, key=lambda one: one != example.stage)
        tries += [(example.example, stage, None) for stage in ordered]  # type: ignore[misc]
    for program, stage, case in tries:
        fault = programs.with_fault(fault, oracle, program, stage, case)
        if fault.found or fault.found_by_example or fault.timeouts == MOST_TIMEOUTS:
            break
    return fault if fault.programs else msgspec.structs.replace(fault, why="no program that is captured reached it")


def blamed(classified: Classified) -> str:
    """The place that was blamed, with its line."""
    frame = classified.frame
    line = f" line {frame.line}" if frame is not None and frame.line else ""
    return f"{classified.signature.site}{line}"
