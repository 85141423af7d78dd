"""All commands of the command line, for tests that hold for each."""

from __future__ import annotations

from collections.abc import Iterator

import rich_click as click

from ddefuzz.cli.main import COMMANDS, command_of


def commands() -> Iterator[tuple[str, click.Command]]:
    """The name of each command and subcommand, and what it runs."""
    todo: list[tuple[str, click.Command]] = [(name, command_of(name)) for name in COMMANDS]
    while todo:
        name, one = todo.pop(0)
        if isinstance(one, click.Group):
            todo += [(f"{name} {sub}", of) for sub, of in one.commands.items()]
        else:
            yield name, one
