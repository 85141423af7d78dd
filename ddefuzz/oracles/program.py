"""Judges one program: runs it in a stage, applies the chosen oracles, and checks whether it shows a known failure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple, cast
from zlib import crc32

import msgspec

from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature
from ddefuzz.execute.protocol import (
    CHEAP_TO_CALL,
    COMPILES,
    EXPLICIT,
    SIZE_OBLIVIOUS,
    STAGES,
    Observation,
    ProgramSubject,
    Run,
    Runner,
    Semantics,
    Stage,
    Subject,
    subject_of,
)
from ddefuzz.execute.worker import late
from ddefuzz.internal import guarded
from ddefuzz.keys.case import parse_key
from ddefuzz.ops import catalogue
from ddefuzz.oracles import capture
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.capture import classify
from ddefuzz.oracles.oracle import attributed
from ddefuzz.oracles.table import ORACLES, calls_of, classified, comparing, oracle_of, own_stage
from ddefuzz.oracles.verdict import Verdict, is_mostly_alike, needs_second_run, verdict
from ddefuzz.program.sizes import CallSize, at_data_size
from ddefuzz.program.text import is_key, print_program, read_text


def check_case(text: str, where: str) -> tuple[str, ...]:
    """The expectations of a stored case: a program, or a key, which has none. Raises InputError if it is neither."""
    if is_key(text):
        parse_key(text, where)
        return ()
    return catalogue.parse(text, where).expect


def read_case(path: Path) -> str:
    """The text of a stored case. Raises InputError if it is none."""
    text = read_text(path)
    check_case(text, str(path))
    return text


CAPTURE: tuple[str, ...] = ("capture",)  # the oracle that every run is judged by


SAMPLED, ALIKE_SAMPLED = 2, 8
"""In a campaign, one of so many programs is run with size-oblivious semantics too, and one of so many if the two differ
only in memory formats. A second capture costs as much as the first, and guards come again in other programs.
"""


def observe(run: Run) -> Observation:
    """Do one run in this process, in a stage of an oracle too. It is also a task of a worker.

    Raises InputError if the subject cannot be used and UnsupportedError if this torch cannot be watched.
    """
    observing, own = late("ddefuzz.execute.observe"), own_stage(run.stage)
    if own is None:
        return cast("Observation", observing.observe(run))
    module, _, name = own.run.partition(":")
    return cast("Observation", observing.observe_own(run, getattr(late(module), name)))


class Suspect(msgspec.Struct, frozen=True):
    """A program that should show a signature in a stage under a semantics, when it is called at the given sizes.

    `trust` is that of the subject.
    """

    program: str
    signature: Signature
    stage: Stage
    semantics: Semantics = EXPLICIT
    calls: tuple[CallSize, ...] = ()
    trust: bool = False


def suspect_of(program: str, signature: Signature, failure: Failure, *, trust: bool = False) -> Suspect:
    """A program that should show a signature as an observed failure does: same stage, semantics and sizes."""
    seen = failure.observation
    return Suspect(program, signature, seen.stage, seen.semantics, tuple(call.size for call in seen.calls), trust)


def shows(suspect: Suspect, text: str, runner: Runner) -> Failure | None:
    """The failure by which a program shows the suspected signature; None if it does not."""
    run = Run(subject_of(text, trust=suspect.trust), suspect.stage, suspect.semantics, calls=suspect.calls)
    oracle = oracle_of(suspect.signature.kind)
    seen = look(run, runner, (SIZE_OBLIVIOUS,) if oracle.compares else ())[0]._replace(expected=suspect.signature)
    of_kind = (failure for failure in oracle.judge(seen) if failure.kind == suspect.signature.kind)
    shown = (one for one in of_kind if attributed(oracle, one, seen, runner).signature == suspect.signature)
    return next(shown, None)


def at_example(classified: Classification, text: str, runner: Runner) -> tuple[Classification, str]:
    """A failure at drawn sizes as one of a program that has these sizes as its example, and that program.

    If that program does not fail alike, both are as they were given.
    """
    failure = classified.failure
    if "=" not in (failure.size or "") or is_key(text):
        return classified, text
    resized = print_program(at_data_size(catalogue.parse(text, "<program>").program, str(failure.size)))
    seen = failure.observation
    suspect = Suspect(resized, classified.signature, seen.stage, seen.semantics, ("example",))
    shown = shows(suspect, resized, runner)
    return (classified, text) if shown is None else (msgspec.structs.replace(classified, failure=shown), resized)


def look(run: Run, runner: Runner, others: Iterable[Semantics], *, sampled: bool = False) -> tuple[OracleInput, ...]:
    """Look at a run; a run with explicit semantics is compared with a run under each of the others.

    Size-oblivious semantics are run only if a fallback is not their answer. If they capture the same program, it is not
    called again. With `sampled`, that is done for a sample of the programs.
    """
    text = run.subject.text if isinstance(run.subject, ProgramSubject) else ""
    first = runner(run)
    if run.semantics.mechanism != "explicit":
        return (OracleInput(text, first),)
    one_of = ALIKE_SAMPLED if is_mostly_alike(first) else SAMPLED
    differs = needs_second_run(first) and not (sampled and crc32(text.encode()) % one_of)
    needed = [one for one in others if one != run.semantics and (one != SIZE_OBLIVIOUS or differs)]
    runs = (msgspec.structs.replace(run, semantics=one, called=first.digest) for one in needed)
    seen = tuple(OracleInput(text, first, runner(one)) for one in runs)
    return seen or (OracleInput(text, first),)


def kept(failure: Failure) -> Failure:
    """The part of a failure that a finding stores, as its oracle says."""
    return oracle_of(failure.kind).keep(failure)


def safe(runner: Runner) -> Runner:
    """The runner, whose own exceptions are observations: the run is not judged."""

    def run_safely(run: Run) -> Observation:
        with guarded(run.stage) as guard:
            return runner(run)
        return Observation(run.stage, run.semantics, "not-judged", guard.reason)

    return run_safely


class JudgedRun(NamedTuple):
    """A program in one stage under one semantics.

    `second` is the run under size-oblivious semantics, if the verdict needed one. `verdict` is empty if the two
    semantics were not compared.
    """

    observation: Observation
    second: Observation | None
    verdict: Verdict | Literal[""]
    failures: tuple[Classification, ...]


def judge_program(
    text: str,
    stages: Iterable[Stage],
    semantics: tuple[Semantics, ...],
    runner: Runner,
    *,
    oracles: tuple[str, ...] = CAPTURE,
    compare: bool = True,
    called: tuple[Stage, ...] = CHEAP_TO_CALL,
    sampled: bool = False,
    seed: int = 0,
) -> tuple[JudgedRun, ...]:
    """Run a program in every stage and semantics. Without `compare`, there is no verdict on size-oblivious
    semantics; with `sampled`, there may be none (see `look`). What the stages `called` capture is called, if an oracle
    needs that, also at sizes drawn with `seed`.

    A stage that is slow to call is left out if a cheap one did not capture the program. What else is wrong in a cheap
    one may be known, and less severe than what the slow one would show.
    """
    judged: list[JudgedRun] = []
    for stage in stages:
        if stage in called and stage not in CHEAP_TO_CALL and any(map(_is_uncaptured, judged)):
            continue
        subject = ProgramSubject(text)
        example: tuple[CallSize, ...] = ("example",) if compare and stage in CHEAP_TO_CALL else ()
        calls = calls_in(stage, subject, oracles, called) or example
        for chosen in semantics:
            run = Run(subject, stage, chosen, graph=compare, calls=calls, seed=seed)
            is_slow = bool(calls) and stage in COMPILES  # the cheap stages compare semantics
            others = (SIZE_OBLIVIOUS,) if compare and not is_slow else ()
            (seen,) = look(run, safe(runner), others, sampled=sampled)
            failures = classified(seen, runner, oracles)
            compared = compare and chosen.mechanism == "explicit"
            verdict_of_run: Verdict | Literal[""] = ""
            if compared and (seen.second is not None or not needs_second_run(seen.observation)):
                with guarded(stage), guarded("the verdict"):
                    verdict_of_run = verdict(seen.observation, seen.second)
            judged.append(JudgedRun(seen.observation, seen.second, verdict_of_run, failures))
    return tuple(judged)


def _is_uncaptured(run: JudgedRun) -> bool:
    return run.observation.outcome == "fail" and run.failures != ()


def calls_in(
    stage: Stage, subject: Subject, oracles: Iterable[str], called: tuple[Stage, ...] = CHEAP_TO_CALL
) -> tuple[CallSize, ...]:
    """The sizes at which oracles need calls of what a stage captured. User code is called as its example only."""
    if stage not in STAGES:
        names = set(oracles)
        return next((one.calls for one in ORACLES if one.name in names and one.is_for(stage)), ())
    if stage not in called:
        return ()
    wanted = calls_of(oracles)
    return wanted if isinstance(subject, ProgramSubject) else wanted[:1]


def called_of(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """The stages whose captured programs are called where these are chosen: the cheap ones, else those that compile."""
    chosen = tuple(stages)
    cheap = tuple(stage for stage in chosen if stage in CHEAP_TO_CALL)
    return cheap or tuple(stage for stage in chosen if stage in COMPILES)


class Trial(msgspec.Struct, frozen=True):
    """A run to do, and the names of the oracles that judge it. For `others` and `sampled` see `look`."""

    run: Run
    oracles: tuple[str, ...] = CAPTURE
    others: tuple[Semantics, ...] = (SIZE_OBLIVIOUS,)
    sampled: bool = False


class TriedRun(msgspec.Struct, frozen=True):
    """A run that was done, and the failures that the oracles report for it."""

    observation: Observation
    failures: tuple[Classification, ...] = ()


def judge_run(trial: Trial) -> TriedRun:
    """Run and judge, as a task of a worker."""
    seen = look(trial.run, safe(observe), trial.others if comparing(trial.oracles) else (), sampled=trial.sampled)
    failures = [
        *classified(seen[0], observe, trial.oracles),
        *(one for more in seen[1:] for one in classified(more, observe, comparing(trial.oracles))),
    ]
    return TriedRun(seen[0].observation, tuple(failures))


def tried_of(observation: Observation) -> TriedRun:
    """Judge an observation without calls, such as that of a lost worker."""
    failures = list[Classification]()
    for failure in capture.judge([observation]):
        with guarded(observation.stage), guarded(failure.kind):
            failures.append(classify(failure))
    return TriedRun(observation, tuple(failures))
