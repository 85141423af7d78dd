"""All commands of the command line, for tests that hold for each."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import rich_click as click

from ddefuzz.cli.main import COMMANDS


def commands() -> Iterator[tuple[str, click.Command]]:
    """The name of each command and subcommand, and what it runs."""
    todo = [(name, importlib.import_module(f"ddefuzz.cli.{name.replace('-', '_')}").command) for name in COMMANDS]
    while todo:
        name, one = todo.pop(0)
        if isinstance(one, click.Group):
            todo += [(f"{name} {sub}", of) for sub, of in one.commands.items()]
        else:
            yield name, one
