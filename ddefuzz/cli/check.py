"""`ddefuzz check` and `ddefuzz study`: capture code in several stages, and explain each problem."""

from __future__ import annotations

import datetime
from contextlib import ExitStack
from pathlib import Path

from click import get_current_context
from click.core import ParameterSource

from ddefuzz.checking.acceptance import ACCEPTED, holding, read_accepted
from ddefuzz.checking.check import Options, Progress, check_named
from ddefuzz.checking.patch import write_changes
from ddefuzz.checking.problems import torch_itself
from ddefuzz.checking.record import report_record
from ddefuzz.checking.report import Report, report_view
from ddefuzz.checking.study import GROUPS, SCHEMA, Settings, Sizes, study_view, with_models
from ddefuzz.checking.study import study as study_models
from ddefuzz.cli.command import SECONDS_OR_NONE, Output, PathType, argument, click_command, formats, option, output_file
from ddefuzz.cli.options import IN_STAGES, JOBS, semantics_option, timeout_option
from ddefuzz.cli.output import LiveLine, Writer, command_line, deliver, page_writers, writers_of
from ddefuzz.cli.streams import say
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED, EXIT_USAGE, InputError
from ddefuzz.execute.protocol import Semantics, Stage
from ddefuzz.files import write_atomically
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.instrument.events import Mechanism
from ddefuzz.oracles.table import APART, ORACLES
from ddefuzz.show.blocks import counted
from ddefuzz.show.table import NAMES


@click_command("study")
def study(
    models: Path = option(
        "Files with models: each NAME with NAME_args is one.",
        default=Path("corpora/models"),
        type_=PathType(exists=True, file_okay=False),
        metavar="FOLDER",
    ),
    groups: tuple[str, ...] = option(
        "Which models: own (those of the folder), ExportDB (the examples in torch) or transformers (tiny models of "
        "transformers). Default: all.",
        type_=("own", *GROUPS),
        metavar="NAME",
    ),
    timeout: float = timeout_option(120.0, "one capture"),
    budget: float = option(
        "For how many CPU seconds changes are tried for each model.", default=30.0, type_=SECONDS_OR_NONE
    ),
    sizes: Sizes = option(
        "How the dynamic dims of a model are captured: unbacked, or backed (Dim.AUTO).", default="unbacked"
    ),
    keep: Path | None = option(
        "Add each model to FILE (JSON lines) when it is done. Models that FILE has with the same settings, torch and "
        "package are not done again. All rows of FILE are printed, so that a study may have several runs.",
        type_=PathType(dir_okay=False),
        metavar="FILE",
    ),
    db: DatabaseUrl | None = option("Write into the findings of this database which models meet them."),
    output: Output = formats("text", "json", "markdown", "html"),
) -> None:
    """Check many models, and compare the results with a plain export and with draft_export.

    For each model, the table has the outcome of check, of a plain export and of draft_export. It also has the problems
    that check and draft_export find, the change that check offers, and on how many held-out inputs that change agrees
    with eager.

    A model that cannot be built is named in the end, and the exit code is 2.

    The models run one after the other, so that CPU times can be compared. Ctrl-C ends the study and prints the models
    so far. With --keep, the next run checks the other models. With --db, `findings list --sort impact` sorts by what
    these models meet. The models of transformers need
    `pip install "ddefuzz[study]"`; they have random weights, and nothing is downloaded. Code in FOLDER is executed.
    """
    settings = Settings(torch_itself().version, sizes, timeout, budget, "")
    with ExitStack() as stack, LiveLine("starting a worker (importing torch takes some seconds)") as live:
        database = None if db is None else stack.enter_context(Database.open(db, create=False))
        done = study_models(models, groups, settings, keep, Progress(live.say, live.update))
        if database is not None:
            with database.transaction():
                met = tuple(with_models(database.findings(), done.rows))
                database.put(met)
            live.say(f"{counted(len(met), 'finding')} of {db} {'is' if len(met) == 1 else 'are'} met by models")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    view = study_view(done.rows, command_line(), today)
    writers = page_writers("Models", view, {"schema": SCHEMA, "models": done.rows})
    deliver(writers, output, {EXIT_INTERRUPTED: not done.is_done})


APART_ORACLES = {
    oracle.name: "; ".join(row.meaning for row in oracle.kinds.values()) for oracle in ORACLES if oracle.name in APART
}
"""The oracles with stages of their own, and what they look for."""


EXPECTED_TARGET = "one such as model.py:make_model, or a list check.targets in ddefuzz.toml"


@click_command("check")
def command(
    targets: tuple[str, ...] = argument("[TARGET]..."),
    case: str | None = option("Check only this case of a file with a list CASES.", metavar="ID"),
    unbacked: str = option(
        "Dims of the example arguments to make unbacked: `ids:0,1`, several joined by `;`, `ids:0=n;mask:0=n` to "
        "share a size, or `all`. Default: those that NAME_unbacked and marks on tensors say.",
        default="",
        metavar="SPEC",
    ),
    stages: tuple[Stage, ...] = IN_STAGES,
    sizes: tuple[str, ...] = option(
        "Also call what is captured of a ddefuzz program at these sizes: u0=5,u1=1.",
        "--sizes",
        metavar="SIZES",
    ),
    oracles: tuple[str, ...] = option(
        "Also judge by this oracle, which is not used by default because it costs more: "
        f"{', '.join(f'{name} ({said})' for name, said in APART_ORACLES.items())}.",
        type_=tuple(APART_ORACLES),
        metavar="NAME",
    ),
    semantics: tuple[Mechanism, ...] = semantics_option(),
    key: str | None = option(
        "Exit with code 0 if the failure with this key occurs and with 1 if not, as test-case reducers expect.",
        metavar="KEY",
    ),
    known: Path | None = option(
        "Name the problems that are findings in this folder. Default: the folder `findings`, if there is one.",
        type_=PathType(exists=True, file_okay=False),
        metavar="FOLDER",
    ),
    accepted: Path | None = option(
        "Problems in this file do not fail. Default: findings/accepted.toml, which `ddefuzz ci accept` writes.",
        type_=PathType(exists=True, dir_okay=False),
        metavar="FILE",
    ),
    timeout: float = timeout_option(60.0, "one capture"),
    advising: bool = option(
        "Try changes of your code that may let capture succeed.", "--advice/--no-advice", default=True
    ),
    budget: float = option(
        "For how many CPU seconds changes of your code are tried for one case.", default=60.0, type_=SECONDS_OR_NONE
    ),
    applying: bool = option("Write the best change of each case to your files.", "--apply"),
    patch: Path | None = option("Write the best change of each case to FILE as a unified diff.", type_=output_file()),
    jobs: int = JOBS,
    output: Output = formats("text", *NAMES),
) -> None:
    """Capture a program, or your own model, in several stages, and explain what fails.

    The first line says whether it exports. Then each problem is printed once: whose code it is, the calls that lead
    there, where the sizes come from, and the changes of your code with which capture succeeds. Capture continues after
    an undecided guard, so that all problems are listed at once.

    Exit code 1: a capture fails, or a captured program is wrong. Notes about inputs other than the example's do not
    count. Exit code 2: a case cannot be built. Problems of PyTorch with neither effect are listed last.

    Without TARGET, those of ddefuzz.toml are checked: `check.targets = ["model.py:make_model"]`.

    TARGET is FILE:NAME or package.module:NAME, where NAME is a function, an nn.Module, or a factory that returns
    (callable, args), (callable, args, kwargs) or a dict of these. Example arguments are NAME_args and NAME_kwargs, or
    example_args, in the same file. NAME_unbacked or NAME_dynamic_shapes say what is dynamic. TARGET may also be a saved
    program (.pt2), the file of a ddefuzz program, or a file with a list CASES. Code in TARGET is executed.

    \b
    Examples:
      ddefuzz check model.py:make_model
      ddefuzz check model.py:Net --unbacked 'ids:0,1' --stage export
      ddefuzz check model.py:make_model --patch fix.diff
    """
    if not targets:
        raise InputError(f"found no TARGET, expected {EXPECTED_TARGET}")
    of_one = {"--case": case is not None, "--unbacked": bool(unbacked), "--apply": applying}
    if len(targets) > 1 and any(of_one.values()):
        name = next(name for name, is_given in of_one.items() if is_given)
        raise InputError(f"{name}: found {len(targets)} targets, expected one")
    listed = read_accepted(accepted or ACCEPTED)
    now = holding(listed, datetime.datetime.now(datetime.UTC).date())
    for past in sorted({*listed} - {*now}, key=str):
        say(f"{accepted or ACCEPTED}: {past.target}: {past.key} was accepted until {past.expires}: it fails since then")
    options = Options(
        stages=stages,
        oracles=oracles,
        semantics=tuple(map(Semantics, semantics)),
        timeout=timeout,
        budget=budget if advising and key is None else None,
        known=known,
        sizes=sizes,
        accepted=now,
    )
    with LiveLine("starting a worker (importing torch takes some seconds)") as live:
        progress = Progress(live.say, live.update)
        listed_there = get_current_context().get_parameter_source("targets") is not ParameterSource.COMMANDLINE
        # The names in reports stay the same when the list of ddefuzz.toml grows.
        report = check_named(
            targets, options, progress, case=case, unbacked=unbacked, jobs=jobs, whole_names=listed_there
        )
    if patch is not None:
        write_atomically(patch, report.patch())
    if applying:
        write_changes(report.best, Path(targets[0]))
    fits = report.ok if key is None else any(key in one.keys for one in report.captures)
    deliver(writers(report), output, {EXIT_USAGE: report.refused, EXIT_FOUND: not fits})


def writers(report: Report) -> dict[str, Writer]:
    record = report_record(report, command_line())
    return {**writers_of(record), **page_writers(record.title, report_view(report))}
