"""The faults that `python ci/bench recall` plants, by oracle, and what each does to the programs that reach it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from ddefuzz.classify.anchor import callee
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.chain import op_name
from ddefuzz.classify.signature import Signature
from ddefuzz.classify.site import user_frame
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import EXPLICIT, SIZE_OBLIVIOUS, Call, Observation, ProgramSubject, Run, Semantics, Stage
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.instrument.events import Answer, Fault, Place
from ddefuzz.oracles.program import CAPTURE, Trial, TriedRun
from ddefuzz.oracles.table import calls_of, comparing

Effect: TypeAlias = Literal["unreached", "equivalent", "harmless", "stops", "changes"]
"""
What a planted fault does to the programs that reach it, each worse than the one before:

unreached   no program reached it, or none that is captured
equivalent  what is captured is the same as without it (`Observation.digest`)
harmless    some graph is another one, but every call ends as without it, or as eager where it did not without it
stops       some program is not captured, and no call of any other ends otherwise: this is for the capture oracle
changes     a call of some captured program ends otherwise; for capture and mechanism also: some program is not captured
"""

SEVERITY: tuple[Effect, ...] = ("unreached", "equivalent", "harmless", "stops", "changes")

NUMBERS = 12
"""How many variants of a fault there are."""

MOST_TIMEOUTS = 2
"""After this many runs with a fault that did not end in time, no more are done. Each costs the whole limit."""


class PlantedFault(msgspec.Struct, frozen=True):
    """One planted fault and its result.

    `programs` counts the programs that were run with it, `timeouts` those that did not end in time. `found` says that a
    case of the campaign showed it, with `cpu_seconds` and `cases` of the campaign at that case. `found_by_example` says
    that no case showed it, but the program which the database knows for the site. `exact` says that exactly this place
    was blamed then, `elsewhere` how many failures of other kinds name another place: a symbol that became a number is
    reported by itself, and may also make a result wrong. `kind` and `named` are the failure and the place that was
    blamed, with its line. `program` showed it. `why` says what is wrong if it was not found or not named.
    """

    place: Place
    function: str
    semantics: Semantics
    effect: Effect = "unreached"
    programs: int = 0
    timeouts: int = 0
    cpu_seconds: float | None = None
    cases: int | None = None
    found: bool = False
    found_by_example: bool = False
    exact: bool = False
    elsewhere: int = 0
    stage: Stage | None = None
    kind: str = ""
    named: str = ""
    program: str = ""
    why: str = ""

    @property
    def drops(self) -> bool:
        """Whether it drops an assertion."""
        return any(one.kind == "drop assertion" for one in self.semantics.faults)


Pool: TypeAlias = Literal["fallbacks", "shared fallbacks", "assertions"]
"""
Where faults are planted:

fallbacks         places where guards took their fallback
shared fallbacks  those of them where the fallback was sometimes the answer of size-oblivious semantics, too
assertions        places that make run-time assertions
"""


class Plant(NamedTuple):
    """A kind of planted fault: where it is drawn from, and the semantics that apply it.

    The number of a fault chooses among its variants.
    """

    drawn_from: Pool
    semantics: Callable[[SiteRecord, int], Semantics]


def place_of(record: SiteRecord) -> Place:
    """A record's place."""
    return Place(record.language, record.file, record.line)


def _withheld(record: SiteRecord, _: int) -> Semantics:
    return Semantics("explicit", (place_of(record),))


def _inverted(record: SiteRecord, _: int) -> Semantics:
    usual = record.fallbacks.get("True", 0) > record.fallbacks.get("False", 0)
    return Semantics(answers=(Answer(place_of(record), not usual),))


def _with(kind: Literal["specialize", "add assertion", "drop assertion"]) -> Callable[[SiteRecord, int], Semantics]:
    def semantics(record: SiteRecord, number: int) -> Semantics:
        return Semantics(faults=(Fault(place_of(record), kind, 0 if kind == "drop assertion" else number),))

    return semantics


PLANTS: Mapping[str, tuple[Plant, ...]] = {
    "capture": (Plant("fallbacks", _withheld),),
    "agreement": (Plant("fallbacks", _inverted),),
    "specialization": (Plant("fallbacks", _with("specialize")),),
    "assertions": (Plant("fallbacks", _with("add assertion")), Plant("assertions", _with("drop assertion"))),
    "mechanism": (Plant("shared fallbacks", _inverted),),
}
"""The faults that are planted for each oracle, as many of each kind."""

JUDGES: Mapping[str, tuple[str, ...]] = {
    "capture": CAPTURE,
    "agreement": (together := ("agreement", "specialization", "assertions")),
    "specialization": together,
    "assertions": together,
    "mechanism": ("mechanism",),
}
"""The oracles that judge the faults planted for an oracle: an inverted fallback may show as an assertion, too."""


def draw(
    oracle: str, fallbacks: Iterable[SiteRecord], assertions: Iterable[SiteRecord], number: int, seed: int
) -> tuple[PlantedFault, ...]:
    """`number` faults for an oracle, by the seed, one a place. Raises InputError if there are fewer places."""
    chosen = random.Random(seed)
    fell_back = tuple(one for one in fallbacks if one.fallbacks)
    pools: dict[Pool, Iterable[SiteRecord]] = {
        "fallbacks": fell_back,
        "shared fallbacks": (one for one in fell_back if one.old.get("same")),
        "assertions": assertions,
    }
    plants = PLANTS[oracle]
    drawn: list[PlantedFault] = []
    for turn, plant in enumerate(plants):
        pool = {record.key[:3]: record for record in sorted(pools[plant.drawn_from], key=lambda one: one.key)}
        share = number // len(plants) + (turn < number % len(plants))
        if plant.drawn_from != "assertions" and len(pool) < share:
            kind = "" if plant.drawn_from == "fallbacks" else ", with the answer of size-oblivious semantics"
            raise InputError(
                f"--sites: found {len(pool)} sites in the database whose guards ever fell back{kind}, expected {share} "
                "to draw from; `ddefuzz run` and `ddefuzz sweep` fill it"
            )
        for key in sorted(chosen.sample(sorted(pool), min(share, len(pool)))):
            semantics = plant.semantics(pool[key], chosen.randrange(NUMBERS))
            drawn.append(PlantedFault(place_of(pool[key]), pool[key].function, semantics, why="no case reached it"))
    return tuple(drawn)


def what_of(semantics: Semantics) -> str:
    """What a fault does, in words."""
    match semantics:
        case Semantics(answers=(Answer(value=value), *_)):
            return f"answers {value}"
        case Semantics(faults=(Fault(kind=kind, number=number), *_)):
            return kind if kind == "drop assertion" else f"{kind} {number}"
        case _:
            return "the fallback is withheld"


Tester = Callable[[Trial], TriedRun]
"""Runs and judges. A worker that dies is an observation."""


class Reacher(NamedTuple):
    """A program in a stage. `captured` says that it was captured there.

    `reached` are the places whose guards took their fallback, each with the form of the expression. `cpu_seconds` and
    `cases` are the campaign's when it was done.
    """

    program: str
    stage: Stage
    captured: bool
    reached: frozenset[tuple[Place, str]]
    cpu_seconds: float
    cases: int


@dataclass(slots=True)
class Programs:
    """Runs programs with and without faults. Runs without are kept.

    `known` are the signatures of the database: a failure that it knows is not new.
    """

    tester: Tester
    known: frozenset[Signature] = frozenset()
    healthy: dict[Trial, TriedRun] = field(default_factory=dict)

    def without_fault(
        self, program: str, stage: Stage, judges: tuple[str, ...], semantics: Semantics = EXPLICIT
    ) -> TriedRun:
        """The program as it is; called and judged by oracles, if there are any."""
        trial = _trial(program, stage, semantics, judges)
        if trial not in self.healthy:
            self.healthy[trial] = self.tester(trial)
        return self.healthy[trial]

    def with_fault(
        self, fault: PlantedFault, oracle: str, program: str, stage: Stage, case: Reacher | None
    ) -> PlantedFault:
        """A fault that is planted for an oracle, after one more program: one of a `case`, else the database's example.

        Semantics are compared in a sample of the cases, as a campaign does. A program that is not captured without the
        fault tests nothing but guards.
        """
        judges = JUDGES[oracle]
        compares = bool(comparing(judges))
        graph = self.without_fault(program, stage, ()).observation
        captured = [graph]
        if compares:
            captured.append(self.without_fault(program, stage, (), SIZE_OBLIVIOUS).observation)
        if judges != CAPTURE and any(one.outcome != "ok" for one in captured):
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
        if effect == "stops" and after.observation.outcome == "fail" and (compares or judges == CAPTURE):
            effect = "changes" if new or graph.outcome == "ok" else "harmless"
        fault = msgspec.structs.replace(
            fault,
            effect=max(fault.effect, effect, key=SEVERITY.index),
            timeouts=fault.timeouts + (after.observation.outcome == "timeout"),
            why=f"{stage}: {change}" if change and (not fault.why or effect == "changes") else fault.why,
        )
        if effect != "changes" or not new:
            return fault
        elsewhere = [one for one in new if not names(one, fault, before.observation)]
        exact = bool({one.signature.kind for one in new} - {one.signature.kind for one in elsewhere})
        return msgspec.structs.replace(
            fault,
            found=case is not None,
            found_by_example=case is None,
            exact=exact,
            elsewhere=len(elsewhere),
            cpu_seconds=case.cpu_seconds if case is not None else None,
            cases=case.cases if case is not None else None,
            stage=stage,
            kind=", ".join(dict.fromkeys(str(one.signature.kind) for one in new)),
            named=", ".join(map(_blamed, new)),
            program=program,
            why="" if exact else change,
        )

    def show(
        self, fault: PlantedFault, oracle: str, example: SiteRecord | None, cases: Iterable[Reacher]
    ) -> PlantedFault:
        """Run the campaign's cases with a fault that is planted for an oracle until it is reported; if it is not, the
        database's example.
        """
        tries: list[tuple[str, Stage, Reacher | None]] = [(case.program, case.stage, case) for case in cases]
        if example is not None and example.example:
            stages: tuple[Stage, ...] = ("aot", "export", "compile", "export-strict")
            ordered = sorted(stages, key=lambda one: one != example.stage)
            tries += [(example.example, stage, None) for stage in ordered]
        if not tries:
            return fault
        fault = msgspec.structs.replace(fault, why="")
        for program, stage, case in tries:
            fault = self.with_fault(fault, oracle, program, stage, case)
            if fault.found or fault.found_by_example or fault.timeouts == MOST_TIMEOUTS:
                break
        return fault if fault.programs else msgspec.structs.replace(fault, why="no program that is captured reached it")


def _trial(program: str, stage: Stage, semantics: Semantics, judges: tuple[str, ...]) -> Trial:
    """A capture; with oracles that judge it, what is captured is called."""
    return Trial(Run(ProgramSubject(program), stage, semantics, graph=True, calls=calls_of(judges)), judges)


def effect_of(before: Observation, after: Observation) -> tuple[Effect, str]:
    """What a fault does, by the runs of a program without and with it, and the first change."""
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


def names(classified: Classification, fault: PlantedFault, healthy: Observation) -> bool:
    """Whether a failure is blamed on exactly the planted place: the frame for Python, and for a withheld fallback in
    C++ the place of the guard.

    An assertion that is not there has no place any more. Exact is then the op that made it without the fault.
    """
    site, frame, raised = classified.signature.site, classified.frame, classified.failure.observation.raised
    if fault.drops:
        return site.language == "op" and site.function in set(_makers(healthy, fault.place))
    if fault.semantics.without and fault.place.language == "C++":
        return site.language == "C++" and raised is not None and raised.place == fault.place
    return frame is not None and (frame.file, frame.line) == (fault.place.file, fault.place.line)


def _makers(observation: Observation, place: Place) -> Iterator[str]:
    """The ops of the program that make an assertion at a place."""
    for made in observation.constraints:
        frame = user_frame((*made.python, *made.traced)) if made.place == place and made.kind == "assertion" else None
        if frame is not None:
            yield op_name(callee(frame))


def _blamed(classified: Classification) -> str:
    """The place that was blamed, with its line."""
    frame = classified.frame
    line = f" line {frame.line}" if frame is not None and frame.line else ""
    return f"{classified.signature.site}{line}"
