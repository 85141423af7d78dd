"""`ddefuzz bench keys` and `ddefuzz bench recompiles`: what keys cost, and what compiling again costs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import rich_click as click

from ddefuzz.cli.output import deliver, output_options
from ddefuzz.cli.progress import LiveLine


@click.command("keys")
@output_options("text", "json")
def keys(format_: str, outputs: tuple[tuple[str, Path], ...]) -> None:
    """Measure specialization keys: fast and safe path, and a dispatch by them, compared with a plain dict lookup."""
    # Imported here: `ddefuzz bench --help` imports this module and must not import torch.
    with LiveLine("measuring") as live:
        found = import_module("ddefuzz.bench.keys").measure_keys(live.update)
    _deliver(found, keys_text(found), format_, outputs)


@click.command("recompiles")
@click.option("--sizes", type=click.IntRange(2, 1000), metavar="N", default=100, show_default=True,
              help="Number of sizes.")  # fmt: skip
@output_options("text", "json")
def recompiles(sizes: int, format_: str, outputs: tuple[tuple[str, Path], ...]) -> None:
    """Measure what out= costs over many sizes: compilations and CPU seconds of five functions, with it and without."""
    with LiveLine("compiling") as live:
        found = import_module("ddefuzz.bench.recompiles").measure_recompiles(sizes, live.update)
    _deliver(found, recompiles_text(found), format_, outputs)


def _deliver(found: Any, text: str, format_: str, outputs: tuple[tuple[str, Path], ...]) -> None:
    document = msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
    deliver({"text": lambda _page: text, "json": lambda _page: document}, format_, outputs)


def keys_text(found: Any) -> str:
    """A line for each policy, number of arguments and dims."""
    lines = [
        f"torch {found.torch}; ns a call; safe/fast has the target >= 3; lookup is a dict lookup of a key made before",
        f"{'policy':20} args dims {'fast':>8} {'safe':>8} {'lookup':>8} {'dispatch':>8} {'keyed':>8}  "
        "safe/fast dispatch/lookup keyed/lookup",
    ]
    lines += [
        f"{one.policy:20} {one.arguments:4} {one.dims:4} {one.fast_ns:8.0f} {one.safe_ns:8.0f} {one.lookup_ns:8.0f} "
        f"{one.dispatch_ns:8.0f} {one.keyed_ns:8.0f}  {one.safe_over_fast:9.1f} {one.dispatch_over_lookup:15.1f} "
        f"{one.keyed_over_lookup:12.1f}"
        for one in found.rows
    ]
    return "\n".join(lines) + "\n"


def recompiles_text(found: Any) -> str:
    """A line for each function."""
    lines = [f"torch {found.torch}, {found.sizes} sizes, default settings; CPU seconds of all calls"]
    lines += [
        f"{one.op:16} {one.compilations:4} compilations, {one.seconds:7.2f} s; with out= {one.compilations_out:4}, "
        f"{one.seconds_out:7.2f} s: {one.ratio:g} times as long"
        for one in found.rows
    ]
    return "\n".join(lines) + "\n"
