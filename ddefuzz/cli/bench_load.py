"""`ddefuzz bench load`: the cost of a database with many sightings."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import rich_click as click

from ddefuzz.bench.load import LoadCost, LoadStep, measure
from ddefuzz.cli.output import deliver, output_options
from ddefuzz.cli.progress import LiveLine
from ddefuzz.errors import EXIT_FOUND
from ddefuzz.execute.scratch import scratch_folder

SCHEMA = "ddefuzz.bench.load/1"


@click.command("load")
@click.option(
    "--sightings",
    type=click.IntRange(min=1, max=10_000_000),
    metavar="N",
    default=100_000,
    show_default=True,
    help="Number of sightings. Each is a record of its own.",
)
@click.option(
    "--shards", type=click.IntRange(min=1, max=200), metavar="N", default=20, show_default=True, help="Databases."
)
@output_options("text", "json")
def command(sightings: int, shards: int, format_: str, outputs: tuple[tuple[str, Path], ...]) -> None:
    """Measure a database with many sightings: record, list, show, decide, and merge the databases of shards.

    Sightings of 1,000 signatures are written to the databases of N shards, which are merged. Each step is then measured
    in the merged database and, in turn with it, in one with a single finding. Exit code 1: a sighting is lost.
    """
    with LiveLine("measuring") as live, tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        cost = measure(sightings, shards, Path(folder), live.update)
    document = msgspec.json.encode({"schema": SCHEMA, **msgspec.to_builtins(cost)}).decode() + "\n"
    deliver({"text": lambda _page: _text(cost), "json": lambda _page: document}, format_, outputs)
    if cost.counted != cost.sightings:
        raise SystemExit(EXIT_FOUND)


def _text(cost: LoadCost) -> str:
    lines = [
        f"{cost.sightings} sightings in {cost.shards} shards. Merged: {cost.counted} sightings, {cost.records} "
        f"records, {cost.findings} findings, {cost.bytes / 1e6:.0f} MB",
        "CPU milliseconds, and the ratio to a database with one finding:",
        *map(_line, cost.steps),
    ]
    return "\n".join(lines) + "\n"


def _line(one: LoadStep) -> str:
    ratio = "      " if one.ratio is None else f"{one.ratio:6.1f}"
    return f"{one.cpu_milliseconds:10.2f}  {ratio}  {one.step}"
