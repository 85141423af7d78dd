"""`ddefuzz artifacts`: write the graphs, guards and code of each stage to files and one HTML page."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import rich_click as click

from ddefuzz.artifacts.graph import diffs_of
from ddefuzz.artifacts.model import (
    DIFFED,
    Artifacts,
    GraphBreaks,
    MakeTask,
    StageOutput,
    failure_of,
    find_breaks,
    make,
    version,
)
from ddefuzz.artifacts.page import DOCUMENT, INDEX, about, artifacts_view, own_files, write_folder
from ddefuzz.checking.check import START_SECONDS, Target, targets_of
from ddefuzz.cli.command import Output, PathType, argument, click_command, formats, option, typed_words
from ddefuzz.cli.options import DB, JOBS, capture_stage_option, semantics_option, timeout_option
from ddefuzz.cli.output import LiveLine, deliver, page_writers, resolve, stop_on_interrupt
from ddefuzz.errors import EXIT_INTERRUPTED, InputError, NothingRanError
from ddefuzz.execute.pool import Future, LostTask, Pool, Stopped, first_answer, lost_observation, waited
from ddefuzz.execute.protocol import ProgramSubject, Run, Semantics, Stage
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.files import is_file
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import FINDING, read_finding
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.instrument.events import Mechanism
from ddefuzz.oracles import keys
from ddefuzz.versions.model import Interpreter
from ddefuzz.versions.run import decoded, interpreters_of, printed, said_of

DEFAULT: tuple[Stage, ...] = ("export", "compile", "aot", "inductor")


@click_command("artifacts")
def command(
    target: str = argument("FILE|FILE:NAME|ID"),
    case: str | None = option("The case of a file with a list CASES.", metavar="ID"),
    unbacked: str = option("Dims of your example arguments, as for `ddefuzz check`.", default="", metavar="SPEC"),
    stages: tuple[Stage, ...] = capture_stage_option(
        "export, export-strict, compile (dynamo alone), aot or inductor. Default: all but export-strict, and those in "
        "which the finding was seen.",
        tuple(DIFFED),
    ),
    semantics: tuple[Mechanism, ...] = semantics_option(" With two, the graphs are compared."),
    diffs: tuple[tuple[Stage, Stage], ...] = option(
        "Compare the graphs of two stages.",
        type_=(click.Choice(tuple(DIFFED)), click.Choice(tuple(DIFFED))),
        metavar="STAGE STAGE",
    ),
    pythons: tuple[str, ...] = option(
        "Compare with an interpreter that has another torch, and ddefuzz.", metavar="[NAME=]PATH"
    ),
    folder: Path | None = option(
        "The folder to write to. Default: artifacts-NAME.",
        type_=PathType(file_okay=False),
        metavar="DIR",
    ),
    timed: bool = option(
        "Compile inductor's C++ too: the time of each kernel in calls with the example, and the use of its caches.",
        "--time",
    ),
    timeout: float = timeout_option(120.0, "one stage"),
    output: Output = formats("text", "json", "markdown"),
    jobs: int = JOBS,
    db: DatabaseUrl = DB,
) -> None:
    """Write the graphs, guards and code of each stage of the compile stack to files and one HTML page.

    The graphs are dynamo's graph with its guards, the exported graph, and the forward and backward graphs of
    AOTAutograd. The code is inductor's. Assertions are marked. Each symbol is listed with its range and its origin.
    The page leads from a line of your code to its nodes, their kernels and, with --time, their run time, and back. A
    stage that fails is listed with its site and cause. Graph breaks of torch.compile(fullgraph=False) are listed with
    reason, site and cause, and what each part makes.

    The argument is a program FILE, a finding (its ID or its folder), or your own FILE:NAME as for `ddefuzz check`.

    \b
    Examples:
      ddefuzz artifacts dde-08f7b02bbb
      ddefuzz artifacts model.py:make_model --diff aot inductor
      ddefuzz artifacts model.py:make_model --stage inductor --time --folder made
    """
    interpreters = interpreters_of(pythons)
    for interpreter in interpreters:
        if not interpreter.full:
            raise InputError(
                f"--python {interpreter.python}: found no ddefuzz there, expected an interpreter that has it"
            )
    finding = _of_finding(target, db)
    if folder is not None:
        own_files(folder, dict.fromkeys((INDEX, DOCUMENT), ""))
    asked = {*(stages or default_stages(finding)), *(one for pair in diffs for one in pair)}
    wanted = tuple(stage for stage in DIFFED if stage in asked)
    interrupted = False
    with (
        stop_on_interrupt() as stopped,
        LiveLine("starting a worker (importing torch takes some seconds)") as live,
        Pool(jobs, samples=False) as pool,
    ):
        targets = [target_of(finding)] if finding is not None else targets_of(pool, target, case, unbacked)
        if len(targets) != 1:
            raise InputError(f"{target}: found {len(targets)} cases, expected --case with one of their ids")
        chosen = targets[0]
        text = chosen.subject.text if isinstance(chosen.subject, ProgramSubject) else ""
        torch = first_answer(pool.submit(version, "torch", START_SECONDS), stopped)
        tasks = [
            MakeTask(chosen.subject, stage, one, timed and stage == "inductor")
            for stage in wanted
            for one in map(Semantics, semantics)
        ]
        futures = [(task, pool.submit(make, task, timeout)) for task in tasks]
        # The last stage that is asked for makes what the earlier ones make, too.
        breaking = pool.submit(find_breaks, MakeTask(chosen.subject, wanted[-1]), timeout)
        made: list[StageOutput] = []
        broken: GraphBreaks | None = None
        try:
            for task, future in futures:
                made.append(_made(task, future, stopped))
                live.say(f"{task.stage}{f' ({task.semantics})' if len(semantics) > 1 else ''}: {made[-1].outcome}")
            result = waited(breaking, stopped)
            broken = GraphBreaks(error=f"{result.outcome}: {result.reason}") if isinstance(result, LostTask) else result
        except KeyboardInterrupt:
            interrupted = True
        reported = about(finding.title, finding.kind, finding.stages, finding.evidence) if finding is not None else None
        here = Artifacts(torch, chosen.case, text, tuple(made), broken, about=reported)
        others = []
        for interpreter in interpreters if not interrupted else ():
            live.update(f"the same under {interpreter.name} (torch {interpreter.torch})")
            same = {"case": case, "unbacked": unbacked, "stages": wanted, "semantics": semantics, "timeout": timeout}
            others.append((interpreter.name, _elsewhere(interpreter, target, text, same)))
    if not made:
        raise NothingRanError("interrupted before the first stage ended")
    here = msgspec.structs.replace(here, others=tuple(others), diffs=tuple(diffs_of(here, diffs, others)))
    index = write_folder(here, folder or Path(f"artifacts-{chosen.case.replace('/', '-')}"))
    pages = page_writers(chosen.case, artifacts_view(here, index), here)
    del pages["html"]  # the page is in the folder, beside the texts that it names
    deliver(pages, output, {EXIT_INTERRUPTED: interrupted})


def _of_finding(target: str, db: DatabaseUrl) -> Finding | None:
    """The finding, None for a file. Raises InputError if there is neither."""
    place = Path(target)
    if is_file(place / FINDING):
        return read_finding(place)
    if is_file(place) or ":" in target:
        return None
    if place.suffix or len(place.parts) > 1:
        raise InputError(f"{target}: found no such file, expected a program, FILE:NAME, or the id of a finding")
    with Database.open(db, create=False) as database:
        return resolve(database, target)


def default_stages(finding: Finding | None) -> tuple[Stage, ...]:
    """The stages of the page if none is asked for."""
    return (*DEFAULT, *(stage for stage in finding.stages if stage in DIFFED)) if finding is not None else DEFAULT


def target_of(finding: Finding) -> Target:
    """The smallest program of a finding."""
    text = finding.minimal or finding.original
    if finding.kind in keys.KINDS:
        raise InputError(f"{finding.id}: found a finding on a key function, expected one that has a program to capture")
    if text is None:
        raise InputError(f"{finding.id}: found a finding of user code, expected one that has a program")
    return Target(finding.id, ProgramSubject(text))


def _made(task: MakeTask, future: Future[StageOutput], stopped: Stopped) -> StageOutput:
    result = waited(future, stopped)
    if not isinstance(result, LostTask):
        return result
    lost = lost_observation(Run(task.subject, task.stage, task.semantics), result)
    return StageOutput(task.stage, str(task.semantics), lost.outcome, lost.reason, failure_of(lost))


def _elsewhere(interpreter: Interpreter, target: str, text: str, options: Mapping[str, Any]) -> Artifacts:
    """The same by the ddefuzz of another interpreter."""
    with tempfile.TemporaryDirectory(prefix="artifacts-", dir=scratch_folder()) as folder:
        if text:
            program = Path(folder, "program.py")
            program.write_text(text, encoding="utf-8")
            target = str(program)
        words = ["artifacts", target, *typed_words(command, {"format_": "json", "folder": folder, **options})]
        return made_by(interpreter.python, words)


def made_by(python: str, words: Sequence[str], seconds: float = 1800.0) -> Artifacts:
    """The document that `ddefuzz artifacts` of another interpreter prints. Raises `UnsupportedError`."""
    return decoded(said_of(python, words), printed(python, words, seconds), Artifacts, "its document")
