"""`ddefuzz doctor`: the environment and every private torch API in use, tried for real."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Protocol

import rich_click as click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ddefuzz.errors import EXIT_OK, EXIT_UNSUPPORTED

SCHEMA = "ddefuzz.doctor/1"

PARTS = (("ddefuzz.execute.selftest", "checks"),)
"""Module and function of each part of the self-test: no arguments, yields checks."""


class Check(Protocol):
    """One line of the self-test."""

    name: str
    ok: bool
    detail: str


@click.command()
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(form: str) -> None:
    """Check this environment and every private torch API in use.

    Exits 0 when all checks hold and 4 when one does not, or when this torch is not supported at all.
    """
    found: list[Check] = []
    progress = Console(stderr=True)
    with progress.status("checking …"):
        for part in _parts():
            found.extend(part())
    if form == "json":
        rows = [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in found]
        click.echo(json.dumps({"schema": SCHEMA, "checks": rows}, indent=1))
    else:
        _print(found)
    sys.exit(EXIT_OK if all(check.ok for check in found) else EXIT_UNSUPPORTED)


def _parts() -> Iterator[Callable[[], Iterator[Check]]]:
    # Late: `ddefuzz --help` imports this module and must not import torch.
    for module, function in PARTS:
        yield getattr(import_module(module), function)


def _print(found: list[Check]) -> None:
    table = Table("", "check", "detail", box=None, pad_edge=False)
    for check in found:
        table.add_row("[green]ok[/]" if check.ok else "[red]FAILS[/]", escape(check.name), escape(check.detail))
    Console().print(table)
    failed = sum(not check.ok for check in found)
    click.echo(f"{len(found)} checks, {failed} failed")
