"""The check of a program or of the user's own code: its captures, its problems, and changes that are tried."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from difflib import get_close_matches
from itertools import count
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from ddefuzz.checking.acceptance import Acceptance
from ddefuzz.checking.explain import with_experiments
from ddefuzz.checking.patch import Advice, Candidate, Interface, Notes, TrialResult, TryChange
from ddefuzz.checking.problems import CaseRuns, Problem, failures_of, problems_of, summary, torch_itself
from ddefuzz.checking.report import CaptureResult, Offer, Report, captures_of, failed
from ddefuzz.checking.search import advise, may_help
from ddefuzz.errors import InputError, NothingRanError, refuse
from ddefuzz.execute.limit import check_seconds
from ddefuzz.execute.pool import NO_MEMORY, Future, LostTask, Pool, lost_observation
from ddefuzz.execute.protocol import (
    CAPTURE_STAGES,
    DECOMPOSED,
    DEFAULT_STAGES,
    EXPLICIT,
    STAGES,
    TRACED,
    CallableSubject,
    Observation,
    ProgramSubject,
    Run,
    Semantics,
    Stage,
    Subject,
)
from ddefuzz.execute.scratch import check_folders
from ddefuzz.execute.worker import Task, late
from ddefuzz.files import is_file, is_there
from ddefuzz.findings.textform import default_folder, known_findings
from ddefuzz.instrument import torch_api
from ddefuzz.internal import guarded
from ddefuzz.oracles.capture import KINDS
from ddefuzz.oracles.program import Trial, TriedRun, calls_in, judge_run, tried_of
from ddefuzz.oracles.table import APART, NAMES, ORACLES, check_choice
from ddefuzz.program.model import Program
from ddefuzz.program.sizes import CallSize, check_sizes
from ddefuzz.program.text import print_program, read_program
from ddefuzz.show.blocks import counted

START_SECONDS = 120.0  # how long the user's module may take to import, torch with it

SAVED = ".pt2"

POLL_SECONDS = 0.1

A = TypeVar("A")
R = TypeVar("R")


class InlineTask(NamedTuple, Generic[R]):
    """A task that is done in this process when its result is asked for."""

    result: Callable[[], R | LostTask]

    def done(self) -> bool:
        """It is."""
        return True


class ThisProcess:
    """Does tasks in this process, without limits. Ctrl-C ends them."""

    def submit(self, function: Callable[[A], R], argument: A, _timeout: float, /) -> InlineTask[R]:
        """A task that is done when its result is asked for."""

        def call() -> R | LostTask:
            try:
                result = function(argument)
            except MemoryError:  # as in a worker, it says nothing about the code
                return LostTask("crash", NO_MEMORY)
            seen = (result.observation,) if isinstance(result, TriedRun) else getattr(result, "observations", ())
            # In a worker, only the code under test raises it.
            if any(one.exceptions and one.exceptions[0].name == "KeyboardInterrupt" for one in seen):
                raise KeyboardInterrupt
            return result

        return InlineTask(call)


Executor: TypeAlias = Pool | ThisProcess
"""What does tasks."""


class Progress(NamedTuple):
    """Where progress is told: lines that stay, and lines that the next one replaces."""

    say: Callable[[str], None] = lambda _: None
    update: Callable[[str], None] = lambda _: None


SILENT = Progress()


class Target(msgspec.Struct, frozen=True):
    """One thing to check, its name in the report, and its name among several targets."""

    case: str
    subject: Subject
    name: str = ""


class PlannedCapture(NamedTuple):
    """A capture to do, and its result when it is there."""

    target: Target
    run: Run
    task: Future[TriedRun] | InlineTask[TriedRun]


Refused: TypeAlias = dict[str, InputError]
"""Why the cases that cannot be built cannot."""

Remarks: TypeAlias = list[tuple[str, str]]
"""What else there is to say, each with its case."""


@contextmanager
def of_case(case: str, doing: str, remarks: Remarks) -> Iterator[None]:
    """If a case that was built cannot be built again, a remark says so and the block ends. So does an exception of
    ddefuzz.
    """
    try:
        with guarded(case):
            yield
    except InputError as error:
        remarks.append((case, f"{doing} ended early: {error}"))


def targets_of(executor: Executor, target: str, case: str | None, unbacked: str) -> list[Target]:
    """The targets that TARGET names. User code is imported only in a worker."""
    file, _, name = target.rpartition(":") if ":" in target and not is_there(Path(target)) else (target, "", "")
    path = Path(file)
    is_module = not is_file(path) and path.suffix not in (".py", SAVED) and all(map(str.isidentifier, file.split(".")))
    if not is_file(path) and not (is_module and name):
        raise InputError(
            f"{file}: found no such file, expected a program, FILE:NAME, package.module:NAME, "
            f"a saved program ({SAVED}) or a file with a list CASES"
        )
    if name or path.suffix == SAVED:
        if case is not None:
            raise InputError(f"{target}: found both a name and --case {case}, expected one of them")
        subject = CallableSubject(file, name=name or None, unbacked=unbacked)
        return [Target(name or path.stem, subject, target)]
    text = read_program(path)
    if text is not None:
        if case is not None or unbacked:
            option = f"--case {case}" if case is not None else f"--unbacked {unbacked}"
            raise InputError(f"{file}: found a program and {option}, expected user code")
        stored = ProgramSubject(text)
        stored.program(file)  # raises if it is none
        return [Target(path.stem, stored, target)]
    ids = executor.submit(list_cases, file, START_SECONDS).result()
    if isinstance(ids, LostTask):
        raise InputError(f"{file}: found a module whose import ends in {ids.outcome}: {ids.reason}")
    if case is not None and case not in ids:
        near = ", ".join(get_close_matches(case, ids) or ids[:5])
        raise InputError(f"{file}: found no case {case!r} among {len(ids)}, expected one such as {near}")
    if not ids:
        raise NothingRanError(f"{file}: found an empty list CASES, expected at least one case")
    chosen = [one for one in ids if case in (None, one)]
    return [Target(one, CallableSubject(file, case=one, unbacked=unbacked), f"{file}:{one}") for one in chosen]


list_cases = Task("ddefuzz.execute.subject:case_ids", str, tuple[str, ...])


def run_cases(
    executor: Executor,
    targets: Sequence[Target],
    stages: tuple[Stage, ...],
    semantics: tuple[Semantics, ...],
    timeout: float,
    progress: Progress,
    sizes: tuple[CallSize, ...] = (),
) -> tuple[list[CaseRuns], Refused, Remarks]:
    """All captures of all targets, then what is needed to explain those that fail. What is captured is called at the
    sizes of the oracles, and at `sizes`.

    Raises InputError if no target can be built.
    """
    refused: Refused = {}
    others = semantics if len(semantics) > 1 else ()
    planned = [
        PlannedCapture(target, run, executor.submit(judge_run, Trial(run, NAMES, others), timeout))
        for target in targets
        for run in _captures(target, stages, semantics, sizes)
    ]
    tried: dict[str, list[TriedRun]] = {target.case: [] for target in targets}
    for plan in planned:
        case, stage = plan.target.case, plan.run.stage
        tried[case].append(_tried(plan, progress, refused))
        if stage != "eager" and case not in refused:
            seen = tried[case][-1].observation
            done = "captured" if stage in STAGES else "done"
            progress.say(f"{case}: {stage} {done if seen.outcome == 'ok' else seen.outcome} in {seen.seconds:.1f} s")
    if refused and len(refused) == len(targets):
        raise next(iter(refused.values()))

    def runner(run: Run) -> Observation:
        task = executor.submit(judge_run, Trial(run, others=()), timeout)
        result = _waited(task, f"{run.stage}: looking for further problems", progress)
        return lost_observation(run, result) if isinstance(result, LostTask) else result.observation

    explained, remarks = [], Remarks()
    for target in targets:
        runs = CaseRuns(target.case, tuple(tried[target.case]))
        with of_case(target.case, "the search for further problems", remarks):
            runs = with_experiments(target.subject, runs, runner)
        explained.append(runs)
    return explained, refused, remarks


def _captures(
    target: Target, stages: tuple[Stage, ...], semantics: tuple[Semantics, ...], sizes: tuple[CallSize, ...]
) -> Iterator[Run]:
    if isinstance(target.subject, ProgramSubject):
        check_sizes(target.subject.program(), sizes)
    elif sizes:
        raise InputError(
            f"--sizes: found {target.case}, expected a program of ddefuzz: other code has its own arguments"
        )
    for stage in stages:
        is_capture = stage in TRACED
        calls = calls_in(stage, target.subject, NAMES, CAPTURE_STAGES)
        calls = (*calls, *sizes) if calls else ()
        for chosen in semantics if is_capture else semantics[:1]:
            yield Run(target.subject, stage, chosen, graph=is_capture and len(semantics) > 1, calls=calls)


def _tried(planned: PlannedCapture, progress: Progress, refused: Refused) -> TriedRun:
    run, case = planned.run, planned.target.case
    try:
        with guarded(case) as guard:
            result = _waited(planned.task, f"{case}: {run.stage}", progress)
            return tried_of(lost_observation(run, result)) if isinstance(result, LostTask) else result
        reason = guard.reason
    except InputError as error:
        reason = str(refused.setdefault(case, error))
    return TriedRun(Observation(run.stage, run.semantics, "not-judged", reason))


def _waited(task: Future[R] | InlineTask[R], doing: str, progress: Progress) -> R | LostTask:
    started = time.monotonic()
    while not task.done():
        time.sleep(POLL_SECONDS)
        progress.update(f"{doing}, {time.monotonic() - started:.0f} s")
    return task.result()


_NUMBERS = count(1)  # of live models

_LIVE = RLock()
"""Held by a check in this process: it redirects the streams, and resets torch, for all threads."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to check.

    `oracles` are those with stages of their own that judge too. `timeout` is the limit of one capture in CPU seconds.
    Changes of the code of one case are tried for `budget` CPU seconds; with None, none are. `known` is a folder of
    findings, by default `findings`. What is captured of a program is called at the `sizes`, too. Problems that are
    `accepted` do not fail. Raises InputError for names that do not exist, and times that are none.
    """

    stages: tuple[Stage, ...] = DEFAULT_STAGES
    oracles: tuple[str, ...] = ()
    semantics: tuple[Semantics, ...] = (EXPLICIT,)
    timeout: float = 60.0
    budget: float | None = 60.0
    known: Path | None = None
    sizes: tuple[CallSize, ...] = ()
    accepted: tuple[Acceptance, ...] = ()

    def __post_init__(self) -> None:
        check_choice("stages", self.stages, STAGES, some=True)
        check_choice("oracles", self.oracles, APART)
        check_seconds("timeout: ", self.timeout)
        if self.budget is not None:
            check_seconds("budget: ", self.budget, none=True)


def check_named(
    names: Sequence[str],
    options: Options,
    progress: Progress = SILENT,
    *,
    case: str | None = None,
    unbacked: str = "",
    jobs: int = 1,
    whole_names: bool = False,
) -> Report:
    """Check what names stand for (`FILE:NAME`, `package.module:NAME`, a file), in workers.

    Among several names, one that cannot be built is refused (`errors.refuse`). Then, or with `whole_names`, a case has
    the name of its target in the report. Raises InputError if none can be built, and NothingRanError for a file without
    cases.
    """
    names = tuple(dict.fromkeys(names))
    is_single = len(names) == 1
    workers = 1 if is_single and (":" in names[0] or case is not None) else jobs
    with Pool(workers, samples=False) as pool:
        targets: list[Target] = []
        for name in names:
            try:
                targets += targets_of(pool, name, case, unbacked)
            except (InputError, NothingRanError) as error:
                if is_single or (name == names[-1] and not targets):
                    raise
                refuse(InputError(str(error)))
        if whole_names or not is_single:
            targets = [msgspec.structs.replace(target, case=target.name) for target in targets]
        return check_targets(pool, names[0] if is_single else counted(len(names), "target"), targets, options, progress)


def check_live(
    model: Callable[..., Any] | Program,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    unbacked: str | Mapping[Any, Any],
    options: Options,
) -> Report:
    """Check a callable or a program of this process, in this process, one at a time.

    Torch's, Python's and numpy's random states are afterwards what they were. Raises InputError for arguments that do
    not fit.
    """
    with _LIVE, state_kept():
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
            return check_targets(ThisProcess(), name, [Target(name, subject)], options, SILENT)
        finally:
            if module is not None:
                del sys.modules[module.__name__]
                vars(module).clear()  # the loader of user code remembers the module


@contextmanager
def state_kept() -> Iterator[None]:
    """Random states and the path of modules are what they were. Torch's trace, which pytest would print, is off."""
    torch, numpy = late("torch"), sys.modules.get("numpy")
    trace = torch_api.TRACE_LOG.get()
    was_disabled, trace.disabled = trace.disabled, True
    path, state = list(sys.path), random.getstate()
    state_of_numpy = numpy.random.get_state() if numpy is not None else None
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        trace.disabled = was_disabled
        sys.path[:] = path
        random.setstate(state)
        if numpy is not None and state_of_numpy is not None:
            numpy.random.set_state(state_of_numpy)


def judged_stages(of_target: CaseRuns, capturing: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The stages that a change has to pass: those that could judge the target without it."""
    judged = {one.observation.stage for one in of_target.tried if one.observation.outcome != "not-judged"}
    return tuple(stage for stage in capturing if stage in judged)


def check_targets(
    executor: Executor, name: str, targets: Sequence[Target], options: Options, progress: Progress
) -> Report:
    """Check targets, where the executor does."""
    of_oracles = (stage.name for oracle in ORACLES if oracle.name in options.oracles for stage in oracle.stages)
    stages = (*(stage for stage in STAGES if stage in {"eager", *options.stages}), *of_oracles)
    runs, refused, remarks = run_cases(
        executor, targets, stages, options.semantics, options.timeout, progress, options.sizes
    )
    check_folders()
    capturing = tuple(stage for stage in stages if stage in CAPTURE_STAGES)
    advice: dict[str, Advice] = {}
    captures, problems = list[CaptureResult](), list[Problem]()
    accepted = tuple((target.case, one) for target in targets for one in options.accepted if one.target == target.name)
    for target, of_target in zip(targets, runs, strict=True):
        failures = [
            failure
            for failure in failures_of(of_target.tried)
            if failure.failure.kind in KINDS and failure.failure.observation.stage != "eager"
        ]
        own_captures: tuple[CaptureResult, ...] = ()
        with guarded(target.case):
            own_captures = captures_of(of_target)
            captures += own_captures
            problems += problems_of(of_target)
        own = [one for one in accepted if one[0] == target.case]
        is_accepted = bool(own) and not failed(own_captures, own)
        if failures and options.budget is not None and not is_accepted:
            progress.update(f"{target.case}: trying changes of your code")
            with of_case(target.case, "the search for changes", remarks):
                helps = any(map(may_help, failures))
                interface = executor.submit(describe, target.subject, START_SECONDS).result() if helps else None
                advice[target.case] = Advice(summary(failures[0]))
                if isinstance(interface, Interface):
                    trial, judged = trial_in(executor, options.timeout), judged_stages(of_target, capturing)
                    advice[target.case] = advise(failures, target.subject, interface, judged, trial, options.budget)
        passed = [one.observation.stage for one in of_target.tried if one.observation.outcome == "ok"]
        trying = tuple(stage for stage in capturing if stage in passed)
        if isinstance(target.subject, CallableSubject) and trying and not failures and options.budget is not None:
            trying += (DECOMPOSED,) if "compile" in trying and DECOMPOSED not in trying else ()
            progress.update(f"{target.case}: calling what was captured on other inputs")
            told = executor.submit(notes, Candidate(target.subject, trying, may_refuse=True), options.timeout).result()
            remarks += [(target.case, line) for line in (told.lines if isinstance(told, Notes) else ())]
    known = options.known or default_folder()
    return Report(
        name,
        torch_itself().version,
        not failed(captures, accepted),
        tuple(one for one in captures if one.stage != "eager" or "eager" in options.stages or one.outcome != "ok"),
        tuple(problems),
        changes=tuple(Offer(case, change) for case, found in advice.items() for change in found.changes),
        advice=tuple((case, msgspec.structs.replace(found, changes=())) for case, found in advice.items()),
        known=known_findings(known, [key for one in problems for key in one.keys]) if known is not None else (),
        refused=tuple(refused),
        notes=tuple(remarks),
        accepted=accepted,
    )


def trial_in(executor: Executor, seconds: float) -> TryChange:
    """Tries a change where the executor does, within this time."""

    def trial(candidate: Candidate) -> TrialResult:
        result = executor.submit(try_change, candidate, seconds).result()
        return (
            TrialResult(problem=f"ends in {result.outcome}: {result.reason}", cpu_seconds=seconds)
            if isinstance(result, LostTask)
            else result
        )

    return trial


def try_change(candidate: Candidate) -> TrialResult:
    """`trial.try_change` as a task, for a process that does not import torch."""
    with _kept_apart(candidate.subject):
        return cast("TrialResult", late("ddefuzz.checking.trial").try_change(candidate))


def notes(candidate: Candidate) -> Notes:
    """`trial.notes` as a task."""
    with _kept_apart(candidate.subject):
        return cast("Notes", late("ddefuzz.checking.trial").notes(candidate))


def describe(subject: Subject) -> Interface:
    """`trial.describe` as a task."""
    with _kept_apart(subject):
        return cast("Interface", late("ddefuzz.checking.trial").describe(subject))


def _kept_apart(subject: Subject) -> AbstractContextManager[None]:
    return cast("AbstractContextManager[None]", late("ddefuzz.execute.observe").kept_apart(subject))
