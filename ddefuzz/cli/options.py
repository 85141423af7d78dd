"""Options that several commands share. `cli/settings.py` can set their defaults."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar, get_args

import rich_click as click

from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import STAGES, Stage
from ddefuzz.findings.url import DatabaseUrl, parse_url
from ddefuzz.instrument.events import Mechanism
from ddefuzz.oracles.table import BY_DEFAULT, OF_PROGRAMS, ORACLES

DEFAULT_DB = "sqlite:///findings/ddefuzz.db"

DEFAULT_STAGES: tuple[Stage, ...] = ("export", "export-strict", "compile")

Command = TypeVar("Command", bound=Callable[..., Any])


class Jobs(click.ParamType[int]):
    """A number of processes, or `auto`: one for each core that this process may use."""

    name = "N|auto"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. Anything else is a usage error."""
        if isinstance(value, int):
            return value
        text = str(value)
        if text == "auto":
            return available_cores()
        if text.isdigit() and int(text) > 0:
            return int(text)
        self.fail(f"found {text!r}, expected a number of processes or auto", param, ctx)


class UrlType(click.ParamType[DatabaseUrl]):
    """The URL of a database, or the path of an SQLite database if `paths` is set.

    A URL with `***`, as ddefuzz shows it, means the one in the settings if that is shown so.
    """

    name = "URL"

    def __init__(self, *, paths: bool = False) -> None:
        self.paths = paths

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> DatabaseUrl:
        """Parse the URL. A wrong one is a usage error, which does not repeat a password."""
        if isinstance(value, DatabaseUrl):
            return value
        text = str(value)
        configured = ctx.lookup_default("db") if ctx is not None else None
        if isinstance(configured, DatabaseUrl) and text == str(configured):
            return configured
        try:
            return parse_url(f"sqlite:///{text}" if self.paths and "://" not in text else text)
        except InputError as error:
            self.fail(str(error), param, ctx)


URL = UrlType()
URL_OR_PATH = UrlType(paths=True)


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


jobs_option = click.option(
    "-j",
    "--jobs",
    type=Jobs(),
    metavar="N",
    default="auto",
    show_default=True,
    help="Number of worker processes; auto: one for each core.",
)

db_option = click.option(
    "--db", "db", type=URL, default=DEFAULT_DB, show_default=True, help="URL of the findings database."
)

trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Execute the user's code too: modules that trusted.toml files below PATH list, and any key function.",
)

stages_option = click.option(
    "--stage",
    "stages",
    type=click.Choice(STAGES),
    metavar="STAGE",
    multiple=True,
    default=DEFAULT_STAGES,
    show_default=True,
    help="How far torch takes a program: eager, fake (FakeTensorMode only), export, export-strict, compile "
    "(torch.compile with backend eager), aot (backend aot_eager) or inductor. Can be repeated.",
)


def semantics_option(default: tuple[Mechanism, ...], note: str = "") -> Callable[[Command], Command]:
    """Give a command the parameter `mechanisms`."""
    return click.option(
        "--semantics",
        "mechanisms",
        type=click.Choice(get_args(Mechanism)),
        metavar="NAME",
        multiple=True,
        default=default,
        show_default=True,
        help="What happens at a guard that cannot be decided: explicit (take its fallback answer, as torch does), "
        "size-oblivious (assume sizes of 2 or more, as torch did before), aggressive-1 or aggressive-2 (torch's "
        f"aggressive_guard_free_semantics). Can be repeated.{note}",
    )


def oracles_option(note: str, default: tuple[str, ...] = BY_DEFAULT) -> Callable[[Command], Command]:
    """Give a command the parameter `oracles`."""
    return click.option(
        "--oracle",
        "oracles",
        type=click.Choice(OF_PROGRAMS),
        metavar="NAME",
        multiple=True,
        default=default,
        show_default=True,
        help="What counts as a failure: "
        + ", ".join(f"{oracle.name} ({oracle.about})" for oracle in ORACLES if oracle.of_programs)
        + f". {note} Can be repeated.",
    )


why_option = click.option("--why", default="", metavar="TEXT", help="The reason, for the history.")


def who_option(command: Command) -> Command:
    """The option for the name in the history."""
    return click.option(
        "--by", "who", default=user, metavar="NAME", help="Name for the history. Default: your user name."
    )(command)


def user() -> str:
    """The name of who runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # some containers have no entry for the user
        return "unknown"


def now() -> datetime:
    """The time of a decision."""
    return datetime.now(UTC)
