"""The check of a program or of the user's own code: its captures, its problems, and changes that are tried."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from ddefuzz.checking.changes import Advice, Candidate, Interface, Trial, TrialResult
from ddefuzz.checking.explain import summary
from ddefuzz.checking.owner import torch_itself
from ddefuzz.checking.problems import Problem, failures_of, problems_of
from ddefuzz.checking.report import CaptureResult, Offer, Report, captures_of, failed
from ddefuzz.checking.runs import (
    SILENT,
    START_SECONDS,
    Executor,
    Progress,
    Target,
    ThisProcess,
    of_case,
    run_cases,
    targets_of,
)
from ddefuzz.checking.search import advise, may_help
from ddefuzz.classify.classify import Classified
from ddefuzz.errors import NothingRanError
from ddefuzz.execute.pool import Lost, Pool
from ddefuzz.execute.protocol import (
    CAPTURE_STAGES,
    EXPLICIT,
    STAGES,
    CallableSubject,
    ProgramSubject,
    Semantics,
    Stage,
    Subject,
)
from ddefuzz.execute.scratch import check_folders
from ddefuzz.execute.worker import late
from ddefuzz.findings.textform import KnownFinding, default_folder, known_findings
from ddefuzz.internal import guarded, take
from ddefuzz.oracles.capture import KINDS
from ddefuzz.oracles.table import ORACLES
from ddefuzz.program.model import Program
from ddefuzz.program.text import print_program

DEFAULT_STAGES: tuple[Stage, ...] = ("export", "export-strict", "compile")


_NUMBERS = count(1)
"""Of live models."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to check.

    `oracles` are those with stages of their own that judge too. `timeout` is the limit of one capture in CPU seconds.
    Changes of the code of one case are tried for `budget` seconds by the clock; with None, none are tried. `known` is a
    folder of findings, by default `findings`.
    """

    stages: tuple[Stage, ...] = DEFAULT_STAGES
    oracles: tuple[str, ...] = ()
    semantics: tuple[Semantics, ...] = (EXPLICIT,)
    timeout: float = 60.0
    budget: float | None = 60.0
    known: Path | None = None


def check_named(
    target: str,
    options: Options,
    progress: Progress = SILENT,
    *,
    case: str | None = None,
    unbacked: str = "",
    jobs: int = 1,
) -> Report:
    """Check what a name stands for (`FILE:NAME`, `package.module:NAME`, a file), in workers.

    Raises InputError if it cannot be built, and NothingRanError for a file without cases.
    """
    workers = 1 if ":" in target or case is not None else jobs
    with Pool(workers, samples=False) as pool:
        return check_targets(pool, target, targets_of(pool, target, case, unbacked), options, progress)


def check_live(
    model: Callable[..., Any] | Program,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    unbacked: str | Mapping[Any, Any],
    options: Options,
) -> Report:
    """Check a callable or a program of this process, in this process.

    Torch's, Python's and numpy's random states are afterwards what they were. Raises InputError for arguments that do
    not fit, and RuntimeError for an exception of ddefuzz itself.
    """
    with _restored():
        if isinstance(model, Program):
            name, module = "program", None
            subject: Subject = ProgramSubject(print_program(model))
        else:
            name = getattr(model, "__name__", type(model).__name__)
            # User code is found by the name of its module: this one holds what is live already.
            module = ModuleType(f"ddefuzz_live_{next(_NUMBERS)}")
            given = {"": model, "_args": args, "_kwargs": kwargs, "_dynamic_shapes": dynamic_shapes}
            if not isinstance(unbacked, str):
                given["_unbacked"] = unbacked
            vars(module).update({f"model{suffix}": value for suffix, value in given.items() if value is not None})
            sys.modules[module.__name__] = module
            spec = unbacked if isinstance(unbacked, str) else ""
            subject = CallableSubject(module.__name__, name="model", unbacked=spec)
        try:
            report = check_targets(ThisProcess(), name, [Target(name, subject)], options, SILENT)
        finally:
            if module is not None:
                del sys.modules[module.__name__]
                vars(module).clear()  # the loader of user code remembers the module
    errors = take()
    if errors:
        raise RuntimeError("\n".join(map(str, errors)))
    return report


@contextmanager
def _restored() -> Iterator[None]:
    """Random states and the path of modules are what they were."""
    torch, numpy = late("torch"), sys.modules.get("numpy")
    path, state = list(sys.path), random.getstate()
    state_of_numpy = numpy.random.get_state() if numpy is not None else None
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        sys.path[:] = path
        random.setstate(state)
        if numpy is not None and state_of_numpy is not None:
            numpy.random.set_state(state_of_numpy)


def check_targets(
    executor: Executor, name: str, targets: Sequence[Target], options: Options, progress: Progress
) -> Report:
    """Check targets, where the executor does."""
    if not targets:
        raise NothingRanError(f"{name}: found an empty list CASES, expected at least one case")
    own = (stage.name for oracle in ORACLES if oracle.name in options.oracles for stage in oracle.stages)
    stages = (*(stage for stage in STAGES if stage in {"eager", *options.stages}), *own)
    runs, refused = run_cases(executor, targets, stages, options.semantics, options.timeout, progress)
    check_folders()
    capturing = tuple(stage for stage in stages if stage in CAPTURE_STAGES)
    advice: dict[str, Advice] = {}
    captures, problems = list[CaptureResult](), list[Problem]()
    for target, of_target in zip(targets, runs, strict=True):
        failures = [
            failure
            for failure in failures_of(of_target.tried)
            if failure.failure.kind in KINDS and failure.failure.observation.stage != "eager"
        ]
        if failures and options.budget is not None:
            progress.update(f"{target.case}: trying changes of your code")
            with of_case(target.case, refused):
                trial = trial_in(executor, options.timeout)
                advice[target.case] = _advice(executor, target.subject, failures, capturing, trial, options.budget)
        with guarded(target.case):
            captures += captures_of(of_target)
            problems += problems_of(of_target)
    return Report(
        name,
        torch_itself().version,
        not failed(captures),
        tuple(one for one in captures if one.stage != "eager" or "eager" in options.stages or one.outcome != "ok"),
        tuple(problems),
        changes=tuple(Offer(case, change) for case, found in advice.items() for change in found.changes),
        advice=tuple((case, msgspec.structs.replace(found, changes=())) for case, found in advice.items()),
        known=_known(problems, options.known),
        refused=tuple(refused),
    )


def _advice(
    executor: Executor,
    subject: Subject,
    failures: Sequence[Classified],
    stages: tuple[Stage, ...],
    trial: Trial,
    budget: float,
) -> Advice:
    """What helps with the failures of a case."""
    described = None
    if any(map(may_help, failures)):
        described = executor.submit(describe, subject, START_SECONDS).result()
    if described is None or isinstance(described, Lost):
        return Advice(summary(failures[0]))
    return advise(failures, subject, described, stages, trial, budget)


def trial_in(executor: Executor, seconds: float) -> Trial:
    """Tries a change where the executor does, within this time."""

    def trial(candidate: Candidate) -> TrialResult:
        found = executor.submit(try_change, candidate, seconds).result()
        return TrialResult(problem=f"ends in {found.outcome}: {found.reason}") if isinstance(found, Lost) else found

    return trial


def try_change(candidate: Candidate) -> TrialResult:
    """`trial.try_change` as a task, for a process that does not import torch."""
    tried: TrialResult = late("ddefuzz.checking.trial").try_change(candidate)
    return tried


def describe(subject: Subject) -> Interface:
    """`trial.describe` as a task."""
    described: Interface = late("ddefuzz.checking.trial").describe(subject)
    return described


def _known(problems: Sequence[Problem], folder: Path | None) -> tuple[KnownFinding, ...]:
    used = folder or default_folder()
    keys = [key for problem in problems for key in problem.keys]
    return known_findings(used, keys) if used is not None else ()
