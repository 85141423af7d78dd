"""`ddefuzz study`: check many models, and compare the results with a plain export and with draft_export."""

from __future__ import annotations

import ast
import datetime
import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec
import rich_click as click

from ddefuzz.checking.advice_task import describe
from ddefuzz.checking.change_search import Search, may_help
from ddefuzz.checking.check import failures_of, problems_of
from ddefuzz.checking.owner import package, torch_itself
from ddefuzz.checking.study import GROUPS, SCHEMA, Offered, Plain, Settings, Sizes, Studied, page, sections, totals
from ddefuzz.checking.study_task import names_of, plain_draft, plain_export
from ddefuzz.cli.check_advice import trial_in
from ddefuzz.cli.check_runs import START_SECONDS, Target, run_cases
from ddefuzz.cli.output import Writer, deliver, output_options, plain, rendered
from ddefuzz.cli.progress import LiveLine
from ddefuzz.cli.reports import command_line
from ddefuzz.errors import EXIT_INTERRUPTED, InputError
from ddefuzz.execute.pool import Lost, Pool
from ddefuzz.execute.protocol import EXPLICIT, CallableSubject, Stage
from ddefuzz.files import append, read_text
from ddefuzz.internal import guarded, noted
from ddefuzz.oracles.capture import KINDS
from ddefuzz.refusals import refuse, refused

STAGES: tuple[Stage, ...] = ("eager", "export")

ARGUMENTS = "_args"


@click.command("study")
@click.option(
    "--models",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("corpora/models"),
    show_default=True,
    metavar="FOLDER",
    help="Files with models: each NAME with NAME_args is one.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    type=click.Choice(["own", *(group.title for group in GROUPS)]),
    metavar="NAME",
    help="Which models: own (those of the folder), ExportDB (the examples in torch) or transformers (tiny models of "
    "transformers). Can be repeated. Default: all.",
)
@click.option(
    "--timeout",
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Limit of one capture: CPU seconds of its process, and five times as many seconds by the clock.",
)
@click.option(
    "--budget", default=30.0, show_default=True, metavar="SECONDS", help="How long changes are tried for each model."
)
@click.option(
    "--sizes",
    type=click.Choice(get_args(Sizes)),
    default="unbacked",
    show_default=True,
    help="How the dynamic dims of a model are captured: unbacked, or backed (Dim.AUTO).",
)
@click.option(
    "--keep",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Add each model to FILE (JSON lines) when it is done. Models that FILE has with the same settings, torch and "
    "package are not done again. All rows of FILE are printed, so that a study may have several runs.",
)
@output_options("text", "json", "markdown")
def command(
    models: Path,
    groups: tuple[str, ...],
    timeout: float,
    budget: float,
    sizes: Sizes,
    keep: Path | None,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Check many models, and compare the results with a plain export and with draft_export.

    For each model, the table has the outcome of check, of a plain export and of draft_export. It also has the problems
    that check and draft_export find, the change that check offers, and on how many held-out inputs that change agrees
    with eager.

    A model that cannot be built is named in the end, and the exit code is 2.

    The models run one after the other, so that CPU times can be compared. Ctrl-C ends the study and prints the models
    so far. With --keep, the next run checks the other models. The models of transformers need
    `pip install "ddefuzz[study]"`; they have random weights, and nothing is downloaded. Code in FOLDER is executed.
    """
    rows = _kept(keep)
    done = {(row.group, row.name, row.settings) for row in rows}
    settings = Settings(torch_itself().version, sizes, timeout, budget, "")
    interrupted = True
    with Pool(1) as pool, LiveLine("starting a worker (importing torch takes some seconds)") as live:
        todo = [
            one
            for one in _targets(pool, models, groups, settings, live)
            if (one.group, one.target.case, one.settings) not in done
        ]
        with suppress(KeyboardInterrupt):
            for number, one in enumerate(todo, 1):
                live.update(f"{number} of {len(todo)}: {one.target.case}")
                try:
                    with guarded(one.target.case) as guard:
                        rows.append(_studied(pool, one, live))
                except InputError as error:
                    refuse(InputError(f"{one.target.case}: {error}"))
                    continue
                if guard.error is not None:
                    live.say(str(guard.error))
                elif keep is not None:
                    append(keep, msgspec.json.encode(rows[-1]) + b"\n")
            interrupted = False
    if interrupted and not rows:
        raise KeyboardInterrupt
    if not rows and not noted() and not refused():
        raise InputError(f"{models}: found no models, expected files with NAME and NAME_args")
    deliver(_writers(rows), format_, outputs)
    if interrupted:
        raise SystemExit(EXIT_INTERRUPTED)


def _kept(keep: Path | None) -> list[Studied]:
    """The rows of a file of an earlier run. Raises InputError for a line that is none."""
    if keep is None or not keep.exists():
        return []
    rows = []
    for number, line in enumerate(read_text(keep).splitlines(), 1):
        try:
            rows.append(msgspec.json.decode(line, type=Studied))
        except msgspec.DecodeError as error:
            raise InputError(
                f"{keep}:{number}: {error}, expected a model as this version of `ddefuzz study` keeps it"
            ) from error
    return rows


def _writers(rows: list[Studied]) -> dict[str, Writer]:
    document = msgspec.json.encode({"schema": SCHEMA, "models": rows}).decode() + "\n"
    text = "\n\n".join("\n".join([one.title, *totals(one.rows)]) for one in sections(rows))
    table = page(rows, command_line(), datetime.datetime.now(datetime.UTC).date().isoformat())
    return {
        "text": lambda width: rendered(plain(text), width),
        "json": lambda _: document,
        "markdown": lambda _: table,
    }


class _Todo(NamedTuple):
    """A model to do, and its settings."""

    group: str
    target: Target
    settings: Settings


def _targets(pool: Pool, models: Path, groups: tuple[str, ...], settings: Settings, live: LiveLine) -> Iterator[_Todo]:
    def todo(group: str, name: str, path: str, source: str) -> _Todo:
        subject = CallableSubject(path, name=name, backed=settings.sizes == "backed")
        return _Todo(group, Target(name, subject, path), msgspec.structs.replace(settings, source=source))

    if not groups or "own" in groups:
        for file in sorted(models.glob("*.py")):
            try:
                source, names = read_text(file), tuple(_models_in(file))
            except InputError as error:
                refuse(error)
                continue
            for name in names:
                yield todo("own", name, str(file), hashlib.sha256(source.encode()).hexdigest()[:12])
    for group in GROUPS:
        if groups and group.title not in groups:
            continue
        found = pool.submit(names_of, group, START_SECONDS).result()
        names = () if isinstance(found, Lost) else found
        if not names:
            why = found.reason if isinstance(found, Lost) else 'expected what `pip install "ddefuzz[study]"` installs'
            live.say(f"{group.title}: found no models, {why}")
        for name in names:
            yield todo(group.title, name, group.module, str(package(group.package)))


def _models_in(file: Path) -> Iterator[str]:
    """The names of a file that have example arguments. The file is parsed, not executed."""
    source = read_text(file)
    try:
        parsed = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InputError(f"{file}: found no Python ({said}), expected a file with models") from error
    for node in parsed.body:
        match node:
            case ast.Assign(targets=[ast.Name(name)]) if name.endswith(ARGUMENTS):
                yield name.removesuffix(ARGUMENTS)


def _studied(pool: Pool, one: _Todo, live: LiveLine) -> Studied:
    target, timeout = one.target, one.settings.timeout
    exported = pool.submit(plain_export, target.subject, timeout).result()
    drafted = pool.submit(plain_draft, target.subject, timeout).result()
    (runs,), _ = run_cases(pool, [target], STAGES, (EXPLICIT,), timeout, live)
    again = pool.submit(plain_export, target.subject, timeout).result()  # warm, as the run of check is
    by_stage = {tried.observation.stage: tried.observation for tried in runs.tried}
    seen, eager = by_stage["export"], by_stage["eager"]
    row = Studied(
        one.group,
        target.case,
        one.settings,
        seen.outcome if eager.outcome == "ok" else "not-judged",
        _plain(again if not isinstance(again, Lost) else exported),
        _plain(drafted),
        problems=len(problems_of(runs)),
        check_seconds=seen.cpu_seconds,
    )
    failures = [named for named in failures_of(runs.tried) if named.failure.kind in KINDS and may_help(named)]
    if not failures or row.check != "fail":
        return row
    trial = trial_in(pool, timeout)
    described = pool.submit(describe, target.subject, timeout).result()
    if isinstance(described, Lost):
        return row
    search = Search(target.subject, described, ("export",), trial, one.settings.budget)
    search.run(failures[0])
    offered = []
    for change in search.changes:
        candidate = next(made for passing, made in search.passing if passing == change)
        held = trial(msgspec.structs.replace(candidate, held_out=True, may_refuse=True)).compared[1:]
        differs = sum(bool(inputs.differs) or (change.kind == "rewrite" and inputs.refused) for inputs in held)
        agrees = sum(not inputs.original and not inputs.refused and not inputs.differs for inputs in held)
        offered.append(Offered(change.kind, change.does, agrees, differs))
    return msgspec.structs.replace(row, offered=tuple(offered), tried=len(search.tried))


def _plain(ended: Plain | Lost) -> Plain:
    return Plain(ended.reason) if isinstance(ended, Lost) else ended
