"""`ddefuzz study`: check many models, and compare with a plain capture and with draft_export."""

from __future__ import annotations

import ast
import datetime
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import get_args

import msgspec
import rich_click as click

from ddefuzz.advice.search import Search, may_help
from ddefuzz.advice.task import describe
from ddefuzz.cli.check_advice import trial_in
from ddefuzz.cli.check_runs import START_SECONDS, Target, run_cases
from ddefuzz.cli.output import Writer, deliver, output_options, plain, rendered
from ddefuzz.cli.progress import LiveLine
from ddefuzz.cli.reports import command_line
from ddefuzz.errors import EXIT_INTERRUPTED, InputError
from ddefuzz.execute.pool import Lost, Pool
from ddefuzz.execute.protocol import EXPLICIT, CallableSubject, Stage
from ddefuzz.files import read_text
from ddefuzz.oracles.capture import KINDS
from ddefuzz.report.check import failures_of, problems_of
from ddefuzz.report.owner import torch_itself
from ddefuzz.study.model import GROUPS, SCHEMA, Offered, Plain, Sizes, Studied, page, totals
from ddefuzz.study.task import names_of, plain_draft, plain_export

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
    help="Add each model to FILE (JSON lines) when it is done. Models in it are not done again, and all rows of FILE "
    "are printed, so that a study may have several runs, with several versions of torch.",
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

    The models run one after the other, so that CPU times can be compared. Ctrl-C ends the study and prints the models
    so far. With --keep, the next run checks the other models. The models of transformers need
    `pip install "ddefuzz[study]"`; they have random weights, and nothing is downloaded. Code in FOLDER is executed.
    """
    rows = _kept(keep)
    done = {(row.group, row.name, row.sizes, row.torch) for row in rows}
    version = torch_itself().version
    interrupted = True
    with Pool(1) as pool, LiveLine("starting a worker (importing torch takes some seconds)") as live:
        targets = [
            (group, target)
            for group, target in _targets(pool, models, groups, backed=sizes == "backed")
            if (group, target.case, sizes, version) not in done
        ]
        with suppress(KeyboardInterrupt):
            for number, (group, target) in enumerate(targets, 1):
                live.update(f"{number} of {len(targets)}: {target.case}")
                found = _studied(pool, group, target, timeout, budget, live)
                rows.append(msgspec.structs.replace(found, sizes=sizes, torch=version))
                if keep is not None:
                    with keep.open("ab") as file:
                        file.write(msgspec.json.encode(rows[-1]) + b"\n")
            interrupted = False
    if interrupted and not rows:
        raise KeyboardInterrupt
    if not rows:
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
            raise InputError(f"{keep}:{number}: {error}, expected a model of a study") from error
    return rows


def _writers(rows: list[Studied]) -> dict[str, Writer]:
    document = msgspec.json.encode({"schema": SCHEMA, "models": rows}).decode() + "\n"
    table = page(rows, command_line(), datetime.datetime.now(datetime.UTC).date().isoformat())
    return {
        "text": lambda width: rendered(plain("\n".join(totals(tuple(rows)))), width),
        "json": lambda _: document,
        "markdown": lambda _: table,
    }


def _targets(pool: Pool, models: Path, groups: tuple[str, ...], *, backed: bool) -> Iterator[tuple[str, Target]]:
    if not groups or "own" in groups:
        for file in sorted(models.glob("*.py")):
            for name in _models_in(file):
                yield "own", Target(name, CallableSubject(str(file), name=name, backed=backed), str(file))
    for group in GROUPS:
        if not groups or group.title in groups:
            found = pool.submit(names_of, group, START_SECONDS).result()
            for name in () if isinstance(found, Lost) else found:
                yield group.title, Target(name, CallableSubject(group.module, name=name, backed=backed), group.module)


def _models_in(file: Path) -> Iterator[str]:
    """The names of a file that have example arguments. The file is parsed, not executed."""
    for node in ast.parse(read_text(file)).body:
        match node:
            case ast.Assign(targets=[ast.Name(name)]) if name.endswith(ARGUMENTS):
                yield name.removesuffix(ARGUMENTS)


def _studied(pool: Pool, group: str, target: Target, timeout: float, budget: float, live: LiveLine) -> Studied:
    exported = pool.submit(plain_export, target.subject, timeout).result()
    drafted = pool.submit(plain_draft, target.subject, timeout).result()
    (runs,) = run_cases(pool, [target], STAGES, (EXPLICIT,), timeout, live)
    again = pool.submit(plain_export, target.subject, timeout).result()  # warm, as the run of check is
    seen = next(one.observation for one in runs.tried if one.observation.stage == "export")
    eager = next(one.observation for one in runs.tried if one.observation.stage == "eager")
    row = Studied(
        group,
        target.case,
        seen.outcome if eager.outcome == "ok" else "not-judged",
        _plain(again if not isinstance(again, Lost) else exported),
        _plain(drafted),
        problems=len(problems_of(runs)),
        check_seconds=seen.cpu_seconds,
    )
    failures = [one for one in failures_of(runs.tried) if one.failure.kind in KINDS and may_help(one)]
    if not failures or row.check != "fail":
        return row
    trial = trial_in(pool, timeout)
    described = pool.submit(describe, target.subject, timeout).result()
    if isinstance(described, Lost):
        return row
    search = Search(target.subject, described, ("export",), trial, budget)
    search.run(failures[0])
    offered = []
    for change in search.changes:
        candidate = next(made for one, made in search.passing if one == change)
        held = trial(msgspec.structs.replace(candidate, held_out=True, may_refuse=True)).compared[1:]
        differs = sum(bool(one.differs) or (change.kind == "rewrite" and one.refused) for one in held)
        agrees = sum(not one.original and not one.refused and not one.differs for one in held)
        offered.append(Offered(change.kind, change.does, agrees, differs))
    return msgspec.structs.replace(row, offered=tuple(offered), tried=len(search.tried))


def _plain(ended: Plain | Lost) -> Plain:
    return Plain(ended.reason) if isinstance(ended, Lost) else ended
