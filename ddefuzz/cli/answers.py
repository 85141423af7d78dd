"""`ddefuzz answers`: find by experiment which answer of a guard would fix a data-dependent error."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import rich_click as click

from ddefuzz.answers.experiment import (
    GuardResult,
    NamedProgram,
    Runners,
    answer_guard,
    calling,
)
from ddefuzz.answers.samples import SampleRequest, samples
from ddefuzz.cli.command import Output, argument, click_command, formats, option
from ddefuzz.cli.options import DB, JOBS, capture_stage_option, timeout_option
from ddefuzz.cli.output import LiveLine, current_invocation, deliver, page_writers, resolve
from ddefuzz.errors import InputError
from ddefuzz.execute.pool import LostTask, Pool
from ddefuzz.execute.protocol import CAPTURE_STAGES, ProgramSubject, Stage
from ddefuzz.files import is_file
from ddefuzz.findings.database import Database
from ddefuzz.findings.merge import with_cause
from ddefuzz.findings.model import Finding
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.internal import guarded
from ddefuzz.ops import catalogue
from ddefuzz.oracles.capture import classify
from ddefuzz.program.recipes import is_placed
from ddefuzz.program.text import print_program
from ddefuzz.show.answers import (
    AnswerResult,
    answers_view,
    document,
    stored_document,
    stored_page,
    stored_view,
)
from ddefuzz.show.blocks import counted

STRICTEST: Stage = "aot"
"""The stage whose graph has the decompositions. An export has the ops themselves, so the op's kernel hides that a guard
of its decomposition was answered wrongly.
"""

SAMPLES_SECONDS = 300.0
"""The time limit for making torch's samples of a finding's functions. The first needs an import of some seconds."""


class Target(NamedTuple):
    """The programs of an experiment: those of a finding, or that of a file, and stored programs in addition."""

    name: str
    own: tuple[NamedProgram, ...]
    stages: tuple[Stage, ...]
    functions: tuple[str, ...] = ()
    others: tuple[NamedProgram, ...] = ()
    finding: Finding | None = None


@click_command("answers")
def command(
    targets: tuple[str, ...] = argument("[ID|FILE]..."),
    everything: bool = option("Try all findings of kind dde in the database.", "--all"),
    patching: bool = option(
        "Print a patch for a guard in torch's Python code. It is tried first, in memory, with stored programs and "
        "torch's samples.",
        "--patch",
    ),
    write: bool = option("Save each result in its finding, with the cause that follows from it."),
    fresh: bool = option("With --all --write: also try findings that have a result of this torch."),
    stored: bool = option("Print the results that the findings of the database have, and run nothing."),
    stage: Stage | None = capture_stage_option(
        f"Capture in this stage: {', '.join(CAPTURE_STAGES)}. Default: aot if the guard fails there too, else the "
        "finding's own; export for a FILE."
    ),
    timeout: float = timeout_option(60.0, "one run"),
    jobs: int = JOBS,
    db: DatabaseUrl = DB,
    output: Output = formats("text", "json", "markdown"),
) -> None:
    """Try which answer of a guard would fix a data-dependent error.

    The first guard that cannot be decided is answered False, then True, then deferred to a run-time assertion. Each
    clause of `And`, `Or` and Python's `a or b` is answered in the same way. For each answer the program is captured,
    and the captured program is compared with eager at all data sizes. Other programs of the database that evaluate the
    same guard are tried too. The verdict is the smallest change that gives correct results: guard_or_false,
    guard_or_true or torch._check. If no change does, the verdict says so.
    """
    if bool(targets) + everything + stored != 1:
        raise click.UsageError("found none or several of ID or FILE, --all and --stored, expected one of them")
    if stored:
        with Database.open(db, create=False) as kept:
            findings = [finding for finding in kept.findings() if finding.kind == "dde"]
        markdown = page_writers("Answers for the findings", stored_page(findings))
        text = page_writers("", stored_view(findings))["text"]
        deliver(markdown | {"text": text, "json": stored_document(findings)}, output)
        return
    if "markdown" in output.formats:
        raise click.UsageError("found the format markdown without --stored, expected both")
    explained = partial(with_cause, classify=classify, when=datetime.now(UTC))
    torch = version("torch")
    with ExitStack() as stack:
        needs_database = everything or not all(is_file(Path(name)) for name in targets)
        database = stack.enter_context(Database.open(db, create=False)) if needs_database else None
        chosen = _targets(targets, stage, database, torch if write and not fresh else None)
        pool = stack.enter_context(Pool(jobs))
        live = stack.enter_context(LiveLine(f"answering for {counted(len(chosen), 'program')}"))
        tick = live.counter(len(chosen), "program")
        threads = stack.enter_context(ThreadPoolExecutor(jobs))
        sent = {threads.submit(_answered, target, pool, timeout, patching=patching): target for target in chosen}
        for future in as_completed(sent):
            target, result = sent[future], future.result()
            if result is None:
                continue
            if write and database is not None and target.finding is not None:
                with guarded(target.name):
                    database.set_answers(target.finding.id, result.evidence(torch), explained)
            tick(f": {target.name}: {result.experiment.verdict}")
    done = [
        AnswerResult(target.name, result, target.finding is not None)
        for future, target in sent.items()
        if (result := future.result()) is not None
    ]
    deliver(page_writers("Answers", answers_view(done, current_invocation())) | {"json": document(done)}, output)


def _answered(target: Target, pool: Pool, timeout: float, *, patching: bool) -> GuardResult | None:
    """The result for a target, None if a bug of ddefuzz ended it."""

    def made(request: SampleRequest) -> tuple[str, ...]:
        result = pool.submit(samples, request, SAMPLES_SECONDS).result()
        return () if isinstance(result, LostTask) else result

    runners = Runners(partial(pool.observe, timeout=timeout), partial(pool.observe_patched, timeout=timeout), made)
    signature = None if target.finding is None else target.finding.signature
    own, others, functions, stages = target.own, target.others, target.functions, target.stages
    with guarded(target.name):
        return answer_guard(own, others, functions, stages, signature, runners, patching=patching)
    return None


def _targets(
    names: tuple[str, ...], stage: Stage | None, database: Database | None, answered: str | None
) -> tuple[Target, ...]:
    """What to answer for. With `answered`, of all findings those without a result of that torch."""
    targets = []
    for path in (Path(name) for name in names if is_file(Path(name))):
        program = print_program(catalogue.read(path).program)
        targets.append(Target(str(path), (NamedProgram(str(path), ProgramSubject(program)),), (stage or "export",)))
    if database is not None:
        known = database.findings()
        kept = [*_programs(known), *_examples(database)]
        findings = [resolve(database, name) for name in names if not is_file(Path(name))] or [
            finding
            for finding in known
            if finding.kind == "dde"
            and (finding.minimal or finding.original)
            and not _is_of_dtensors(finding)
            and (answered is None or finding.answers is None or finding.answers.torch != answered)
        ]
        targets += [_of_finding(finding, stage, known, kept) for finding in findings]
    return tuple(targets)


def _programs(findings: tuple[Finding, ...]) -> Iterator[tuple[str, str]]:
    """All programs that findings keep, with a name each."""
    for finding in findings:
        for name, text in (("minimal", finding.minimal), ("original", finding.original)):
            if text is not None:
                yield f"{finding.id}/{name}", text


def _is_of_dtensors(finding: Finding) -> bool:
    return any(is_placed(item) for _, text in _programs((finding,)) for item in ProgramSubject(text).program().inputs)


def _examples(database: Database) -> Iterator[tuple[str, str]]:
    """The programs that first reached a guard site."""
    for torch in database.torch_versions():
        for site in database.sites(torch):
            if site.example:
                yield str(site.key), site.example


def _of_finding(
    finding: Finding, stage: Stage | None, known: tuple[Finding, ...], kept: list[tuple[str, str]]
) -> Target:
    own = tuple(NamedProgram(name, ProgramSubject(text)) for name, text in dict(_programs((finding,))).items())
    if not own:
        raise InputError(f"{finding.id}: found a finding of user code, expected one with a program")
    if _is_of_dtensors(finding):
        raise InputError(
            f"{finding.id}: found a program of DTensors, expected one without: an answer decides what AOTAutograd's "
            "graph computes, and its values are not compared in other processes"
        )
    functions = finding.shown_ops
    texts = {asked.subject for asked in own}
    same_site = {one.id for one in known if one.site == finding.site}
    near = sorted(kept, key=lambda program: program[0].partition("/")[0] not in same_site)
    others = tuple(one for one in calling(finding.ops or functions, near) if one.subject not in texts)
    stages: tuple[Stage, ...] = (stage,) if stage else (STRICTEST, finding.stage or "export")
    return Target(finding.id, own, stages, functions, others, finding)
