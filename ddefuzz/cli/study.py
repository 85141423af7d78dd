"""`ddefuzz study`: check many models, and compare the results with a plain export and with draft_export."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import get_args

import rich_click as click

from ddefuzz.checking.check import Progress
from ddefuzz.checking.owner import torch_itself
from ddefuzz.checking.study import GROUPS, SCHEMA, Settings, Sizes, study, study_view
from ddefuzz.cli.output import deliver, output_options, page_writers
from ddefuzz.cli.progress import LiveLine
from ddefuzz.cli.reports import command_line
from ddefuzz.errors import EXIT_INTERRUPTED
from ddefuzz.escape import json_text


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
    type=click.Choice(["own", *GROUPS]),
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
@output_options("text", "json", "markdown", "html")
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
    settings = Settings(torch_itself().version, sizes, timeout, budget, "")
    with LiveLine("starting a worker (importing torch takes some seconds)") as live:
        done = study(models, groups, settings, keep, Progress(live.say, live.update))
    document = json_text({"schema": SCHEMA, "models": done.rows}) + "\n"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    shown = page_writers("Models", lambda _: study_view(done.rows, command_line(), today))
    deliver({**shown, "json": lambda _: document}, format_, outputs)
    if not done.is_done:
        raise SystemExit(EXIT_INTERRUPTED)
