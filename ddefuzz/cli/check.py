"""`ddefuzz check`: capture a program or the user's own code in several stages, and explain each failure."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from pathlib import Path

import msgspec
import rich_click as click

from ddefuzz.classify.classify import Classified
from ddefuzz.cli.check_page import check_page
from ddefuzz.cli.layout import counted
from ddefuzz.cli.options import jobs_option, semantics_option, stages_option
from ddefuzz.cli.output import Writer, deliver, output_options
from ddefuzz.cli.progress import LiveLine
from ddefuzz.errors import EXIT_FOUND, DdefuzzError, InputError, NothingRanError
from ddefuzz.execute.pool import Future, Lost, Pool, lost_observation
from ddefuzz.execute.protocol import (
    SIZE_OBLIVIOUS,
    STAGES,
    CallableSubject,
    Observation,
    ProgramSubject,
    Run,
    Semantics,
    Stage,
    Subject,
)
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.files import read_text
from ddefuzz.instrument.events import Mechanism
from ddefuzz.ops import catalogue
from ddefuzz.oracles.program import Trial, Tried, calls_in, judge_run, tried_of
from ddefuzz.oracles.table import NAMES
from ddefuzz.program.text import read_program
from ddefuzz.report.advice import advise, own_line
from ddefuzz.report.check import Checked, Row, check_case, failed

DEFAULT_SEMANTICS: tuple[Mechanism, ...] = ("explicit", "size-oblivious")

START_SECONDS = 120.0
"""How long the user's module may take to import, torch with it."""


class Target(msgspec.Struct, frozen=True):
    """One thing to check: its name in the table, its subject, and the file that its frames name."""

    case: str
    subject: Subject
    file: str


@click.command("check")
@click.argument("target")
@click.option("--case", "case", metavar="ID", help="Check only this case of a file with a list CASES.")
@stages_option
@semantics_option(DEFAULT_SEMANTICS)
@click.option(
    "--key",
    metavar="KEY",
    help="Exit with code 0 if the failure with this key occurs and with 1 if not, as test-case reducers expect.",
)
@click.option("--timeout", default=60.0, show_default=True, metavar="SECONDS", help="Time limit of one run.")
@click.option(
    "--advice/--no-advice",
    "advising",
    default=True,
    show_default=True,
    help="Try changes of your code that may let capture succeed.",
)
@jobs_option
@output_options("text", "json")
def command(
    target: str,
    case: str | None,
    stages: tuple[Stage, ...],
    mechanisms: tuple[Mechanism, ...],
    key: str | None,
    timeout: float,
    advising: bool,
    jobs: int,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Capture a program, or your own model, in several stages, and explain what fails.

    For each failure, the output has the guard, the code that evaluates it, where the unbacked size comes from, and
    changes of your code that were tried and let capture succeed.

    TARGET is FILE:NAME, where NAME is a function, an nn.Module, or a factory that returns (callable, args). Example
    arguments are NAME_args or example_args in the same file. TARGET may also be the file of a ddefuzz program, or a
    file with a list CASES. Code in TARGET is executed.
    """
    wanted = tuple(stage for stage in STAGES if stage in {"eager", *stages})
    semantics = tuple(map(Semantics, mechanisms))
    with Pool(jobs) as pool, LiveLine("starting workers (importing torch takes some seconds)") as live:
        targets = _targets(pool, target, case)
        checked = [one for rows in _observed(pool, targets, wanted, semantics, timeout, live) for one in rows]
        if advising and key is None:
            checked = _advised(pool, targets, checked, timeout, jobs, live)
    if not checked:
        raise NothingRanError(f"{target}: found an empty list CASES, expected at least one case")
    shown = [one.row for one in checked if _is_shown(one.row, stages)]
    deliver(_writers(shown), format_, outputs)
    if key is not None:
        if not any(one.row.key == key for one in checked):
            raise SystemExit(EXIT_FOUND)
    elif failed(checked):
        raise SystemExit(EXIT_FOUND)


def _writers(rows: list[Row]) -> dict[str, Writer]:
    lines = "".join(msgspec.json.encode(row).decode() + "\n" for row in rows)
    return {"text": lambda page: check_page(rows, page), "json": lambda _page: lines}


def _is_shown(row: Row, stages: tuple[Stage, ...]) -> bool:
    """Whether a row is shown. Eager is always run, but shown only if it was selected or failed."""
    return row.stage != "eager" or "eager" in stages or row.outcome != "ok"


def _targets(pool: Pool, target: str, case: str | None) -> list[Target]:
    """The targets that TARGET names. User code is imported only in a worker."""
    file, _, name = target.rpartition(":") if ":" in target and not Path(target).exists() else (target, "", "")
    path = Path(file)
    if not path.is_file():
        raise InputError(f"{file}: found no such file, expected a program, FILE:NAME or a file with a list CASES")
    if name:
        if case is not None:
            raise InputError(f"{target}: found both a name and --case {case}, expected one of them")
        return [Target(name, CallableSubject(file, name=name), file)]
    text = read_program(path)
    if text is not None:
        if case is not None:
            raise InputError(f"{file}: found a program and --case {case}, expected a file with a list CASES")
        catalogue.parse(text, file)
        return [Target(path.stem, ProgramSubject(text), "<program>")]
    ids = pool.submit(list_cases, file, START_SECONDS).result()
    if isinstance(ids, Lost):
        raise InputError(f"{file}: found a module whose import ends in {ids.outcome}: {ids.reason}")
    if case is not None and case not in ids:
        near = ", ".join(get_close_matches(case, ids) or ids[:5])
        raise InputError(f"{file}: found no case {case!r} among {len(ids)}, expected one such as {near}")
    return [Target(one, CallableSubject(file, case=one), file) for one in ids if case in (None, one)]


def list_cases(path: str) -> tuple[str, ...]:
    """The ids of a module's CASES. It runs as a task of a worker."""
    # Imported here, because this command must not import torch.
    from ddefuzz.execute.user_code import case_ids  # noqa: PLC0415

    return case_ids(path)


def _observed(
    pool: Pool,
    targets: list[Target],
    stages: tuple[Stage, ...],
    semantics: tuple[Semantics, ...],
    timeout: float,
    live: LiveLine,
) -> Iterator[tuple[Checked, ...]]:
    """The rows of each target, in order. All runs are submitted at once."""
    trials = [
        Trial(
            Run(
                target.subject,
                stage,
                one,
                graph=stage != "eager" and len(semantics) > 1,
                calls=calls_in(stage, target.subject, NAMES),
            ),
            NAMES,
            semantics if len(semantics) > 1 else (SIZE_OBLIVIOUS,),
        )
        for target in targets
        for stage in stages
        for one in (semantics if stage != "eager" else semantics[:1])
    ]
    waiting: list[tuple[Run, Future[Tried]]] = [(trial.run, pool.submit(judge_run, trial, timeout)) for trial in trials]
    tried: dict[str, list[Tried]] = {target.case: [] for target in targets}
    by_subject = {target.subject: target.case for target in targets}
    counting = [run for run, _ in waiting if run.stage != "eager"] or [run for run, _ in waiting]
    done = 0
    for run, future in waiting:
        found = future.result()
        seen = tried_of(lost_observation(run, found)) if isinstance(found, Lost) else found
        tried[by_subject[run.subject]].append(seen)
        done += run in counting
        live.update(f"{done} of {counted(len(counting), 'run')}", is_last=run is waiting[-1][0])
    for case, tried_of_case in tried.items():
        yield check_case(case, tried_of_case)


def _advised(
    pool: Pool, targets: list[Target], checked: list[Checked], timeout: float, jobs: int, live: LiveLine
) -> list[Checked]:
    """The rows with advice: one search for each of the user's lines that failed under explicit semantics."""
    groups: dict[tuple[str, object], list[Checked]] = {}
    for one in checked:
        captured = one.row.outcome == "wrong"
        if one.classified is not None and not captured and one.observation.semantics.mechanism == "explicit":
            frame = own_line(one.observation)
            line = (frame.file, frame.line) if frame is not None else one.classified.signature
            groups.setdefault((one.row.case, line), []).append(one)
    by_case = {target.case: target for target in targets}
    advice = {}
    with ThreadPoolExecutor(jobs) as threads:
        futures = {
            name: threads.submit(_advise, pool, by_case[name[0]], group, timeout) for name, group in groups.items()
        }
        for number, (name, future) in enumerate(futures.items(), 1):
            for one in groups[name]:
                advice[one.row] = future.result()
            said = f"{number} of {counted(len(futures), 'failure')}: tried changes that may help"
            live.update(said, is_last=number == len(futures))
    rows = [msgspec.structs.replace(one.row, advice=advice.get(one.row)) for one in checked]
    return [msgspec.structs.replace(one, row=row) for one, row in zip(checked, rows, strict=True)]


def _advise(pool: Pool, target: Target, group: Sequence[Checked], timeout: float) -> object:
    failures: list[Classified] = [one.classified for one in group if one.classified is not None]
    subject = target.subject
    if isinstance(subject, ProgramSubject):
        return advise(failures, target.file, subject.text, lambda text, stage: _try_program(pool, text, stage, timeout))
    try:
        source = read_text(Path(subject.path))
    except InputError:
        # The source has another encoding. Changes are only tried in UTF-8.
        return None
    folder = Path(tempfile.mkdtemp(prefix="advice-", dir=scratch_folder()))
    try:

        def trial(text: str, stage: Stage) -> Observation:
            with tempfile.TemporaryDirectory(dir=folder) as own:
                copy = Path(own) / Path(subject.path).name
                copy.write_text(text, encoding="utf-8")
                return _run(pool, Run(msgspec.structs.replace(subject, path=str(copy)), stage), timeout)

        return advise(failures, target.file, source, trial)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _try_program(pool: Pool, text: str, stage: Stage, timeout: float) -> Observation:
    try:
        catalogue.parse(text, "<program>")
    except InputError as error:
        return Observation(stage, Semantics(), "not-judged", str(error))
    return _run(pool, Run(ProgramSubject(text), stage), timeout)


def _run(pool: Pool, run: Run, timeout: float) -> Observation:
    """Run a changed source. One that cannot be loaded counts as not helping."""
    try:
        return pool.observe(run, timeout)
    except InputError:
        # A module that registers ops cannot be loaded twice in one process.
        try:
            return pool.observe_cold(run, timeout)
        except DdefuzzError as error:
            return Observation(run.stage, run.semantics, "not-judged", str(error))
