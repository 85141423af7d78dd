"""The option `--jobs`, of every command that starts workers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import rich_click as click

Command = TypeVar("Command", bound=Callable[..., Any])


class Jobs(click.ParamType[int]):
    """A number of processes, or `auto`: one for each core that this process may use."""

    name = "N|auto"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; what is none is a usage error."""
        if isinstance(value, int):
            return value
        text = str(value)
        if text == "auto":
            return available_cores()
        if text.isdigit() and int(text) > 0:
            return int(text)
        self.fail(f"found {text!r}, expected a number of processes or auto", param, ctx)


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def jobs_option(command: Command) -> Command:
    """Give a command the parameter `jobs`."""
    return click.option("-j", "--jobs", type=Jobs(), default="auto", show_default=True, help="Worker processes.")(
        command
    )
