"""Sweep one op in a worker: run every form of its samples in the fake stage, and each failure in a capture stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import torch

from ddefuzz.campaign.case import Seen, seen_of
from ddefuzz.classify.signature import Signature
from ddefuzz.coverage.ledger import Ledger
from ddefuzz.errors import UnsupportedError
from ddefuzz.execute.journal import Entry
from ddefuzz.execute.limit import cpu_seconds
from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import CHEAP_TO_CALL, EXPLICIT, SCREEN, Observation, Outcome, Run, Runner, Stage
from ddefuzz.execute.worker import note
from ddefuzz.findings.model import Sighting
from ddefuzz.generate.opinfo import entries
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Place
from ddefuzz.oracles.program import judge_program
from ddefuzz.oracles.table import calls_of, comparing
from ddefuzz.program.model import Attribute, Index, Program, functions_in
from ddefuzz.program.text import print_program
from ddefuzz.sweep.select import Chosen, chosen
from ddefuzz.sweep.status import with_status
from ddefuzz.sweep.tasks import DescribeTask, Failed, Shown, SweepResult, SweepTask, Swept, Versions

SWEEP_VERSION: Final = 3
"""Raised when the code of `sweep` or `generate` changes what is tried of an op."""

CONFIRMING: Final[tuple[Stage, ...]] = ("export", "compile")
"""The stages that confirm a failure. The first that shows the signature ends the search."""


def describe(task: DescribeTask) -> Versions:
    """The versions here, and what there is to sweep."""
    torch_api.require()
    problem = torch_api.OP_DB.problem()
    if problem:
        raise UnsupportedError(problem)
    listed, skipped = _upstream() if task.upstream else ((), ())
    return Versions(str(torch.__version__), f"sweep={SWEEP_VERSION}", tuple(entries()), listed, skipped)


def _upstream() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Upstream's lists, by the full names of entries."""
    xfail, skip = torch_api.UPSTREAM_XFAIL.get(), torch_api.UPSTREAM_SKIP.get()
    names = [{f"{name}.{variant}" if variant else str(name) for name, variant, *_ in rows} for rows in (xfail, skip)]
    return tuple(sorted(names[0])), tuple(sorted(names[1]))


CALLED_FORMS: Final = frozenset({"all", "drawn"})
"""The forms of samples that are called: all dims unbacked, or as the catalogue draws them."""


@dataclass(slots=True)
class _Seen:
    """One signature, as it is collected."""

    sighting: Sighting
    chosen: Chosen
    forms: dict[str, None] = field(default_factory=dict)
    dtypes: dict[str, None] = field(default_factory=dict)
    runs: int = 0


@dataclass(slots=True)
class _Sweep:
    """One op's sweep so far."""

    task: SweepTask
    runner: Runner
    ledger: Ledger = field(default_factory=Ledger)
    seen: dict[Signature, _Seen] = field(default_factory=dict)
    wrong: dict[Signature, _Seen] = field(default_factory=dict)
    called: int = 0
    rescued: dict[str, None] = field(default_factory=dict)
    sightings: list[Sighting] = field(default_factory=list)
    calls: dict[str, None] = field(default_factory=dict)
    samples: set[int] = field(default_factory=set)
    runs: int = 0
    compared: dict[frozenset[Place], Outcome] = field(default_factory=dict)
    latest: Observation = field(default_factory=lambda: Observation(SCREEN, EXPLICIT, "ok"))

    def screen(self, one: Chosen) -> None:
        """Run a program in the fake stage under explicit semantics, and compare it with size-oblivious
        semantics.
        """
        text = print_program(one.program)
        judged = seen_of(text, judge_program(text, (SCREEN,), (EXPLICIT,), self._once_for_each_difference))
        self.runs += 1
        self.samples.add(one.sample)
        self.calls.update(dict.fromkeys(functions_in(one.program)) if one.form in ("static", "drawn") else {})
        self._count(judged, text)
        if judged.outcomes[0].verdict == "rescued":
            undecided = (at.place for of in judged.reached for at in of.reached if at.old == "undecided")
            self.rescued.update(dict.fromkeys(f"{place.file}:{place.line}" for place in undecided))
        for sighting in judged.sightings:
            _add(self.seen, sighting, one, text)
        if not judged.sightings and one.form in CALLED_FORMS:
            self._call(one, text)

    def _call(self, one: Chosen, text: str) -> None:
        """Capture a program and call it, in one of the stages in turn."""
        oracles = tuple(name for name in self.task.oracles if calls_of((name,)))
        if not oracles:
            return
        stage = CHEAP_TO_CALL[self.called % len(CHEAP_TO_CALL)]
        (judged,) = judge_program(
            text, (stage,), (EXPLICIT,), self.runner, oracles=oracles, compare=bool(comparing(oracles)), sampled=True
        )
        self.called += bool(judged.observation.calls)
        seen = seen_of(text, (judged,))
        self._count(seen, text)
        self.sightings += seen.sightings
        for sighting in seen.sightings:
            _add(self.wrong, sighting, one, text)

    def _once_for_each_difference(self, run: Run) -> Observation:
        """Run. A second run under size-oblivious semantics is made only if the answers differ at places
        that no run of this op compared.

        An op evaluates the same guards in all its samples. Otherwise the result under size-oblivious
        semantics follows from the first run: it fails if it cannot decide, else it ends as it did before
        with the same differing answers.
        """
        if run.semantics == EXPLICIT:
            self.latest = self.runner(run)
            return self.latest
        guards = self.latest.guards
        other = frozenset(guard.place for guard in guards if guard.counterfactual == "other")
        if any(guard.counterfactual == "undecided" for guard in guards):
            return Observation(run.stage, run.semantics, "fail")
        if other not in self.compared:
            self.compared[other] = self.runner(run).outcome
        return Observation(run.stage, run.semantics, self.compared[other])

    def _count(self, judged: Seen, text: str) -> None:
        self.ledger.add(((of.stage, of.reached) for of in judged.reached), text)

    def failed(self, seen: _Seen, confirm: bool) -> Failed:
        """A signature with the results of capture stages on its shortest program."""
        sighting = seen.sighting
        found = Failed(
            signature=sighting.signature,
            cause=sighting.cause,
            verdict=sighting.verdict,
            evidence=sighting.failure.evidence[:300],
            forms=tuple(seen.forms),
            dtypes=tuple(seen.dtypes),
            runs=seen.runs,
            program=sighting.program or "",
            confirmed=tuple(self._confirmed(seen)) if confirm else (),
        )
        self.sightings += [sighting] if found.is_recorded else []
        return found

    def _confirmed(self, seen: _Seen) -> Iterable[Shown]:
        is_backward = seen.chosen.form == "backward"
        program = forward_of(seen.chosen.program) if is_backward else seen.chosen.program
        text = print_program(program)
        for stage in ("aot",) if is_backward else CONFIRMING:
            judged = seen_of(text, judge_program(text, (stage,), (EXPLICIT,), self.runner))
            self.sightings += judged.sightings
            self._count(judged, text)
            signature = str(judged.sightings[0].signature) if judged.sightings else ""
            yield Shown(stage, judged.outcomes[0].outcome, signature)
            if any(sighting.signature.kind == seen.sighting.signature.kind for sighting in judged.sightings):
                return


def _add(found: dict[Signature, _Seen], sighting: Sighting, one: Chosen, text: str) -> None:
    known = found.setdefault(sighting.signature, _Seen(sighting, one))
    known.runs += 1
    known.forms.setdefault(one.form)
    known.dtypes.setdefault(one.dtype)
    if len(text) < len(known.sighting.program or ""):
        known.sighting, known.chosen = sighting, one


def forward_of(program: Program) -> Program:
    """A backward form without its gradient, for a stage that traces the backward by itself."""
    total = program.steps[-2].value
    value = total.args[0]  # type: ignore[union-attr]
    returns = value.value if isinstance(value, Attribute | Index) else value
    return replace(program, steps=program.steps[:-2], returns=returns)


def run_sweep(task: SweepTask) -> SweepResult:
    """Sweep one op. The journal is written before each thing is done."""
    started = cpu_seconds()
    note(Entry(task.index, "draw"))

    def runner(run: Run) -> Observation:
        note(Entry(task.index, run.stage, getattr(run.subject, "text", ""), semantics=str(run.semantics)))
        return observe(run)

    dropped: Counter[str] = Counter()
    sweep = _Sweep(task, runner)
    for one in chosen(task, dropped):
        sweep.screen(one)
    ordered = sorted(sweep.seen.values(), key=lambda seen: (seen.sighting.signature.kind != "dde", -seen.runs))
    failures = tuple(sweep.failed(seen, at < task.caps.confirmed) for at, seen in enumerate(ordered))
    swept = Swept(
        op=task.op,
        source=task.source,
        calls=tuple(sweep.calls),
        samples=len(sweep.samples),
        runs=sweep.runs,
        failures=failures,
        rescued=tuple(sorted(sweep.rescued)),
        sites=tuple(sorted(f"{file}:{line}" for _, file, line in sweep.ledger.fallback_sites)),
        dropped=dict(dropped),
        called=sweep.called,
        wrong=tuple(sweep.failed(seen, confirm=False) for seen in sweep.wrong.values()),
        cpu_seconds=cpu_seconds() - started,
    )
    return SweepResult(with_status(swept), tuple(sweep.sightings), sweep.ledger.drain())
