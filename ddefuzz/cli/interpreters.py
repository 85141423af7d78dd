"""The option `--python NAME=PATH` of commands that run several interpreters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import rich_click as click

from ddefuzz.errors import InputError
from ddefuzz.versions.model import Interpreter, in_order
from ddefuzz.versions.run import interpreter_of

Command = TypeVar("Command", bound=Callable[..., Any])


def pythons_option(command: Command) -> Command:
    """Give a command the parameter `pythons`."""
    return click.option(
        "--python",
        "pythons",
        metavar="[NAME=]PATH",
        multiple=True,
        required=True,
        help="An interpreter that has a torch, 2.6 or later. Can be repeated. NAME is for the table (default: the "
        "version of its torch).",
    )(command)


def interpreters_of(typed: tuple[str, ...]) -> tuple[Interpreter, ...]:
    """The interpreters, by version of torch. Raises `InputError` for two with the same name."""
    found = []
    for one in typed:
        name, separator, path = one.rpartition("=")
        found.append(interpreter_of(name if separator else "", path))
    names = [one.name for one in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"--python: found two named {twice[0]!r}, expected different names: NAME=PATH")
    return in_order(found)
