"""`ddefuzz bench dashboard`: how long pages take with many findings."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import rich_click as click

from ddefuzz.cli.options import db_option
from ddefuzz.cli.output import deliver, output_options
from ddefuzz.cli.progress import LiveLine
from ddefuzz.cli.serve import check_extra
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl

SCHEMA = "ddefuzz.bench.dashboard/1"


@click.command("dashboard")
@click.option(
    "--findings",
    "number",
    type=click.IntRange(min=1, max=1_000_000),
    metavar="N",
    default=10_000,
    show_default=True,
    help="Number of findings: copies of those in the database.",
)
@click.option(
    "--requests", type=click.IntRange(min=1), metavar="N", default=7, show_default=True, help="Requests of each page."
)
@db_option
@output_options("text", "json")
def command(number: int, requests: int, db: DatabaseUrl, format_: str, outputs: tuple[tuple[str, Path], ...]) -> None:
    """Compare how long pages of `ddefuzz serve` take with many findings and with none, side by side.

    The findings of the database are copied into a temporary one until there are N. 10,000 need about 700 MB. 200
    campaigns, a sweep and the results of a version matrix are added to it.
    """
    check_extra()
    # Imported here, because importing FastAPI takes longer than most commands.
    from ddefuzz.bench.dashboard import TARGET_MS, measure  # noqa: PLC0415

    with (
        LiveLine("measuring"),
        tempfile.TemporaryDirectory(dir=scratch_folder()) as folder,
        Database.open(db, create=False) as source,
    ):
        cost = measure(source, number, requests, Path(folder))
    text = f"{cost.findings} findings, {cost.bytes / 1e6:.0f} MB; median of {requests} requests\n" + "".join(
        f"{one.ratio:6.2f}  CPU time with findings over without: {one.cpu_milliseconds:.0f} / "
        f"{one.empty_cpu_milliseconds:.0f} ms; by the clock {one.milliseconds:.0f} / {one.empty_milliseconds:.0f} ms "
        f"(target ≤ {TARGET_MS:.0f} ms)  {one.path}\n"
        for one in cost.pages
    )
    document = msgspec.json.encode({"schema": SCHEMA, **msgspec.to_builtins(cost)}).decode() + "\n"
    deliver({"text": lambda _page: text, "json": lambda _page: document}, format_, outputs)
