"""`ddefuzz bench generation`: measure properties of generated programs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import msgspec
import rich_click as click

from ddefuzz.bench.captured import capture_shares
from ddefuzz.cli.options import jobs_option
from ddefuzz.cli.output import deliver, json_writers, output_options
from ddefuzz.cli.progress import LiveLine
from ddefuzz.generate.profiles import PROFILES, profile_named


@click.command("generation")
@click.option(
    "--draws",
    type=click.IntRange(1),
    metavar="N",
    default=5_000,
    show_default=True,
    help="Number of programs to generate.",
)
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", default=0, show_default=True, help="Seed of the generator."
)
@click.option(
    "--profile",
    metavar="NAME",
    default="default",
    show_default=True,
    help="Kind of programs to generate, as for `ddefuzz run`.",
)
@click.option(
    "--captures",
    type=click.IntRange(0),
    metavar="N",
    default=20,
    show_default=True,
    help="Number of programs of each profile to capture in aot and export. 0: none.",
)
@jobs_option
@output_options("text", "json")
def command(
    draws: int,
    seed: int,
    profile: str,
    captures: int,
    jobs: int,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Measure how many generated programs are valid, varied, and carry unbacked sizes; and how many are captured."""
    profile_named(profile)
    # Imported here: `ddefuzz bench --help` imports this module and must not import torch.
    measure = import_module("ddefuzz.generate.measure")
    record = measure.measure_generation(draws, seed, profile)
    if captures:
        with LiveLine("capturing") as live:
            shares = capture_shares(PROFILES, seed, captures, jobs, live.update)
        record = msgspec.structs.replace(record, captured=shares)
    text = measure.render(record) + "\n"
    deliver({"text": lambda _page: text, **json_writers([msgspec.to_builtins(record)])}, format_, outputs)
