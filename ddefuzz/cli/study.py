"""`ddefuzz study`: check many models, and compare the results with a plain export and with draft_export."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import get_args

import rich_click as click

from ddefuzz.checking.check import Progress
from ddefuzz.checking.owner import torch_itself
from ddefuzz.checking.study import GROUPS, SCHEMA, Settings, Sizes, study, study_view
from ddefuzz.cli.options import option, timeout_option
from ddefuzz.cli.output import Output, deliver, output_options, page_writers
from ddefuzz.cli.progress import LiveLine
from ddefuzz.cli.reports import command_line
from ddefuzz.errors import EXIT_INTERRUPTED
from ddefuzz.escape import json_text


@click.command("study")
@option(
    "--models",
    "Files with models: each NAME with NAME_args is one.",
    click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    default=Path("corpora/models"),
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    type=click.Choice(["own", *GROUPS]),
    metavar="NAME",
    help="Which models: own (those of the folder), ExportDB (the examples in torch) or transformers (tiny models of "
    "transformers). Can be repeated. Default: all.",
)
@timeout_option(120.0, "one capture")
@option("--budget", "How long changes are tried for each model.", metavar="SECONDS", default=30.0)
@option(
    "--sizes",
    "How the dynamic dims of a model are captured: unbacked, or backed (Dim.AUTO).",
    get_args(Sizes),
    default="unbacked",
)
@option(
    "--keep",
    "Add each model to FILE (JSON lines) when it is done. Models that FILE has with the same settings, torch and "
    "package are not done again. All rows of FILE are printed, so that a study may have several runs.",
    click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
)
@output_options("text", "json", "markdown", "html")
def command(
    models: Path,
    groups: tuple[str, ...],
    timeout: float,
    budget: float,
    sizes: Sizes,
    keep: Path | None,
    output: Output,
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
    settings = Settings(torch_itself().version, sizes, timeout, budget, "")
    with LiveLine("starting a worker (importing torch takes some seconds)") as live:
        done = study(models, groups, settings, keep, Progress(live.say, live.update))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    shown = page_writers("Models", study_view(done.rows, command_line(), today))
    deliver({**shown, "json": json_text({"schema": SCHEMA, "models": done.rows}) + "\n"}, output)
    if not done.is_done:
        raise SystemExit(EXIT_INTERRUPTED)
