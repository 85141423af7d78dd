"""Sweep one op in a worker: run every form of its samples in the fake stage, and each failure in a capture stage."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

import torch

from ddefuzz.artifacts.breaks import find_breaks
from ddefuzz.artifacts.model import Cause
from ddefuzz.campaign.case import result_of
from ddefuzz.campaign.tasks import CaseResult
from ddefuzz.classify.signature import Signature
from ddefuzz.errors import UnsupportedError
from ddefuzz.execute.journal import Entry
from ddefuzz.execute.limit import cpu_seconds
from ddefuzz.execute.observe import observe, observe_in
from ddefuzz.execute.preparation import PreparedSubject
from ddefuzz.execute.protocol import (
    DECOMPOSED,
    EXPLICIT,
    FRONTENDS,
    SCREEN,
    Observation,
    Outcome,
    ProgramSubject,
    Run,
    Runner,
    Stage,
)
from ddefuzz.execute.worker import note
from ddefuzz.findings.ledger import Ledger
from ddefuzz.findings.model import Sighting
from ddefuzz.generate import opinfo
from ddefuzz.generate.lockstep import tolerant_eager
from ddefuzz.generate.make import singles, spread
from ddefuzz.generate.opinfo import entries
from ddefuzz.generate.variants import all_unbacked, is_well_formed, placed, variants
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Place
from ddefuzz.ops.catalogue import OPS
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.oracles.program import CAPTURE, JudgedRun, judge_program
from ddefuzz.oracles.table import calls_of, comparing
from ddefuzz.program.model import Attribute, Index, Program, functions_in
from ddefuzz.program.sizes import static
from ddefuzz.program.text import digest, print_program
from ddefuzz.sweep.breaks import BreakSite, OpBreaks, OpBreaksTask
from ddefuzz.sweep.tasks import (
    STATIC,
    Caps,
    DescribeTask,
    OpFailure,
    OpResult,
    StageResult,
    SweepResult,
    SweepTask,
    UpstreamResult,
    UpstreamTask,
    Versions,
    with_status,
)

CAPS = Caps(full=0, some=0, others=0)
"""Samples in their plainest form only: all dims unbacked."""


def run_breaks(task: OpBreaksTask) -> OpBreaks:
    """Compile up to `task.programs` programs."""
    dropped: Counter[str] = Counter()
    candidates = chosen(SweepTask(task.op, task.source, 0, CAPS), dropped)
    taken = islice((one for one in candidates if one.form in PLAINEST_FORMS), task.programs)
    texts_of: dict[tuple[str, ...], tuple[Cause, list[str]]] = {}
    errors: Counter[str] = Counter()
    programs = broken = graphs = 0
    for candidate in taken:
        text = print_program(candidate.program)
        note(Entry(0, "compile", text))
        seen = find_breaks(ProgramSubject(text))
        programs += 1
        broken += bool(seen.breaks)
        graphs += seen.graphs
        errors.update([seen.error] if seen.error else [])
        for each in seen.breaks:
            cause = each.cause
            key = (cause.kind, cause.site, cause.anchor, cause.cause)
            texts_of.setdefault(key, (cause, []))[1].append(text)
    sites = [BreakSite(cause, len(set(texts)), min(texts, key=len)) for cause, texts in texts_of.values()]
    ordered = sorted(sites, key=lambda site: -site.programs)
    return OpBreaks(task.op, task.source, programs, broken, graphs, tuple(ordered), dict(errors))


UPSTREAM = Run(ProgramSubject(""), "compile")


def run_upstream(task: UpstreamTask) -> UpstreamResult:
    """How upstream's own test ends on an entry."""
    started = time.process_time()
    info = opinfo.entry(task.op)
    tried = 0
    failure: tuple[str, str, str] | None = None
    for args, kwargs in _samples(info) if opinfo.takes(task.op, "float32") else ():
        if not any(_dims(tensor) for tensor in _tensors(args, kwargs)):
            continue
        if tried == task.samples:
            break
        tried += 1
        failure = _failure(info.op, args, kwargs)
        if failure is not None:
            break
    kind, signature, message = failure or ("", "", "")
    outcome = "fail" if failure else "ok" if tried else "no-sample"
    spent = time.process_time() - started
    return UpstreamResult(task.op, outcome, kind, signature, message[:200], tried, spent)  # type: ignore[arg-type]


def _samples(info: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    torch.manual_seed(0)
    with tolerant_eager():
        listed = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
    return [((sample.input, *sample.args), dict(sample.kwargs)) for sample in listed]


def _tensors(args: Any, kwargs: Any) -> list[torch.Tensor]:
    leaves = torch_api.bound(torch_api.TREE_LEAVES)((args, kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _dims(tensor: torch.Tensor) -> list[int]:
    return [dim for dim in range(tensor.ndim) if tensor.shape[dim] >= 2]


def _failure(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str, str] | None:
    """Kind, signature and message of what ends the test of one sample."""
    try:
        with tolerant_eager():
            op(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        copied = copy.deepcopy((args, kwargs))
    except Exception as error:  # noqa: BLE001 upstream's code: that it fails before any capture is a result
        return "eager", f"{type(error).__name__} in eager", str(error).partition("\n")[0]
    observation = observe_in(partial(_stage, op, *copied), lambda: PreparedSubject(op, ()), UPSTREAM)
    failures = judge([observation])
    if not failures:
        return None
    classified = classify(failures[0])
    return classified.signature.kind, str(classified.signature), failures[0].evidence


def _stage(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], prepared: PreparedSubject) -> None:
    del prepared
    for tensor in _tensors(args, kwargs):
        for dim in _dims(tensor):
            torch_api.bound(torch_api.MARK_UNBACKED)(tensor, dim)

    def compiled(*given: Any, **named: Any) -> Any:
        return op(*given, **named)

    by_default = torch_api.changed_settings(
        torch_api.DYNAMO_CONFIG, {torch_api.CAPTURE_SCALARS: False, torch_api.CAPTURE_DYNAMIC_SHAPES: False}
    )
    with by_default:
        torch.compile(compiled, backend="eager", fullgraph=True)(*args, **kwargs)


SOME_FORMS: Final = frozenset({"static", "all", "every", "shared", "mask", "number", "scalar"})
PLAIN_FORMS: Final = frozenset({"all"})
OTHER_DTYPES_FORMS: Final = frozenset({"all", "every"})


class Candidate(NamedTuple):
    """A program to run, and the name of its form."""

    form: str
    dtype: str
    program: Program
    sample: int


def chosen(task: SweepTask, dropped: Counter[str]) -> Iterator[Candidate]:
    """The programs of an op in the order in which they are run, each once. All of them run in eager."""
    seen = set(task.skip)
    for candidate in _candidates(task, dropped):
        name = digest(candidate.program)
        if name not in seen:
            seen.add(name)
            yield candidate


def _candidates(task: SweepTask, dropped: Counter[str]) -> Iterator[Candidate]:
    caps = task.caps
    if task.source == "catalogue":
        specs = [spec for spec in OPS if str(spec) == task.op]  # one template may have several rows
        drawn = (program for spec in specs for program in singles(spec, caps.drawn))
        for number, program in enumerate(drawn):
            dtype = program.inputs[0].dtype if program.inputs else ""
            yield Candidate("drawn", dtype, program, number)
            if len(program.steps) == 1 and not _unbacked_dims(program):
                yield from _forms(program, number, dtype, None)
        return
    taken = opinfo.dtypes(task.op)
    if caps.placed:
        samples = spread(opinfo.samples(task.op, taken[0], dropped)) if taken else []
        sized = [program for program in samples if all_unbacked(program) != program]
        for number, program in enumerate(sized[: caps.placed]):
            made = (one for one in placed(program) if is_well_formed(one.program) and opinfo.accepts(one.program))
            yield from (Candidate(one.name, taken[0], one.program, number) for one in made)
        return
    number = effort = 0
    for dtype in taken[:1]:
        for program in spread(opinfo.samples(task.op, dtype, dropped))[: caps.samples]:
            allowed = None if number < caps.full else SOME_FORMS if number < caps.some else PLAIN_FORMS
            for candidate in _forms(program, number, dtype, allowed):
                effort += 1 + _unbacked_dims(candidate.program)
                if effort <= caps.effort:
                    yield candidate
            number += 1
    for dtype in (dtype for dtype in taken[1:] if dtype in opinfo.DTYPES):
        for program in spread(opinfo.samples(task.op, dtype))[: caps.others]:
            yield from _forms(program, number, dtype, OTHER_DTYPES_FORMS)
            number += 1


def _unbacked_dims(program: Program) -> int:
    return sum(dim.symbol is not None for item in program.inputs for dim in item.shape)


def _forms(program: Program, number: int, dtype: str, allowed: frozenset[str] | None) -> Iterator[Candidate]:
    """The forms of a program. Of the candidates of one name, the first that runs in eager."""
    accepted = set()
    for form, made in variants(program):
        if (allowed is None or _kind(form) in allowed) and form not in accepted and opinfo.accepts(made):
            accepted.add(form)
            yield Candidate(form, dtype, made, number)


def _kind(form: str) -> str:
    """The kind of a form: `number` of `number 2`."""
    return form.partition(" ")[0]


SWEEP_VERSION: Final = 5
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


PLAINEST_FORMS: Final = frozenset({"all", "drawn"})
"""All dims unbacked, or as the catalogue draws them."""

CALLED_FORMS: Final = PLAINEST_FORMS | {"number", "scalar"}
"""The forms of samples that are called: these, and a number from data."""

CALLED_IN_TURN: Final[tuple[Stage, ...]] = (*FRONTENDS, DECOMPOSED)
"""The stages in which samples are called: those that capture, and AOTAutograd with inductor's decompositions."""

CALLED_WITH_PLACEMENTS: Final[tuple[Stage, ...]] = ("compile", "aot")
"""The stages in which samples are called whose inputs are DTensors. Values are compared in the first one alone."""


@dataclass(slots=True)
class _SignatureRuns:
    """One signature, as it is collected."""

    sighting: Sighting
    chosen: Candidate
    forms: dict[str, None] = field(default_factory=dict)
    dtypes: dict[str, None] = field(default_factory=dict)
    runs: int = 0


@dataclass(slots=True)
class _Sweep:
    """One op's sweep so far."""

    task: SweepTask
    runner: Runner
    ledger: Ledger = field(default_factory=Ledger)
    seen: dict[Signature, _SignatureRuns] = field(default_factory=dict)
    wrong: dict[Signature, _SignatureRuns] = field(default_factory=dict)
    called: int = 0
    turns: int = 0
    rescued: dict[str, None] = field(default_factory=dict)
    sightings: list[Sighting] = field(default_factory=list)
    calls: dict[str, None] = field(default_factory=dict)
    samples: set[int] = field(default_factory=set)
    runs: int = 0
    compared: dict[frozenset[Place], Outcome] = field(default_factory=dict)
    latest: Observation = field(default_factory=lambda: Observation(SCREEN, EXPLICIT, "ok"))
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def screening(self) -> Stage:
        """The stage that runs first. FakeTensorMode makes no DTensors."""
        return "compile" if self.task.caps.placed else SCREEN

    def screen(self, candidate: Candidate) -> None:
        """Run a program in the first stage under explicit semantics, and compare it with size-oblivious
        semantics.
        """
        text = print_program(candidate.program)
        runs = judge_program(text, (self.screening,), (EXPLICIT,), self._once_for_each_difference)
        judged = result_of(text, runs, self.runner)
        if judged.sightings and self._fails_at_static_sizes(candidate, self.screening, CAPTURE):
            self.dropped[STATIC] += 1
            return
        self.runs += 1
        self.samples.add(candidate.sample)
        self.calls.update(
            dict.fromkeys(functions_in(candidate.program)) if candidate.form in ("static", "drawn") else {}
        )
        self._count(judged, text)
        if judged.outcomes[0].verdict == "rescued":
            undecided = (at.place for of in judged.reached for at in of.reached if at.old == "undecided")
            self.rescued.update(dict.fromkeys(f"{place.file}:{place.line}" for place in undecided))
        for sighting in judged.sightings:
            _add(self.seen, sighting, candidate, text)
        if not judged.sightings and (self.task.caps.placed or _kind(candidate.form) in CALLED_FORMS):
            self._call(candidate, text)

    def _fails_at_static_sizes(self, candidate: Candidate, stage: Stage, oracles: tuple[str, ...]) -> bool:
        """Whether inputs are DTensors, and the program fails with static sizes, too: many ops do not take DTensors."""
        if not self.task.caps.placed:
            return False
        (judged,) = self._judged(print_program(static(candidate.program)), stage, oracles)
        return judged.observation.outcome != "ok" or bool(judged.failures)

    def _call(self, candidate: Candidate, text: str) -> None:
        """Capture a program and call it, in one of the stages in turn."""
        oracles = tuple(name for name in self.task.oracles if calls_of((name,)))
        if not oracles:
            return
        stages = CALLED_WITH_PLACEMENTS if self.task.caps.placed else CALLED_IN_TURN
        stage = stages[self.turns % len(stages)]
        self.turns += 1
        judged = self._judged(text, stage, oracles)
        self.called += bool(judged[0].observation.calls)
        seen = result_of(text, judged, self.runner)
        if seen.sightings and self._fails_at_static_sizes(candidate, stage, oracles):
            return
        self._count(seen, text)
        self.sightings += seen.sightings
        for sighting in seen.sightings:
            _add(self.wrong, sighting, candidate, text)

    def _judged(self, text: str, stage: Stage, oracles: tuple[str, ...]) -> tuple[JudgedRun, ...]:
        compare = bool(comparing(oracles))
        return judge_program(text, (stage,), (EXPLICIT,), self.runner, oracles=oracles, compare=compare, sampled=True)

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

    def _count(self, judged: CaseResult, text: str) -> None:
        self.ledger.add(((of.stage, of.reached) for of in judged.reached), text)

    def failed(self, seen: _SignatureRuns, confirm: bool) -> OpFailure:
        """A signature with the results of capture stages on its shortest program."""
        sighting = seen.sighting
        failure = OpFailure(
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
        self.sightings += [sighting] if failure.is_recorded else []
        return failure

    def _confirmed(self, seen: _SignatureRuns) -> Iterable[StageResult]:
        is_backward = seen.chosen.form == "backward"
        program = forward_of(seen.chosen.program) if is_backward else seen.chosen.program
        text = print_program(program)
        stages = ("compile",) if self.task.caps.placed else CONFIRMING
        for stage in ("aot",) if is_backward else stages:
            judged = result_of(text, judge_program(text, (stage,), (EXPLICIT,), self.runner), self.runner)
            self.sightings += judged.sightings
            self._count(judged, text)
            signature = str(judged.sightings[0].signature) if judged.sightings else ""
            yield StageResult(stage, judged.outcomes[0].outcome, signature)
            if any(sighting.signature.kind == seen.sighting.signature.kind for sighting in judged.sightings):
                return


def _add(runs: dict[Signature, _SignatureRuns], sighting: Sighting, candidate: Candidate, text: str) -> None:
    known = runs.setdefault(sighting.signature, _SignatureRuns(sighting, candidate))
    known.runs += 1
    known.forms.setdefault(candidate.form)
    known.dtypes.setdefault(candidate.dtype)
    if len(text) < len(known.sighting.program or ""):
        known.sighting, known.chosen = sighting, candidate


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

    sweep = _Sweep(task, runner)
    for candidate in chosen(task, sweep.dropped):
        sweep.screen(candidate)
    ordered = sorted(sweep.seen.values(), key=lambda seen: (seen.sighting.signature.kind != "dde", -seen.runs))
    failures = tuple(sweep.failed(seen, at < task.caps.confirmed) for at, seen in enumerate(ordered))
    swept = OpResult(
        op=task.op,
        source=task.source,
        calls=tuple(sweep.calls),
        samples=len(sweep.samples),
        runs=sweep.runs,
        failures=failures,
        rescued=tuple(sorted(sweep.rescued)),
        sites=tuple(sorted(f"{file}:{line}" for _, file, line in sweep.ledger.fallback_sites)),
        dropped=dict(sweep.dropped),
        called=sweep.called,
        wrong=tuple(sweep.failed(seen, confirm=False) for seen in sweep.wrong.values()),
        cpu_seconds=cpu_seconds() - started,
    )
    return SweepResult(with_status(swept), tuple(sweep.sightings), sweep.ledger.drain())
